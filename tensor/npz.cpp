#include "tensor/npz.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "tensor/zip_file.h"

namespace gradus {

namespace {

constexpr std::string_view suffix = ".npy";

// Deflate gives at most 1032 bytes for one.
constexpr uint64_t most_ratio = 1032;

}  // namespace

// Not thread-safe.
class NpzFile::Archive {
 public:
  explicit Archive(const std::string& path)
      : file_size_(regular_file_size(path)), zip_(ZipFile::open(path)) {}

  const ZipFile& zip() const { return *zip_; }
  uint64_t file_size() const { return file_size_; }

  // Throws Error for what cannot be read, before anything of the entry is.
  ZipEntry checked_entry(uint64_t place) const {
    ZipEntry e = zip_->entry(place);
    if (e.encrypted) throw Error("it is encrypted; write the archive again without a password");
    const bool stored = e.method == static_cast<uint16_t>(ZipMethod::stored);
    if (!stored && e.method != static_cast<uint16_t>(ZipMethod::deflated))
      throw Error(
          "it is compressed by method {}; np.savez (stored) and np.savez_compressed "
          "(deflated) write what can be read",
          e.method);
    if (e.packed > file_size_ || (stored && e.size != e.packed) || e.size / most_ratio > e.packed)
      throw Error("it claims {} bytes, packed in {}, in an archive of {}: the archive is damaged",
                  e.size, e.packed, file_size_);
    return e;
  }

 private:
  uint64_t file_size_;
  std::unique_ptr<ZipFile> zip_;
};

namespace {

void expect_end(ZipStream& stream) {
  std::byte extra;
  if (stream.read({&extra, 1}) != 0) throw Error("it holds more bytes than the archive says");
}

// What an entry claims to hold may be a thousand times what there is of the file, and false. A
// claim that large is tried out before memory is taken for it.
void check_claim(const ZipFile& zip, uint64_t place, const ZipEntry& entry) {
  constexpr uint64_t harmless = 1 << 20, usual_ratio = 32;
  if (entry.size <= harmless || entry.size / usual_ratio <= entry.packed) return;
  auto stream = zip.stream(place);
  std::array<std::byte, 65536> buffer;
  while (stream->read(buffer) == buffer.size()) {
  }
}

}  // namespace

NpzFile::NpzFile(std::string path)
    : path_(std::move(path)), archive_(std::make_unique<Archive>(path_)) {
  const ZipFile& zip = archive_->zip();
  const uint64_t count = zip.entries();
  uint64_t packed = 0;
  for (uint64_t place = 0; place < count; ++place) {
    ZipEntry entry;
    try {
      entry = zip.entry(place);
    } catch (const Error& e) {
      throw Error("{}: the name of file {} cannot be read: {}; the archive is damaged", path_,
                  place, e.bare());
    }
    // Files that share their bytes make a small archive unpack to any size.
    if (__builtin_add_overflow(packed, entry.packed, &packed)) packed = UINT64_MAX;
    if (packed > archive_->file_size())
      throw Error("{}: its files claim more bytes than the archive has; it is damaged", path_);
    std::string_view name = entry.name;
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    if (!index_.emplace(name, place).second)
      throw Error("{}: entry '{}' is there twice; write the archive again with each name once",
                  path_, printable(name));
    names_.emplace_back(name);
  }
}

NpzFile::~NpzFile() = default;

bool NpzFile::contains(std::string_view name) const { return index_.find(name) != index_.end(); }

namespace {

uint64_t find_entry(const NpzFile& file, std::string_view name,
                    const std::map<std::string, uint64_t, std::less<>>& index) {
  auto at = index.find(name);
  if (at != index.end()) return at->second;
  std::string some;
  for (size_t i = 0; i < std::min<size_t>(file.names().size(), 5); ++i)
    some += fmt::format("{}'{}'", i ? ", " : "", printable(file.names()[i]));
  throw Error("{}: there is no entry '{}'; it has {} entries{}{}{}", file.path(), printable(name),
              file.names().size(), some.empty() ? "" : ": ", some,
              file.names().size() > 5 ? ", ..." : "");
}

}  // namespace

NpyHeader NpzFile::header(std::string_view name) const {
  uint64_t place = find_entry(*this, name, index_);
  std::lock_guard lock(mutex_);
  try {
    const ZipEntry entry = archive_->checked_entry(place);
    auto stream = archive_->zip().stream(place);
    return read_npy_header(*stream, entry.size);
  } catch (const Error& e) {
    throw Error("{}: entry '{}': {}", path_, printable(name), e.bare());
  }
}

Tensor NpzFile::read(std::string_view name, Context& context) const {
  uint64_t place = find_entry(*this, name, index_);
  std::lock_guard lock(mutex_);
  try {
    const ZipEntry entry = archive_->checked_entry(place);
    auto stream = archive_->zip().stream(place);
    NpyHeader header = read_npy_header(*stream, entry.size);
    check_claim(archive_->zip(), place, entry);
    Tensor tensor = read_npy_elements(header, *stream, context);
    expect_end(*stream);
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

// libzip makes none: it removes an archive without files.
void write_empty_archive(const std::string& path, const std::string& temporary) {
  constexpr std::array<char, 22> end_record{'P', 'K', 5, 6};
  std::ofstream out(temporary, std::ios::binary);
  out.write(end_record.data(), end_record.size());
  out.close();
  if (!out) throw ResourceError("{}: cannot be written", path);
}

}  // namespace

void write_npz(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors) {
  check_names(path, tensors);
  AtomicFile file(path);
  if (tensors.empty()) {
    write_empty_archive(path, file.temporary());
  } else {
    const std::unique_ptr<ZipWriter> writer = ZipWriter::open(path, file.temporary());
    for (const auto& [name, tensor] : tensors) {
      try {
        writer->add(name, tensor);
      } catch (const Error& e) {
        throw Error("{}: entry '{}': {}", path, printable(name), e.bare());
      }
    }
    writer->close();
  }
  file.commit();
}

void write_npz(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Tensor>> list(tensors.begin(), tensors.end());
  write_npz(path, list);
}

}  // namespace gradus
