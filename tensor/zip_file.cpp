#include "tensor/zip_file.h"

#include <algorithm>
#include <deque>

#include <zip.h>

#include "base/file.h"
#include "base/text.h"
#include "tensor/npy.h"

namespace gradus {

namespace {

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

class LibzipStream final : public ZipStream {
 public:
  LibzipStream(zip_t* zip, uint64_t place) : file_(zip_fopen_index(zip, place, 0)) {
    if (!file_) throw Error("it cannot be opened: {}; the archive is damaged", zip_strerror(zip));
  }
  ~LibzipStream() override { zip_fclose(file_); }
  LibzipStream(const LibzipStream&) = delete;
  LibzipStream& operator=(const LibzipStream&) = delete;

  size_t read(std::span<std::byte> target) override {
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

class LibzipFile final : public ZipFile {
 public:
  explicit LibzipFile(const std::string& path) {
    int code = 0;
    zip_ = zip_open(path.c_str(), ZIP_RDONLY, &code);
    if (!zip_) throw_open_error(path, code, errno);
  }
  ~LibzipFile() override { zip_discard(zip_); }
  LibzipFile(const LibzipFile&) = delete;
  LibzipFile& operator=(const LibzipFile&) = delete;

  uint64_t entries() const override { return static_cast<uint64_t>(zip_get_num_entries(zip_, 0)); }
  ZipEntry entry(uint64_t place) const override {
    constexpr zip_uint64_t needed =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    const char* name = zip_get_name(zip_, place, 0);
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (!name || zip_stat_index(zip_, place, 0, &stat) != 0 || (stat.valid & needed) != needed)
      throw Error("its place in the archive cannot be read: {}", zip_strerror(zip_));
    return {.name = name,
            .size = stat.size,
            .packed = stat.comp_size,
            .method = stat.comp_method,
            .encrypted = stat.encryption_method != ZIP_EM_NONE};
  }
  std::unique_ptr<ZipStream> stream(uint64_t place) const override {
    return std::make_unique<LibzipStream>(zip_, place);
  }

 private:
  zip_t* zip_ = nullptr;
};

[[noreturn]] void throw_write_error(const std::string& path, zip_error_t* error) {
  int system_code = zip_error_code_system(error);
  if (zip_error_system_type(error) == ZIP_ET_SYS && system_code != 0)
    throw_file_error(path, "cannot be written", system_code);
  throw ResourceError("{}: cannot be written: {}", path, zip_error_strerror(error));
}

class LibzipWriter final : public ZipWriter {
 public:
  LibzipWriter(std::string path, const std::string& temporary) : path_(std::move(path)) {
    int code = 0;
    zip_ = zip_open(temporary.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!zip_) throw ResourceError("{}: cannot be written: {}", path_, zip_reason(code));
  }
  ~LibzipWriter() override {
    if (zip_) zip_discard(zip_);
  }
  LibzipWriter(const LibzipWriter&) = delete;
  LibzipWriter& operator=(const LibzipWriter&) = delete;

  void add(const std::string& name, const Tensor& tensor) override {
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
    zip_int64_t place = zip_file_add(zip_, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
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
  void close() override {
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

std::unique_ptr<ZipFile> ZipFile::open(const std::string& path) {
  return std::make_unique<LibzipFile>(path);
}

std::unique_ptr<ZipWriter> ZipWriter::open(const std::string& path, const std::string& file) {
  return std::make_unique<LibzipWriter>(path, file);
}

}  // namespace gradus
