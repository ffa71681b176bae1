#include "gradus/files.h"

namespace gradus {

namespace {
bool is_safetensors(const std::string& path) { return path.ends_with(".safetensors"); }
}  // namespace

TensorFile::TensorFile(const std::string& path) {
  if (is_safetensors(path))
    safetensors_ = std::make_unique<SafetensorsFile>(path);
  else
    npz_ = std::make_unique<NpzFile>(path);
}
const std::string& TensorFile::path() const { return npz_ ? npz_->path() : safetensors_->path(); }
const std::vector<std::string>& TensorFile::names() const {
  return npz_ ? npz_->names() : safetensors_->names();
}
bool TensorFile::contains(std::string_view name) const {
  return npz_ ? npz_->contains(name) : safetensors_->contains(name);
}
std::map<std::string, std::string, std::less<>> TensorFile::metadata() const {
  if (npz_) return {};
  return safetensors_->metadata();
}
Tensor TensorFile::read(std::string_view name, Context& context) const {
  return npz_ ? npz_->read(name, context) : safetensors_->read(name, context);
}

void write_tensors(const std::string& path,
                   std::span<const std::pair<std::string, Tensor>> tensors) {
  is_safetensors(path) ? write_safetensors(path, tensors) : write_npz(path, tensors);
}

}  // namespace gradus
