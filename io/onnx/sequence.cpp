#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> sequence_rules() { return {}; }
}  // namespace gradus::onnx
