// In the place of libzip, in builds without it: archives are read by their central directory, and
// written as long as 32 bits hold their numbers. The format is PKWARE's APPNOTE 6.3, its sections
// 4.3 and 4.5.
#include "tensor/zip_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <vector>

#include <zlib.h>

#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tensor/npy.h"

namespace gradus {

namespace {

constexpr uint32_t local_sign = 0x04034b50, central_sign = 0x02014b50, end_sign = 0x06054b50,
                   wide_end_sign = 0x06064b50, wide_locator_sign = 0x07064b50;
constexpr size_t local_bytes = 30, central_bytes = 46, end_bytes = 22, wide_end_bytes = 56,
                 wide_locator_bytes = 20, most_comment = 65535;
constexpr uint16_t wide_extra = 1, encrypted_flag = 1;

// The number of `bytes` little-endian bytes that begins there.
uint64_t number(std::string_view from, size_t at, size_t bytes) {
  uint64_t n = 0;
  for (size_t i = bytes; i-- > 0;) n = n << 8 | static_cast<uint8_t>(from[at + i]);
  return n;
}

[[noreturn]] void throw_damaged(std::string_view why) {
  throw Error("its bytes are damaged: {}; copy or write the archive again", why);
}

// A file, read at places that are checked.
class Bytes {
 public:
  explicit Bytes(const std::string& path)
      : path_(path), size_(regular_file_size(path)), in_(path, std::ios::binary) {
    if (!in_) throw_file_error(path, "cannot be read", errno);
  }
  uint64_t size() const { return size_; }
  bool holds(uint64_t at, uint64_t bytes) const { return at <= size_ && bytes <= size_ - at; }
  void read(uint64_t at, char* to, size_t bytes) const {
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(at));
    in_.read(to, static_cast<std::streamsize>(bytes));
    if (!in_) throw ResourceError("{}: cannot be read", path_);
  }
  std::string read(uint64_t at, size_t bytes) const {
    std::string text(bytes, '\0');
    read(at, text.data(), bytes);
    return text;
  }

 private:
  const std::string path_;
  const uint64_t size_;
  mutable std::ifstream in_;
};

struct Place {
  ZipEntry entry;
  uint64_t header = 0;  // where the local one lies
  uint32_t checksum = 0;
};

// A stored or deflated file of the archive.
class PlainStream final : public ZipStream {
 public:
  PlainStream(const Bytes& file, const Place& place) : file_(file), place_(place) {
    if (!file.holds(place.header, local_bytes)) throw_damaged("its place is not in the archive");
    const std::string head = file.read(place.header, local_bytes);
    next_ = place.header + local_bytes + number(head, 26, 2) + number(head, 28, 2);
    left_ = place.entry.packed;
    if (number(head, 0, 4) != local_sign || !file.holds(next_, left_))
      throw_damaged("its place is not in the archive");
    if (deflated() && inflateInit2(&inflate_, -MAX_WBITS) != Z_OK)
      throw ResourceError("no memory to unpack an entry of an archive");
  }
  ~PlainStream() override {
    if (deflated()) inflateEnd(&inflate_);
  }
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  size_t read(std::span<std::byte> target) override {
    size_t done = 0;
    while (done < target.size() && !ended_) {
      const std::span<std::byte> rest =
          target.subspan(done, std::min<size_t>(target.size() - done, size_t{1} << 30));
      const size_t n = deflated() ? unpack(rest) : copy(rest);
      checksum_ =
          crc32(checksum_, reinterpret_cast<const Bytef*>(rest.data()), static_cast<uInt>(n));
      given_ += n;
      done += n;
      if (ended_) check_end();
    }
    return done;
  }

