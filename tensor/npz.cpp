#include <algorithm>
#include <array>
#include <set>

#include "gradus/files.h"
#include "gradus/messages.h"
#include "tensor/zip_reader.h"
#include "tensor/zip_writer.h"

namespace gradus {

namespace {

constexpr std::string_view suffix = ".npy";

}  // namespace

NpzFile::NpzFile(std::string path)
    : path_(std::move(path)),
      archive_(std::make_unique<ZipReader>(
          path_, ZipKind{.name = ".npz file (a zip archive)", .writer = "np.savez"})) {
  for (const ZipMember& member : archive_->members()) {
    std::string_view name = member.name;
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    if (!index_.emplace(name, &member).second)
      throw Error("{}: entry '{}' is there twice; write the archive again with each name once",
                  path_, printable(name));
    names_.emplace_back(name);
  }
}

NpzFile::~NpzFile() = default;

bool NpzFile::contains(std::string_view name) const { return index_.find(name) != index_.end(); }

const ZipMember& NpzFile::find(std::string_view name) const {
  auto at = index_.find(name);
  if (at != index_.end()) return *at->second;
  std::string some;
  for (size_t i = 0; i < std::min<size_t>(names_.size(), 5); ++i)
    some += fmt::format("{}'{}'", i ? ", " : "", printable(names_[i]));
  throw Error("{}: there is no entry '{}'; it has {} entries{}{}{}", path_, printable(name),
              names_.size(), some.empty() ? "" : ": ", some, names_.size() > 5 ? ", ..." : "");
}

NpyHeader NpzFile::header(std::string_view name) const {
  const ZipMember& member = find(name);
  try {
    archive_->check(member);
    ZipStream stream(*archive_, member);
    return read_npy_header(stream, member.size);
  } catch (const Error& e) {
    throw Error("{}: entry '{}': {}", path_, printable(name), e.bare());
  }
}

Tensor NpzFile::read(std::string_view name, Context& context) const {
  const ZipMember& member = find(name);
  try {
    archive_->check(member);
    ZipStream stream(*archive_, member);
    NpyHeader header = read_npy_header(stream, member.size);
    archive_->check_claim(member);
    Tensor tensor = read_npy_elements(header, stream, context);
    stream.expect_end();
    return tensor;
  } catch (const Error& e) {
    throw Error("{}: entry '{}': {}", path_, printable(name), e.bare());
  }
}

NamedTensors read_npz(const std::string& path, Context& context) {
  NpzFile file(path);
  NamedTensors tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.read(name, context));
  return tensors;
}

namespace {

void check_names(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    auto refuse = [&](std::string_view why) {
      throw Error("{}: entry '{}': {}", path, printable(name), why);
    };
    if (name.empty()) refuse("a name is not to be empty");
    if (name.find('\0') != std::string::npos) refuse("a name is not to hold a NUL character");
    if (name.size() > 60000) refuse("a name has at most 60000 bytes");
    if (!seen.insert(name).second) refuse("the name is given twice; give each name once");
  }
}

void add_tensor(ZipWriter& writer, const std::string& name, const Tensor& tensor) {
  const std::string header = npy_header(tensor);
  const Tensor t = tensor.contiguous();
  const std::array parts{
      std::as_bytes(std::span(header)),
      std::span<const std::byte>(t.data(), static_cast<size_t>(t.numel()) * size_of(t.dtype()))};
  writer.add(name + std::string(suffix), parts);
}

}  // namespace

void write_npz(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors) {
  check_names(path, tensors);
  AtomicFile file(path);
  ZipWriter writer(path, file.temporary());
  for (const auto& [name, tensor] : tensors) {
    try {
      add_tensor(writer, name, tensor);
    } catch (const Error& e) {
      throw Error("{}: entry '{}': {}", path, printable(name), e.bare());
    }
  }
  writer.close();
  file.commit();
}

void write_npz(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Tensor>> list(tensors.begin(), tensors.end());
  write_npz(path, list);
}

}  // namespace gradus
