#include "io/onnx/call.h"
namespace gradus::onnx {
std::span<const RuleEntry> resize_rules() { return {}; }
}  // namespace gradus::onnx
