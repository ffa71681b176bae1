#include "tensor/npz.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <fstream>
#include <set>

#include <zip.h>

#include "base/file.h"
#include "base/text.h"

namespace gradus {

namespace {

constexpr std::string_view suffix = ".npy";

std::string zip_reason(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return reason;
}

[[noreturn]] void throw_open_error(const std::string& path, int code, int system_code) {
  switch (code) {
    case ZIP_ER_MEMORY:
      throw ResourceError("{}: no memory to read it", path);
    case ZIP_ER_OPEN:
      throw_file_error(path, "cannot be read", system_code);
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
      throw ResourceError("{}: cannot be read: {}", path, zip_reason(code));
    case ZIP_ER_NOZIP:
      throw Error("{}: is no .npz file (a zip archive), or is cut short; write it with np.savez",
                  path);
    default:
      throw Error("{}: is a damaged .npz file: {}; copy or write it again", path, zip_reason(code));
  }
}

}  // namespace

// libzip's reading end. Not thread-safe.
class NpzFile::Archive {
 public:
  explicit Archive(const std::string& path) : file_size_(regular_file_size(path)) {
    int code = 0;
    zip_ = zip_open(path.c_str(), ZIP_RDONLY, &code);
    if (!zip_) throw_open_error(path, code, errno);
  }
  ~Archive() { zip_discard(zip_); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  zip_t* zip() const { return zip_; }

  // Throws Error for what cannot be read, before anything of the entry is.
  zip_stat_t checked_stat(uint64_t index) const {
    zip_stat_t stat;
    zip_stat_init(&stat);
    constexpr zip_uint64_t needed =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(zip_, index, 0, &stat) != 0 || (stat.valid & needed) != needed)
      throw Error("its place in the archive cannot be read: {}", zip_strerror(zip_));
    if (stat.encryption_method != ZIP_EM_NONE)
      throw Error("it is encrypted; write the archive again without a password");
    if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
      throw Error(
          "it is compressed by method {}; np.savez (stored) and np.savez_compressed "
          "(deflated) write what can be read",
          stat.comp_method);
    // Deflate gives at most 1032 bytes for one.
    bool stored = stat.comp_method == ZIP_CM_STORE;
    if (stat.comp_size > file_size_ || (stored && stat.size != stat.comp_size) ||
        stat.size / 1032 > stat.comp_size)
      throw Error("it claims {} bytes, packed in {}, in an archive of {}: the archive is damaged",
                  stat.size, stat.comp_size, file_size_);
    return stat;
  }

  uint64_t file_size() const { return file_size_; }

 private:
  zip_t* zip_ = nullptr;
  uint64_t file_size_;
};

namespace {

// One entry, open for reading from its beginning.
class EntryStream {
 public:
  EntryStream(zip_t* zip, uint64_t index) : file_(zip_fopen_index(zip, index, 0)) {
    if (!file_) throw Error("it cannot be opened: {}; the archive is damaged", zip_strerror(zip));
  }
  ~EntryStream() { zip_fclose(file_); }
  EntryStream(const EntryStream&) = delete;
  EntryStream& operator=(const EntryStream&) = delete;

