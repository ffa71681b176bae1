// Bytes as a file, for readers that take a path: in memory, one for the process.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace gradus {

inline const std::string& file_of(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0) std::abort();
  for (size_t at = 0; at < size;) {
    ssize_t n = pwrite(file, data + at, size - at, static_cast<off_t>(at));
    if (n <= 0) std::abort();
    at += static_cast<size_t>(n);
  }
  return path;
}

}  // namespace gradus