 private:
  bool deflated() const {
    return place_.entry.method == static_cast<uint16_t>(ZipMethod::deflated);
  }
  size_t take(char* to, size_t most) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(most, left_));
    file_.read(next_, to, n);
    next_ += n;
    left_ -= n;
    return n;
  }
  size_t copy(std::span<std::byte> target) {
    ended_ = left_ == 0;
    return ended_ ? 0 : take(reinterpret_cast<char*>(target.data()), target.size());
  }
  size_t unpack(std::span<std::byte> target) {
    inflate_.next_out = reinterpret_cast<Bytef*>(target.data());
    inflate_.avail_out = static_cast<uInt>(target.size());
    if (inflate_.avail_in == 0) {
      inflate_.next_in = reinterpret_cast<Bytef*>(packed_.data());
      inflate_.avail_in = static_cast<uInt>(take(packed_.data(), packed_.size()));
    }
    const int code = inflate(&inflate_, Z_NO_FLUSH);
    const size_t n = target.size() - inflate_.avail_out;
    if (code == Z_MEM_ERROR) throw ResourceError("no memory to unpack an entry of an archive");
    ended_ = code == Z_STREAM_END;
    if (code != Z_OK && !ended_) throw_damaged("they cannot be unpacked");
    return n;
  }
  void check_end() const {
    if (given_ != place_.entry.size) throw_damaged("there are more or fewer than the archive says");
    if (checksum_ != place_.checksum) throw_damaged("the checksum does not match");
  }

  const Bytes& file_;
  const Place& place_;
  uint64_t next_ = 0, left_ = 0, given_ = 0;
  uLong checksum_ = crc32(0, nullptr, 0);
  bool ended_ = false;
  z_stream inflate_{};
  std::array<char, 65536> packed_;
};

class PlainFile final : public ZipFile {
 public:
  explicit PlainFile(const std::string& path) : file_(path) {
    if (!read_directory())
      throw Error("{}: is no .npz file (a zip archive), or is cut short; write it with np.savez",
                  path);
  }
  uint64_t entries() const override { return places_.size(); }
  ZipEntry entry(uint64_t place) const override { return places_[place].entry; }
  std::unique_ptr<ZipStream> stream(uint64_t place) const override {
    return std::make_unique<PlainStream>(file_, places_[place]);
  }

 private:
  struct Directory {
    uint64_t at = 0, bytes = 0, entries = 0;
  };

  bool read_directory() {
    Directory d;
    if (!find_directory(d) || !file_.holds(d.at, d.bytes)) return false;
    const std::string text = file_.read(d.at, static_cast<size_t>(d.bytes));
    size_t at = 0;
    while (places_.size() < d.entries)
      if (!read_place(text, at)) return false;
    return at == text.size();
  }

  // The last record of the file, which only a comment may follow.
  bool find_directory(Directory& d) const {
    const uint64_t most = std::min<uint64_t>(file_.size(), end_bytes + most_comment);
    const std::string tail = file_.read(file_.size() - most, static_cast<size_t>(most));
    for (size_t at = tail.size() < end_bytes ? 0 : tail.size() - end_bytes + 1; at-- > 0;) {
      if (number(tail, at, 4) != end_sign) continue;
      if (at + end_bytes + number(tail, at + 20, 2) != tail.size()) continue;
      if (number(tail, at + 4, 2) != 0 || number(tail, at + 6, 2) != 0) return false;  // one disk
      d = {.at = number(tail, at + 16, 4),
           .bytes = number(tail, at + 12, 4),
           .entries = number(tail, at + 10, 2)};
      return find_wide(file_.size() - most + at, d);
    }
    return false;
  }

  // Where a zip64 record stands before the end, it counts.
  bool find_wide(uint64_t end, Directory& d) const {
    if (end < wide_locator_bytes) return true;
    const std::string locator = file_.read(end - wide_locator_bytes, wide_locator_bytes);
    if (number(locator, 0, 4) != wide_locator_sign) return true;
    const uint64_t at = number(locator, 8, 8);
    if (!file_.holds(at, wide_end_bytes)) return false;
    const std::string wide = file_.read(at, wide_end_bytes);
    if (number(wide, 0, 4) != wide_end_sign) return false;
    d = {.at = number(wide, 48, 8), .bytes = number(wide, 40, 8), .entries = number(wide, 32, 8)};
    return true;
  }

  bool read_place(std::string_view text, size_t& at) {
    if (text.size() - at < central_bytes || number(text, at, 4) != central_sign) return false;
    const size_t name = number(text, at + 28, 2), extra = number(text, at + 30, 2),
                 comment = number(text, at + 32, 2);
    if (text.size() - at - central_bytes < name + extra + comment) return false;
    Place p{.entry = {.name = std::string(text.substr(at + central_bytes, name)),
                      .size = number(text, at + 24, 4),
                      .packed = number(text, at + 20, 4),
                      .method = static_cast<uint16_t>(number(text, at + 10, 2)),
                      .encrypted = (number(text, at + 8, 2) & encrypted_flag) != 0},
            .header = number(text, at + 42, 4),
            .checksum = static_cast<uint32_t>(number(text, at + 16, 4))};
    if (!widen(p, text.substr(at + central_bytes + name, extra))) return false;
    places_.push_back(std::move(p));
    at += central_bytes + name + extra + comment;
    return true;
  }

