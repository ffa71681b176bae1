#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> signal_rules() { return {}; }
}  // namespace gradus::onnx
