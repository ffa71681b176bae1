// A file's bytes as memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gradus {

// A regular file, mapped: pages are read when they are looked at. What is written to the memory
// stays in this process. The file may be replaced by another one (a rename) meanwhile; one that is
// made shorter in place takes the process down when a missing page is looked at, as any mapping.
class MappedFile {
 public:
  // Throws Error and ResourceError as regular_file_size does.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace gradus
