// Fields of ONNX's messages that came after libonnx 1.12: read from what its parser keeps unread.
#pragma once

#include <string>
#include <vector>

namespace onnx {
class AttributeProto;
class FunctionProto;
class NodeProto;
}  // namespace onnx

namespace gradus::onnx {

// What tells functions of one name apart; mostly empty.
std::string overload_of(const ::onnx::NodeProto& node);
std::string overload_of(const ::onnx::FunctionProto& function);
// The names of the modules around a node, outermost first, as PyTorch's exporter writes them; the
// last one is the node's. Empty where the model has none.
std::vector<std::string> scopes_of(const ::onnx::NodeProto& node);
// The attributes of a function that have a value where a node gives none.
std::vector<::onnx::AttributeProto> default_attributes(const ::onnx::FunctionProto& function);

}  // namespace gradus::onnx