  size_t operator()(std::span<std::byte> target) {
    size_t done = 0;
    while (done < target.size()) {
      size_t piece = std::min<size_t>(target.size() - done, size_t{1} << 30);
      zip_int64_t n = zip_fread(file_, target.data() + done, piece);
      if (n < 0) fail();
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }
  // The checksum is compared when the end is met.
  void expect_end() {
    std::byte extra;
    if ((*this)({&extra, 1}) != 0) throw Error("it holds more bytes than the archive says");
  }
  void skip_to_end() {
    std::array<std::byte, 65536> buffer;
    while ((*this)(buffer) == buffer.size()) {
    }
  }

 private:
  [[noreturn]] void fail() {
    zip_error_t* error = zip_file_get_error(file_);
    int code = zip_error_code_zip(error);
    if (code == ZIP_ER_MEMORY) throw ResourceError("no memory to unpack an entry of an archive");
    throw Error("its bytes are damaged: {}; copy or write the archive again",
                code == ZIP_ER_CRC ? "the checksum does not match" : zip_error_strerror(error));
  }
  zip_file_t* file_;
};

// What an entry claims to hold may be a thousand times what there is of the file, and false. A
// claim that large is tried out before memory is taken for it.
void check_claim(zip_t* zip, uint64_t index, const zip_stat_t& stat) {
  constexpr uint64_t harmless = 1 << 20, usual_ratio = 32;
  if (stat.size <= harmless || stat.size / usual_ratio <= stat.comp_size) return;
  EntryStream(zip, index).skip_to_end();
}

}  // namespace

NpzFile::NpzFile(std::string path)
    : path_(std::move(path)), archive_(std::make_unique<Archive>(path_)) {
  zip_t* zip = archive_->zip();
  zip_int64_t count = zip_get_num_entries(zip, 0);
  uint64_t packed = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    auto place = static_cast<uint64_t>(i);
    const char* raw = zip_get_name(zip, place, 0);
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (!raw || zip_stat_index(zip, place, 0, &stat) != 0)
      throw Error("{}: the name of file {} cannot be read: {}; the archive is damaged", path_, i,
                  zip_strerror(zip));
    // Files that share their bytes make a small archive unpack to any size.
    if ((stat.valid & ZIP_STAT_COMP_SIZE) &&
        __builtin_add_overflow(packed, stat.comp_size, &packed))
      packed = UINT64_MAX;
    if (packed > archive_->file_size())
      throw Error("{}: its files claim more bytes than the archive has; it is damaged", path_);
    std::string_view name = raw;
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
    zip_stat_t stat = archive_->checked_stat(place);
    EntryStream stream(archive_->zip(), place);
    return read_npy_header(stream, stat.size);
  } catch (const Error& e) {
    throw Error("{}: entry '{}': {}", path_, printable(name), e.bare());
  }
}

Tensor NpzFile::read(std::string_view name, Context& context) const {
  uint64_t place = find_entry(*this, name, index_);
  std::lock_guard lock(mutex_);
  try {
    zip_stat_t stat = archive_->checked_stat(place);
    EntryStream stream(archive_->zip(), place);
    NpyHeader header = read_npy_header(stream, stat.size);
    check_claim(archive_->zip(), place, stat);
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

[[noreturn]] void throw_write_error(const std::string& path, zip_error_t* error) {
  int system_code = zip_error_code_system(error);
  if (zip_error_system_type(error) == ZIP_ET_SYS && system_code != 0)
    throw_file_error(path, "cannot be written", system_code);
  throw ResourceError("{}: cannot be written: {}", path, zip_error_strerror(error));
}

// libzip makes no archive without files: it removes it.
void write_empty_archive(const std::string& path, const std::string& temporary) {
  constexpr std::array<char, 22> end_record{'P', 'K', 5, 6};
  std::ofstream out(temporary, std::ios::binary);
  out.write(end_record.data(), end_record.size());
  out.close();
  if (!out) throw ResourceError("{}: cannot be written", path);
}

class ZipWriter {
 public:
  explicit ZipWriter(std::string path, const std::string& temporary) : path_(std::move(path)) {
    int code = 0;
    zip_ = zip_open(temporary.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!zip_) throw ResourceError("{}: cannot be written: {}", path_, zip_reason(code));
  }
  ~ZipWriter() {
    if (zip_) zip_discard(zip_);
  }
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  void add(const std::string& name, const Tensor& tensor) {
    const std::string& header = headers_.emplace_back(npy_header(tensor));
    const Tensor& t = tensors_.emplace_back(tensor.contiguous());
    // libzip reads the bytes when the archive is closed; nothing is copied.
    zip_buffer_fragment_t parts[2];
    parts[0].data = reinterpret_cast<zip_uint8_t*>(const_cast<char*>(header.data()));
    parts[0].length = header.size();
    parts[1].data = reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(t.data()));
    parts[1].length = static_cast<size_t>(t.numel()) * size_of(t.dtype());
    zip_source_t* source = zip_source_buffer_fragment(zip_, parts, parts[1].length ? 2 : 1, 0);
    if (!source) throw ResourceError("{}: cannot be written: {}", path_, zip_strerror(zip_));
    zip_int64_t place =
        zip_file_add(zip_, (name + std::string(suffix)).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (place < 0) {
      zip_source_free(source);
      if (zip_error_code_zip(zip_get_error(zip_)) == ZIP_ER_INVAL)
        throw Error("the name is not valid UTF-8");
      throw ResourceError("{}: cannot be written: {}", path_, zip_strerror(zip_));
    }
    constexpr zip_uint16_t first_day = 1 << 5 | 1;  // 1980-01-01, a zip archive's earliest
    auto at = static_cast<zip_uint64_t>(place);
    if (zip_set_file_compression(zip_, at, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(zip_, at, 0, first_day, 0) != 0)
      throw ResourceError("{}: cannot be written: {}", path_, zip_strerror(zip_));
  }
  void close() {
    if (zip_close(zip_) != 0) throw_write_error(path_, zip_get_error(zip_));
    zip_ = nullptr;
  }

 private:
  std::string path_;
  zip_t* zip_ = nullptr;
  std::deque<std::string> headers_;  // of which libzip holds addresses
  std::deque<Tensor> tensors_;
};

}  // namespace

void write_npz(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors) {
  check_names(path, tensors);
  AtomicFile file(path);
  if (tensors.empty()) {
    write_empty_archive(path, file.temporary());
  } else {
    ZipWriter writer(path, file.temporary());
    for (const auto& [name, tensor] : tensors) {
      try {
        writer.add(name, tensor);
      } catch (const Error& e) {
        throw Error("{}: entry '{}': {}", path, printable(name), e.bare());
      }
    }
    writer.close();
  }
  file.commit();
}

void write_npz(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Tensor>> list(tensors.begin(), tensors.end());
  write_npz(path, list);
}

}  // namespace gradus
