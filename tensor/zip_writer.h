// Writes zip archives of stored members, of any size (ZIP64).
#pragma once

#include <fstream>
#include <span>
#include <string_view>

#include "tensor/zip_format.h"

namespace gradus {

// The record before a member's bytes, its entry in the directory, and what follows the directory
// that begins at `at`. Names are UTF-8. 64-bit numbers are written where 32 bits do not hold them.
std::string zip_local_header(const ZipMember& member);
std::string zip_directory_entry(const ZipMember& member);
std::string zip_directory_end(uint64_t entries, uint64_t at, uint64_t bytes);

// Not thread-safe. Throws ResourceError for what cannot be written.
class ZipWriter {
 public:
  // `path` is for messages, what is written is `file`.
  ZipWriter(std::string path, const std::string& file);

  // A stored member whose bytes are the parts, one after the other. Equal members give equal bytes:
  // no time of day goes in. Throws Error, with the reason alone, for a name that is not UTF-8 or
  // too long.
  void add(std::string name, std::span<const std::span<const std::byte>> parts);
  // Until then there is no archive.
  void close();

 private:
  void put(std::string_view bytes);

  const std::string path_;
  std::ofstream out_;
  std::string directory_;
  uint64_t at_ = 0, entries_ = 0;
};

}  // namespace gradus
