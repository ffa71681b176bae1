#include "io/pt2/archive.h"

#include <cstring>

#include "gradus/messages.h"

namespace gradus::pt2 {

namespace {

constexpr std::string_view again = "torch.export.save(torch.export.export(module, args), path)";
constexpr std::string_view weights = "data/weights/", constants = "data/constants/";

ZipKind kind_of_archive() { return {"archive of torch.export", "torch.export.save"}; }

std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Archive::Archive(const std::string& path)
    : zip_(path, kind_of_archive()),
      mapping_(std::make_shared<const MappedFile>(path)),
      bytes_(mapping_->bytes()) {
  open();
}

Archive::Archive(std::string name, std::span<const std::byte> bytes)
    : zip_(std::move(name), bytes, kind_of_archive()), bytes_(bytes) {
  open();
}

void Archive::open() {
  constexpr std::string_view models = "models/", json = ".json";
  std::vector<std::string> found;
  for (const ZipMember& m : zip_.members()) {
    const size_t slash = m.name.find('/');
    if (slash == std::string::npos) continue;
    std::string_view inside = std::string_view(m.name).substr(slash + 1);
    if (folder_.empty()) folder_ = m.name.substr(0, slash + 1);
    if (!m.name.starts_with(folder_)) continue;
    members_.emplace(inside, &m);
    if (inside.starts_with(models) && inside.ends_with(json))
      found.emplace_back(inside.substr(models.size(), inside.size() - models.size() - json.size()));
  }
  if (found.empty())
    throw Error(
        "{}: holds no model as torch 2.9 and later write it (models/NAME.json); export it anew: {}",
        name(), again);
  if (found.size() > 1)
    throw Error("{}: holds {} models; save each by itself", name(), found.size());
  model_ = found[0];
  if (member("byteorder") && text("byteorder") != "little")
    throw Error(
        "{}: its numbers are stored in the byte order '{}'; save it on a little-endian "
        "machine",
        name(), printable(text("byteorder")));
  for (std::string_view place : {weights, constants}) {
    const std::string config = fmt::format("{}{}_{}_config.json", place, model_,
                                           place == weights ? "weights" : "constants");
    if (!member(config)) continue;
    try {
      for (StoredTensor& t : read_stored_tensors(text(config))) {
        t.member = std::string(place) + t.member;
        tensors_.emplace(t.name, t);
      }
    } catch (const Error& e) {
      throw Error("{}: {}: {}", name(), config, e.bare());
    }
  }
}

const ZipMember* Archive::member(const std::string& name) const {
  auto it = members_.find(name);
  return it == members_.end() ? nullptr : it->second;
}

std::string Archive::text(const std::string& file) const {
  try {
    return std::string(as_text(zip_.contents(*member(file))));
  } catch (const Error& e) {
    throw Error("{}: {}: {}", name(), printable(file), e.bare());
  }
}

std::string Archive::model_json() const { return text(model_member()); }

const StoredTensor* Archive::find(const std::string& name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<const StoredTensor*> Archive::state() const {
  std::vector<const StoredTensor*> found;
  for (const auto& [name, tensor] : tensors_)
    if (tensor.member.starts_with(weights)) found.push_back(&tensor);
  return found;
}

std::map<std::string, std::string, std::less<>> Archive::extra_files() const {
  constexpr std::string_view folder = "extra/";
  constexpr uint64_t most_bytes = 1 << 20;
  std::map<std::string, std::string, std::less<>> files;
  for (const auto& [name, found] : members_) {
    if (!name.starts_with(folder) || found->size > most_bytes) continue;
    files.emplace(name.substr(folder.size()), text(name));
  }
  return files;
}

Ref<Storage> Archive::storage(const std::string& file) const {
  Ref<Storage>& kept = storages_[file];
  if (kept) return kept;
  const ZipMember* m = member(file);
  if (!m)
    throw Error("the archive has no member '{}'; copy the archive again, or export it anew",
                printable(file));
  zip_.check(*m);
  const uint64_t at = zip_.place(*m);
  if (at > bytes_.size() || m->packed > bytes_.size() - at)
    throw Error("the file became shorter while it was read; read it again");
  auto* bytes = const_cast<std::byte*>(bytes_.data() + at);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes) % 16 == 0;
  if (mapping_ && m->is(ZipMethod::stored) && aligned) {
    kept = make_ref<Storage>(bytes, m->size, Device(), [held = mapping_] {});
    return kept;
  }
  std::vector<std::byte> contents = zip_.contents(*m);
  Tensor copy = Tensor::empty(DType::u8, std::array{static_cast<int64_t>(contents.size())});
  if (!contents.empty()) std::memcpy(copy.mutable_data(), contents.data(), contents.size());
  kept = copy.storage();
  return kept;
}

Tensor Archive::read(const StoredTensor& t) const {
  try {
    if (t.member.ends_with(".pickle"))
      throw Error(
          "it is pickled ('{}'), and no pickle is read: make it a plain tensor "
          "(x.detach().clone()), and export it anew",
          printable(t.member));
    // A stored bool is any byte; here it is 0 or 1.
    const bool truths = t.dtype == DType::boolean;
    Layout layout(truths ? DType::u8 : t.dtype, t.sizes, t.strides);
    int64_t offset = t.offset;
    if (t.complex) {
      for (int64_t& stride : layout.strides)
        if (__builtin_mul_overflow(stride, 2, &stride)) throw Error("its strides are too large");
      if (__builtin_mul_overflow(offset, 2, &offset)) throw Error("its offset is too large");
      layout.shape.push_back(2);
      layout.strides.push_back(1);
    }
    auto extent = layout.checked_extent();
    Ref<Storage> memory = storage(t.member);
    const int64_t held = static_cast<int64_t>(memory->bytes() / size_of(t.dtype));
    if (!extent || offset < 0 || offset > held || *extent > held - offset)
      throw Error(
          "its elements do not lie in its storage of {} bytes ('{}'); copy the archive again, or "
          "export it anew",
          memory->bytes(), printable(t.member));
    if (truths && layout.numel() > held)
      throw Error("it has {} elements in a storage of {}", layout.numel(), held);
    Tensor tensor(memory, std::move(layout), offset);
    return truths ? tensor.to(DType::boolean) : tensor;
  } catch (const Error& e) {
    throw Error("{}: tensor '{}': {}", name(), printable(t.name), e.bare());
  }
}

}  // namespace gradus::pt2
