// Weights in files beside the model.
#pragma once

#include <cstdint>
#include <string>

#include "io/onnx/model.h"
#include "tensor/layout.h"

namespace gradus::onnx {

// The entries of a tensor's `external_data`.
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

}  // namespace gradus::onnx
