// Files of tensors by name, of either format.
#pragma once

#include "tensor/safetensors.h"

#pragma GCC visibility push(default)

namespace gradus {

// .safetensors where the name ends so, .npz otherwise. Thread-safe; throws as those do.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);
  const std::string& path() const;
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::unique_ptr<NpzFile> npz_;
  std::unique_ptr<SafetensorsFile> safetensors_;
};

void write_tensors(const std::string& path,
                   std::span<const std::pair<std::string, Tensor>> tensors);

}  // namespace gradus

#pragma GCC visibility pop
