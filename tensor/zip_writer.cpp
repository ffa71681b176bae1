#include "tensor/zip_writer.h"

#include <algorithm>
#include <cerrno>

#include <zlib.h>

#include "base/file.h"
#include "gradus/error.h"
#include "gradus/messages.h"

namespace gradus {

using namespace zip;

namespace {

constexpr uint16_t plain_version = 20, wide_version = 45;  // of the format, times ten
constexpr uint16_t first_day = 1 << 5 | 1;                 // 1980-01-01, an archive's earliest

// Where it stands, 64 bits follow elsewhere.
constexpr uint64_t elsewhere = UINT32_MAX;
bool is_wide(uint64_t n) { return n >= elsewhere; }

void append(std::string& to, uint64_t n, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to += static_cast<char>(n >> (8 * i));
}

// The extra field with these 64-bit numbers; nothing for none.
std::string wide_field(std::string_view numbers) {
  std::string field;
  if (numbers.empty()) return field;
  append(field, wide_extra, 2);
  append(field, numbers.size(), 2);
  return field.append(numbers);
}

// What both records of a member say, from the version to the lengths of name and extra field.
void append_facts(std::string& to, const ZipMember& m, uint64_t packed, uint64_t size,
                  uint16_t version, size_t extra) {
  append(to, version, 2);
  append(to, utf8_flag, 2);
  append(to, m.method, 2);
  append(to, 0, 2);
  append(to, first_day, 2);
  append(to, m.checksum, 4);
  append(to, packed, 4);
  append(to, size, 4);
  append(to, m.name.size(), 2);
  append(to, extra, 2);
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string zip_local_header(const ZipMember& m) {
  // Both sizes or none.
  const bool wide = is_wide(m.size) || is_wide(m.packed);
  std::string record, numbers;
  if (wide)
    for (uint64_t n : {m.size, m.packed}) append(numbers, n, 8);
  const std::string extra = wide_field(numbers);
  append(record, local_sign, 4);
  append_facts(record, m, wide ? elsewhere : m.packed, wide ? elsewhere : m.size,
               wide ? wide_version : plain_version, extra.size());
  return record + m.name + extra;
}

std::string zip_directory_entry(const ZipMember& m) {
  std::string record, numbers;
  for (uint64_t n : {m.size, m.packed, m.header})
    if (is_wide(n)) append(numbers, n, 8);
  const std::string extra = wide_field(numbers);
  const uint16_t version = extra.empty() ? plain_version : wide_version;
  append(record, central_sign, 4);
  append(record, version, 2);
  append_facts(record, m, std::min(m.packed, elsewhere), std::min(m.size, elsewhere), version,
               extra.size());
  for (size_t bytes : {2, 2, 2, 4}) append(record, 0, bytes);  // comment, disk, attributes: none
  append(record, std::min(m.header, elsewhere), 4);
  return record + m.name + extra;
}

std::string zip_directory_end(uint64_t entries, uint64_t at, uint64_t bytes) {
  std::string record;
  if (entries >= UINT16_MAX || is_wide(at) || is_wide(bytes)) {
    append(record, wide_end_sign, 4);
    append(record, wide_end_bytes - 12, 8);  // of what follows
    append(record, wide_version, 2);
    append(record, wide_version, 2);
    append(record, 0, 8);  // the first disk
    for (int i = 0; i < 2; ++i) append(record, entries, 8);
    append(record, bytes, 8);
    append(record, at, 8);
    append(record, wide_locator_sign, 4);
    append(record, 0, 4);
    append(record, at + bytes, 8);  // where the record before begins
    append(record, 1, 4);           // disk in all
  }
  append(record, end_sign, 4);
  append(record, 0, 4);
  for (int i = 0; i < 2; ++i) append(record, std::min<uint64_t>(entries, UINT16_MAX), 2);
  append(record, std::min(bytes, elsewhere), 4);
  append(record, std::min(at, elsewhere), 4);
  append(record, 0, 2);  // no comment
  return record;
}

ZipWriter::ZipWriter(std::string path, const std::string& file)
    : path_(std::move(path)), out_(file, std::ios::binary) {
  if (!out_) throw_file_error(path_, "cannot be written", errno);
}

void ZipWriter::add(std::string name, std::span<const std::span<const std::byte>> parts) {
  for (size_t at = 0; at < name.size();) {
    const size_t length = utf8_length(name, at);
    if (length == 0) throw Error("the name is not valid UTF-8");
    at += length;
  }
  if (name.size() > UINT16_MAX) throw Error("the name has {} bytes, 65535 at most", name.size());
  ZipMember m{.name = std::move(name), .header = at_};
  for (std::span<const std::byte> part : parts) {
    m.size += part.size();
    m.checksum = static_cast<uint32_t>(
        crc32_z(m.checksum, reinterpret_cast<const Bytef*>(part.data()), part.size()));
  }
  m.packed = m.size;
  put(zip_local_header(m));
  for (std::span<const std::byte> part : parts) put(text_of(part));
  directory_ += zip_directory_entry(m);
  ++entries_;
}

void ZipWriter::close() {
  const uint64_t at = at_;
  put(directory_);
  put(zip_directory_end(entries_, at, directory_.size()));
  out_.close();
  if (!out_) throw_file_error(path_, "cannot be written", errno);
}

void ZipWriter::put(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out_) throw_file_error(path_, "cannot be written", errno);
  at_ += bytes.size();
}

}  // namespace gradus
