// Weights in files beside the model.
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "gradus/messages.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

namespace {

uint64_t number_of(const std::string& key, const std::string& value, const std::string& what) {
  uint64_t n = 0;
  auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (fault != std::errc() || end != value.data() + value.size() || n > uint64_t{1} << 62)
    throw Error("{}: external data: {} is '{}', which is no number of bytes", what, key,
                printable(value));
  return n;
}

// The file, which lies in the folder when all links are followed.
std::filesystem::path inside(const std::string& location, const Folder& folder,
                             const std::string& what) {
  namespace fs = std::filesystem;
  if (folder.path.empty())
    throw Error("{}: its data lie in '{}', but the model was not read from a folder", what,
                printable(location));
  if (location.empty() || location.find('\0') != std::string::npos)
    throw Error("{}: external data: the location names no file", what);
  fs::path relative(location);
  bool leaves = relative.is_absolute() || relative.has_root_path();
  for (const fs::path& part : relative) leaves = leaves || part == "..";
  std::error_code fault;
  fs::path home = fs::canonical(folder.path, fault);
  fs::path file = leaves || fault ? fs::path() : fs::weakly_canonical(home / relative, fault);
  if (!leaves && !fault) {
    fs::path from_home = file.lexically_relative(home);
    leaves = from_home.empty() || *from_home.begin() == "..";
  }
  if (leaves)
    throw Error("{}: external data '{}' lie outside of the model's folder, where nothing is read",
                what, printable(location));
  if (fault) throw Error("{}: external data '{}': {}", what, printable(location), fault.message());
  return file;
}

}  // namespace

void ExternalData::set(const std::string& key, const std::string& value, const std::string& what) {
  if (key == "location") location = value;
  if (key == "offset") offset = number_of(key, value, what);
  if (key == "length") length = static_cast<int64_t>(number_of(key, value, what));
}

Tensor read_external(const ExternalData& place, const Folder& folder, DType dtype,
                     const Sizes& shape, int64_t bytes, const std::string& what) {
  const std::filesystem::path path = inside(place.location, folder, what);
  if (place.length >= 0 && place.length != bytes)
    throw Error("{}: {} of these sizes has {} bytes, its external data have {}", what,
                name_of(dtype), bytes, place.length);
  const InputFile file(path.string());
  const auto size = static_cast<uint64_t>(bytes);
  if (!file.holds(place.offset, size))
    throw Error("{}: its {} bytes from {} on reach beyond the end of '{}', which has {}", what,
                bytes, place.offset, printable(place.location), file.size());
  Tensor tensor = Tensor::empty(dtype, shape);
  file.read(place.offset, {tensor.mutable_data(), size});
  return tensor;
}

}  // namespace gradus::onnx
