#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> control_rules() { return {}; }
}  // namespace gradus::onnx
