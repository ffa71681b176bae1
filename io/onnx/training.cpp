#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> training_rules() { return {}; }
}  // namespace gradus::onnx
