#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/file.h"
#include "base/mapped_file.h"
#include "gradus/files.h"
#include "gradus/messages.h"

namespace gradus {

namespace {

std::optional<DType> same_dtype(std::string_view stored) {
  constexpr std::pair<std::string_view, DType> pairs[] = {
      {"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
      {"I64", DType::i64}, {"I32", DType::i32}, {"I16", DType::i16}, {"I8", DType::i8},
      {"U64", DType::u64}, {"U32", DType::u32}, {"U16", DType::u16}, {"U8", DType::u8}};
  for (auto [name, dtype] : pairs)
    if (name == stored) return dtype;
  return std::nullopt;
}

std::string_view stored_dtype(DType dtype) {
  constexpr std::string_view names[dtype_count] = {"F64", "F32",  "F16", "BF16", "I64", "I32", "I8",
                                                   "U8",  "BOOL", "I16", "U16",  "U32", "U64"};
  return names[static_cast<int>(dtype)];
}

// Truth values, which here are 0 or 1.
Tensor converted(const SafetensorsEntry& e, const std::byte* source, Context& context) {
  if (e.dtype != "BOOL") throw Error("its dtype {} has no counterpart here", e.dtype);
  Tensor t = Tensor::empty(DType::boolean, e.shape, context);
  auto* out = reinterpret_cast<uint8_t*>(t.mutable_data());
  for (int64_t i = 0; i < t.numel(); ++i) out[i] = source[i] != std::byte{0};
  return t;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  auto mapped = std::make_shared<MappedFile>(path_);
  std::span<std::byte> bytes = mapped->bytes();
  try {
    header_ = read_safetensors_header(bytes);
  } catch (const Error& e) {
    throw Error("{}: {}", path_, e.bare());
  }
  storage_ = make_ref<Storage>(bytes.data(), bytes.size(), Device(), [mapped] {});
  for (const auto& [name, entry] : header_.entries) {
    index_.emplace(name, names_.size());
    names_.push_back(name);
  }
}

SafetensorsFile::~SafetensorsFile() = default;

bool SafetensorsFile::contains(std::string_view name) const { return index_.contains(name); }

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  auto it = index_.find(name);
  if (it != index_.end()) return header_.entries[it->second].second;
  std::vector<std::string_view> known(names_.begin(), names_.end());
  throw Error("{}: there is no tensor '{}'{}", path_, printable(name), did_you_mean(name, known));
}

Tensor SafetensorsFile::read(std::string_view name, Context& context) const {
  const SafetensorsEntry& e = entry(name);
  const std::byte* source = storage_->data() + e.begin;
  try {
    auto dtype = same_dtype(e.dtype);
    if (!dtype) return converted(e, source, context);
    size_t item = size_of(*dtype);
    if (e.begin % item == 0)
      return Tensor(storage_, Layout(*dtype, e.shape), static_cast<int64_t>(e.begin / item));
    Tensor t = Tensor::empty(*dtype, e.shape, context);
    std::memcpy(t.mutable_data(), source, e.end - e.begin);
    return t;
  } catch (const Error& error) {
    throw Error("{}: tensor '{}': {}", path_, printable(name), error.bare());
  }
}

NamedTensors read_safetensors(const std::string& path, Context& context) {
  SafetensorsFile file(path);
  NamedTensors tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.read(name, context));
  return tensors;
}

namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    size_t length = utf8_length(text, at);
    if (length == 0) throw Error("'{}' is not valid UTF-8", printable(text));
    auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", c);
    else if (c == '"' || c == '\\')
      out += fmt::format("\\{}", text[at]);
    else
      out.append(text, at, length);
    at += length;
  }
  return out + "\"";
}

std::string header_text(std::span<const std::pair<std::string, Tensor>* const> order,
                        const std::map<std::string, std::string, std::less<>>& metadata) {
  std::string text = "{";
  auto next = [&](std::string_view name) {
    text += fmt::format("{}{}:", text.size() > 1 ? "," : "", json_string(name));
  };
  if (!metadata.empty()) {
    next("__metadata__");
    std::string members;
    for (const auto& [key, value] : metadata)
      members +=
          fmt::format("{}{}:{}", members.empty() ? "" : ",", json_string(key), json_string(value));
    text += "{" + members + "}";
  }
  uint64_t at = 0;
  for (const auto* t : order) {
    next(t->first);
    std::string shape;
    for (int64_t d : t->second.shape()) shape += fmt::format("{}{}", shape.empty() ? "" : ",", d);
    uint64_t end = at + static_cast<uint64_t>(t->second.numel()) * size_of(t->second.dtype());
    text += fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        stored_dtype(t->second.dtype()), shape, at, end);
    at = end;
  }
  text += '}';
  // The data begins at a multiple of 64, so that a mapped file is aligned.
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  return text;
}

void check_tensors(std::span<const std::pair<std::string, Tensor>> tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    auto refuse = [&](std::string_view why) {
      throw Error("tensor '{}': {}", printable(name), why);
    };
    if (name.empty()) refuse("a name is not to be empty");
    if (name == "__metadata__") refuse("the format keeps this name for itself");
    if (!seen.insert(name).second) refuse("the name is given twice; give each name once");
    if (!tensor.defined()) refuse("an undefined tensor cannot be written; leave it out");
    if (tensor.device().kind != DeviceKind::cpu)
      refuse("a tensor on a device cannot be written; copy it to the cpu first");
    if (tensor.rank() > 64) refuse("a tensor of more than 64 dimensions cannot be written");
  }
}

}  // namespace

void write_safetensors(const std::string& path,
                       std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata) {
  std::vector<const std::pair<std::string, Tensor>*> order;
  std::string header;
  try {
    check_tensors(tensors);
    for (const auto& t : tensors) order.push_back(&t);
    std::ranges::stable_sort(order, std::greater(),
                             [](const auto* t) { return size_of(t->second.dtype()); });
    header = header_text(order, metadata);
  } catch (const Error& e) {
    throw Error("{}: {}", path, e.bare());
  }
  AtomicFile target(path);
  std::unique_ptr<std::FILE, decltype([](std::FILE* f) { std::fclose(f); })> file(
      std::fopen(target.temporary().c_str(), "wbe"));
  if (!file) throw_file_error(path, "cannot be written", errno);
  bool fine = true;
  auto put = [&](const void* bytes, size_t n) {
    fine = fine && (n == 0 || std::fwrite(bytes, 1, n, file.get()) == n);
  };
  std::array<unsigned char, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> 8 * i);
  put(length.data(), length.size());
  put(header.data(), header.size());
  for (const auto* t : order) {
    Tensor dense = t->second.contiguous();
    put(dense.data(), static_cast<size_t>(dense.numel()) * size_of(dense.dtype()));
  }
  // Closing writes what is buffered, so it can fail for a full disk too.
  fine = std::fclose(file.release()) == 0 && fine;
  if (!fine) throw_file_error(path, "cannot be written", errno);
  target.commit();
}

void write_safetensors(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Tensor>> list(tensors.begin(), tensors.end());
  write_safetensors(path, list);
}

}  // namespace gradus
