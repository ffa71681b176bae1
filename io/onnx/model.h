// Reading of models: bytes -> protobuf messages -> tensors. Nothing is believed unchecked.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor.h"

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
int element_type_of(DType dtype);
// As ONNX's messages call it: "uint16".
std::string element_type_name(int element_type);

// The tensor, with memory of its own; one of a narrow type (io/onnx/narrow.h) in the dtype that
// holds its numbers. Its size is compared with the bytes that are there before
// memory is taken. Throws Error and Unsupported, with `what` in front.
Tensor read_tensor(const ::onnx::TensorProto& tensor, const Folder& folder,
                   const std::string& what);

// The entries of a tensor's `external_data`: weights in files beside the model.
struct ExternalData {
  std::string location;
  uint64_t offset = 0;
  int64_t length = -1;  // as many as the tensor has
  // Throws Error for a number that is none.
  void set(const std::string& key, const std::string& value, const std::string& what);
};
// Reads a tensor of so many bytes. Throws Error for a path that leaves the folder (also by a link),
// and for a file that is too short; memory is taken after that is known.
Tensor read_external(const ExternalData& place, const Folder& folder, DType dtype,
                     const Sizes& shape, int64_t bytes, const std::string& what);

// Numbers as a list; integers as i64, also of another shape.
Tensor tensor_with(DType dtype, const std::vector<double>& values);
Tensor tensor_with(std::span<const int64_t> values);
Tensor tensor_with(std::span<const int64_t> values, std::span<const int64_t> shape);
inline Tensor tensor_with(int64_t value) { return tensor_with({&value, 1}, {}); }

}  // namespace gradus::onnx