  // Numbers that 32 bits do not hold stand in an extra field, in this order.
  static bool widen(Place& p, std::string_view extras) {
    uint64_t* wide[3];
    size_t n = 0;
    for (uint64_t* number : {&p.entry.size, &p.entry.packed, &p.header})
      if (*number == UINT32_MAX) wide[n++] = number;
    if (n == 0) return true;
    while (extras.size() >= 4) {
      const auto kind = number(extras, 0, 2);
      const size_t bytes = number(extras, 2, 2);
      extras.remove_prefix(4);
      if (bytes > extras.size()) return false;
      if (kind == wide_extra) {
        if (bytes < 8 * n) return false;
        for (size_t i = 0; i < n; ++i) *wide[i] = number(extras, 8 * i, 8);
        return true;
      }
      extras.remove_prefix(bytes);
    }
    return true;
  }

  const Bytes file_;
  std::vector<Place> places_;
};

void append(std::string& to, uint64_t n, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to += static_cast<char>(n >> (8 * i));
}

// Stored files, one after the other, then what stands of them in the directory.
class PlainWriter final : public ZipWriter {
 public:
  PlainWriter(const std::string& path, const std::string& file)
      : path_(path), out_(file, std::ios::binary) {
    if (!out_) throw_file_error(path, "cannot be written", errno);
  }

  void add(const std::string& name, const Tensor& tensor) override {
    const std::string header = npy_header(tensor), file = name + ".npy";
    for (size_t at = 0; at < name.size();) {
      const size_t length = utf8_length(name, at);
      if (length == 0) throw Error("the name is not valid UTF-8");
      at += length;
    }
    const Tensor t = tensor.contiguous();
    const std::string_view elements(reinterpret_cast<const char*>(t.data()),
                                    static_cast<size_t>(t.numel()) * size_of(t.dtype()));
    if (at_ + elements.size() + header.size() + local_bytes + file.size() > UINT32_MAX ||
        entries_ == UINT16_MAX)
      throw Error("the archive grows beyond 4 GiB or 65535 files, and {}",
                  why_missing(Part::libzip));
    uLong checksum = crc32(0, nullptr, 0);
    for (std::string_view bytes : {std::string_view(header), elements})
      checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    // What both records say: version 2.0, names in UTF-8, stored, the first day there is.
    std::string facts;
    append(facts, 20, 2);
    append(facts, 1 << 11, 2);
    append(facts, 0, 4);
    append(facts, 1 << 5 | 1, 2);
    append(facts, checksum, 4);
    for (int i = 0; i < 2; ++i) append(facts, header.size() + elements.size(), 4);
    append(facts, file.size(), 2);
    append(facts, 0, 2);
    append(directory_, central_sign, 4);
    append(directory_, 20, 2);
    directory_ += facts;
    append(directory_, 0, 10);  // no comment, the first disk, no attributes
    append(directory_, at_, 4);
    directory_ += file;
    ++entries_;
    std::string local;
    append(local, local_sign, 4);
    for (std::string_view bytes : {std::string_view(local), std::string_view(facts),
                                   std::string_view(file), std::string_view(header), elements})
      put(bytes);
  }

  void close() override {
    std::string end;
    append(end, end_sign, 4);
    append(end, 0, 4);
    for (int i = 0; i < 2; ++i) append(end, entries_, 2);
    append(end, directory_.size(), 4);
    append(end, at_, 4);
    append(end, 0, 2);
    put(directory_);
    put(end);
    out_.close();
    if (!out_) throw_file_error(path_, "cannot be written", errno);
  }

 private:
  void put(std::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out_) throw_file_error(path_, "cannot be written", errno);
    at_ += bytes.size();
  }

  const std::string path_;
  std::ofstream out_;
  std::string directory_;
  uint64_t at_ = 0, entries_ = 0;
};

}  // namespace

std::unique_ptr<ZipFile> ZipFile::open(const std::string& path) {
  return std::make_unique<PlainFile>(path);
}

std::unique_ptr<ZipWriter> ZipWriter::open(const std::string& path, const std::string& file) {
  return std::make_unique<PlainWriter>(path, file);
}

}  // namespace gradus
