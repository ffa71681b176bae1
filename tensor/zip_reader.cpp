#include "tensor/zip_reader.h"

#include <algorithm>
#include <array>

#include <zlib.h>

#include "gradus/error.h"
#include "gradus/messages.h"

namespace gradus {

using namespace zip;

namespace {

constexpr size_t most_comment = 65535;
// Deflate gives at most 1032 bytes for one.
constexpr uint64_t most_ratio = 1032;
constexpr std::string_view local_mark("PK\3\4", 4), central_mark("PK\1\2", 4);
// zlib counts in 32 bits.
constexpr size_t most_at_once = size_t{1} << 30;

[[noreturn]] void throw_damaged(std::string_view why) {
  throw Error("its bytes are damaged: {}; copy or write the archive again", why);
}

// The number of `bytes` little-endian bytes that begins there.
uint64_t number(std::string_view from, size_t at, size_t bytes) {
  uint64_t n = 0;
  for (size_t i = bytes; i-- > 0;) n = n << 8 | static_cast<uint8_t>(from[at + i]);
  return n;
}

// Of a range that the file holds.
std::string text_at(const InputFile& file, uint64_t at, uint64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(at, std::as_writable_bytes(std::span(text)));
  return text;
}

// Numbers that 32 bits do not hold stand in an extra field, in this order.
bool read_wide_numbers(ZipMember& m, std::string_view extras) {
  std::array<uint64_t*, 3> wide;
  size_t n = 0;
  for (uint64_t* number : {&m.size, &m.packed, &m.header})
    if (*number == UINT32_MAX) wide[n++] = number;
  while (n > 0 && extras.size() >= 4) {
    const uint64_t kind = number(extras, 0, 2);
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

// Takes the first entry off the directory's text.
bool read_member(std::string_view& text, ZipMember& m) {
  if (text.size() < central_bytes || number(text, 0, 4) != central_sign) return false;
  const size_t name = number(text, 28, 2), extra = number(text, 30, 2),
               comment = number(text, 32, 2);
  if (text.size() - central_bytes < name + extra + comment) return false;
  m = {.name = std::string(text.substr(central_bytes, name)),
       .size = number(text, 24, 4),
       .packed = number(text, 20, 4),
       .header = number(text, 42, 4),
       .checksum = static_cast<uint32_t>(number(text, 16, 4)),
       .method = static_cast<uint16_t>(number(text, 10, 2)),
       .encrypted = (number(text, 8, 2) & encrypted_flag) != 0};
  const std::string_view extras = text.substr(central_bytes + name, extra);
  text.remove_prefix(central_bytes + name + extra + comment);
  return read_wide_numbers(m, extras);
}

}  // namespace

struct ZipReader::Directory {
  uint64_t at = 0, bytes = 0, entries = 0;
};

ZipReader::ZipReader(const std::string& path, ZipKind kind) : file_(path) { open(kind); }

ZipReader::ZipReader(std::string name, std::span<const std::byte> bytes, ZipKind kind)
    : file_(std::move(name), bytes) {
  open(kind);
}

void ZipReader::open(ZipKind kind) {
  const std::string& path = file_.path();
  Directory directory;
  if (!find_directory(directory))
    throw Error("{}: is no {}, or is cut short{}; write it with {}", path, kind.name, last_begun(),
                kind.writer);
  if (!read_directory(directory))
    throw Error("{}: is a damaged {}: its directory cannot be read; copy or write it again", path,
                kind.name);
  uint64_t packed = 0;
  for (const ZipMember& m : members_) {
    // Files that share their bytes make a small archive unpack to any size.
    if (__builtin_add_overflow(packed, m.packed, &packed)) packed = UINT64_MAX;
    if (packed > file_.size())
      throw Error("{}: its files claim more bytes than the archive has; it is damaged", path);
  }
}

// In words, the last member that begins in a file without a directory; empty where none does, or
// where all are there. It is searched for, since writers that cannot go back leave a member's size
// to what follows it.
std::string ZipReader::last_begun() const {
  constexpr uint64_t chunk = 1 << 20, longest_name = 4096;
  std::string last;
  for (uint64_t from = 0; from < file_.size(); from += chunk) {
    const uint64_t most = chunk + local_bytes + longest_name;
    const std::string text = text_at(file_, from, std::min(most, file_.size() - from));
    const std::string_view view = text;
    if (from == 0 && !view.starts_with(local_mark)) return {};
    if (view.find(central_mark) != view.npos) return {};
    for (size_t at = view.find(local_mark); at < chunk; at = view.find(local_mark, at + 1)) {
      if (view.size() - at < local_bytes) break;
      const uint64_t name = number(view, at + 26, 2);
      if (name == 0 || name > longest_name || name > view.size() - at - local_bytes) continue;
      last = view.substr(at + local_bytes, name);
    }
  }
  if (last.empty()) return {};
  return fmt::format(": it ends after {} bytes, in or behind its member '{}'", file_.size(),
                     printable(last));
}

// The last record of the file, which only a comment may follow.
bool ZipReader::find_directory(Directory& d) const {
  const uint64_t most = std::min<uint64_t>(file_.size(), end_bytes + most_comment);
  const std::string tail = text_at(file_, file_.size() - most, most);
  for (size_t at = tail.size() < end_bytes ? 0 : tail.size() - end_bytes + 1; at-- > 0;) {
    if (number(tail, at, 4) != end_sign) continue;
    if (at + end_bytes + number(tail, at + 20, 2) != tail.size()) continue;
    // An archive is one file, not a part of several.
    if (number(tail, at + 4, 2) != 0 || number(tail, at + 6, 2) != 0 ||
        number(tail, at + 8, 2) != number(tail, at + 10, 2))
      return false;
    d = {.at = number(tail, at + 16, 4),
         .bytes = number(tail, at + 12, 4),
         .entries = number(tail, at + 10, 2)};
    return find_wide_directory(file_.size() - most + at, d);
  }
  return false;
}

// Where a record with 64-bit numbers stands before the end, it counts.
bool ZipReader::find_wide_directory(uint64_t end, Directory& d) const {
  if (end < wide_locator_bytes) return true;
  const std::string locator = text_at(file_, end - wide_locator_bytes, wide_locator_bytes);
  if (number(locator, 0, 4) != wide_locator_sign) return true;
  const uint64_t at = number(locator, 8, 8);
  if (!file_.holds(at, wide_end_bytes)) return false;
  const std::string wide = text_at(file_, at, wide_end_bytes);
  if (number(wide, 0, 4) != wide_end_sign) return false;
  if (number(wide, 16, 4) != 0 || number(wide, 20, 4) != 0 ||
      number(wide, 24, 8) != number(wide, 32, 8))
    return false;
  d = {.at = number(wide, 48, 8), .bytes = number(wide, 40, 8), .entries = number(wide, 32, 8)};
  return true;
}

bool ZipReader::read_directory(const Directory& d) {
  if (!file_.holds(d.at, d.bytes) || d.entries > d.bytes / central_bytes) return false;
  const std::string text = text_at(file_, d.at, d.bytes);
  std::string_view rest = text;
  members_.resize(static_cast<size_t>(d.entries));
  for (ZipMember& m : members_)
    if (!read_member(rest, m)) return false;
  return rest.empty();
}

void ZipReader::check(const ZipMember& m) const {
  if (m.encrypted) throw Error("it is encrypted; write the archive again without a password");
  if (!m.is(ZipMethod::stored) && !m.is(ZipMethod::deflated))
    throw Error("it is compressed by method {}; members that are stored or deflated can be read",
                m.method);
  if (m.packed > file_.size() || (m.is(ZipMethod::stored) && m.size != m.packed) ||
      m.size / most_ratio > m.packed)
    throw Error("it claims {} bytes, packed in {}, in an archive of {}: the archive is damaged",
                m.size, m.packed, file_.size());
}

void ZipReader::check_claim(const ZipMember& m) const {
  constexpr uint64_t harmless = 1 << 20, usual_ratio = 32;
  if (m.size <= harmless || m.size / usual_ratio <= m.packed) return;
  ZipStream stream(*this, m);
  std::array<std::byte, 65536> buffer;
  while (stream.read(buffer) == buffer.size()) {
  }
}

uint64_t ZipReader::place(const ZipMember& m) const {
  if (file_.holds(m.header, local_bytes)) {
    const std::string head = text_at(file_, m.header, local_bytes);
    // The name and the extra field here may be others than those in the directory.
    const uint64_t at = m.header + local_bytes + number(head, 26, 2) + number(head, 28, 2);
    if (number(head, 0, 4) == local_sign && file_.holds(at, m.packed)) return at;
  }
  throw_damaged("its place is not in the archive");
}

void ZipReader::read(const ZipMember& m, uint64_t from, std::span<std::byte> target) const {
  check(m);
  if (!m.is(ZipMethod::stored)) throw Error("it is compressed; only a stored member has ranges");
  if (from > m.size || target.size() > m.size - from)
    throw Error("bytes {} to {} are asked for, and it has {}", from, from + target.size(), m.size);
  file_.read(place(m) + from, target);
}

std::vector<std::byte> ZipReader::contents(const ZipMember& m) const {
  check(m);
  check_claim(m);
  ZipStream stream(*this, m);
  std::vector<std::byte> bytes(static_cast<size_t>(m.size));
  if (stream.read(bytes) != bytes.size()) throw_damaged("there are fewer than the archive says");
  stream.expect_end();
  return bytes;
}

struct ZipStream::Inflate {
  z_stream stream{};
  std::array<std::byte, 65536> packed;

  Inflate() {
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
      throw ResourceError("no memory to unpack an entry of an archive");
  }
  ~Inflate() { inflateEnd(&stream); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
};

ZipStream::ZipStream(const ZipReader& archive, const ZipMember& member)
    : file_(archive.file()), member_(member), next_(archive.place(member)), left_(member.packed) {
  if (member.is(ZipMethod::deflated)) inflate_ = std::make_unique<Inflate>();
}

ZipStream::~ZipStream() = default;

size_t ZipStream::read(std::span<std::byte> target) {
  size_t done = 0;
  while (done < target.size() && !ended_) {
    const std::span<std::byte> rest =
        target.subspan(done, std::min(target.size() - done, most_at_once));
    const size_t n = inflate_ ? unpack(rest) : copy(rest);
    checksum_ =
        static_cast<uint32_t>(crc32_z(checksum_, reinterpret_cast<const Bytef*>(rest.data()), n));
    given_ += n;
    done += n;
    if (ended_) check_end();
  }
  return done;
}

void ZipStream::expect_end() {
  std::byte extra;
  if (read({&extra, 1}) != 0) throw Error("it holds more bytes than the archive says");
}

size_t ZipStream::take(std::span<std::byte> target) {
  const auto n = static_cast<size_t>(std::min<uint64_t>(target.size(), left_));
  file_.read(next_, target.first(n));
  next_ += n;
  left_ -= n;
  return n;
}

size_t ZipStream::copy(std::span<std::byte> target) {
  ended_ = left_ == 0;
  return take(target);
}

size_t ZipStream::unpack(std::span<std::byte> target) {
  z_stream& z = inflate_->stream;
  z.next_out = reinterpret_cast<Bytef*>(target.data());
  z.avail_out = static_cast<uInt>(target.size());
  if (z.avail_in == 0) {
    z.next_in = reinterpret_cast<Bytef*>(inflate_->packed.data());
    z.avail_in = static_cast<uInt>(take(inflate_->packed));
  }
  const int code = inflate(&z, Z_NO_FLUSH);
  if (code == Z_MEM_ERROR) throw ResourceError("no memory to unpack an entry of an archive");
  ended_ = code == Z_STREAM_END;
  if (code != Z_OK && !ended_) throw_damaged("they cannot be unpacked");
  return target.size() - z.avail_out;
}

void ZipStream::check_end() const {
  if (given_ != member_.size) throw_damaged("there are more or fewer than the archive says");
  if (checksum_ != member_.checksum) throw_damaged("the checksum does not match");
}

}  // namespace gradus
