#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> recurrent_rules() { return {}; }
}  // namespace gradus::onnx
