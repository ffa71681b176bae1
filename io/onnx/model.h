// Reading of models: bytes -> protobuf messages -> tensors. Nothing is believed unchecked.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace onnx {
class ModelProto;
class TensorProto;
}  // namespace onnx

namespace gradus::onnx {

// Where a model's files lie, for weights outside of the model.
struct Folder {
  std::string path;  // empty: there is none
};

// The whole file. Throws Error for what is no regular file.
std::string read_whole_file(const std::string& path);

// Parses a model and checks that it has a graph. Throws Error, with `name` in front.
std::unique_ptr<::onnx::ModelProto> read_model(std::string_view bytes, const std::string& name);

// ONNX's number of an element type as a dtype; throws Unsupported for one that is not here, Error
// for one that is none. `what` says where it stands.
DType dtype_of(int element_type, const std::string& what);
// As ONNX's messages call it: "uint16".
std::string element_type_name(int element_type);

// The tensor, with memory of its own. Its size is compared with the bytes that are there before
// memory is taken. Throws Error and Unsupported, with `what` in front.
Tensor read_tensor(const ::onnx::TensorProto& tensor, const Folder& folder,
                   const std::string& what);

}  // namespace gradus::onnx
