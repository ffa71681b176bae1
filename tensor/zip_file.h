// Zip archives as npz.cpp reads and writes them: by libzip, or in builds without it by a reader of
// our own (absent/zip_file.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace gradus {

enum class ZipMethod : uint16_t { stored = 0, deflated = 8 };

// What an archive says of a file in it. Nothing of it is certain.
struct ZipEntry {
  std::string name;  // any bytes
  uint64_t size = 0, packed = 0;
  uint16_t method = 0;  // a ZipMethod that is read, or any other number
  bool encrypted = false;
};

// The bytes of a file of an archive, from its beginning.
class ZipStream {
 public:
  virtual ~ZipStream() = default;
  // Fills the target as far as there are bytes, and says how many there were. Throws Error for
  // damaged ones; the checksum is compared when the end is met.
  virtual size_t read(std::span<std::byte> target) = 0;
  size_t operator()(std::span<std::byte> target) { return read(target); }
};

// The reading end. Not thread-safe; streams do not outlive it.
class ZipFile {
 public:
  // Throws Error, beginning with the path, for what is no archive or a damaged one, ResourceError
  // for what cannot be read.
  static std::unique_ptr<ZipFile> open(const std::string& path);
  virtual ~ZipFile() = default;
  virtual uint64_t entries() const = 0;
  // Throws Error, with the reason alone, where the archive does not say it all.
  virtual ZipEntry entry(uint64_t place) const = 0;
  // Of a stored or deflated entry that is not encrypted.
  virtual std::unique_ptr<ZipStream> stream(uint64_t place) const = 0;
};

// The writing end: .npy files, stored. Not thread-safe.
class ZipWriter {
 public:
  // `path` is for messages, what is written is `file`. Throws ResourceError for what cannot be
  // written, as the others do.
  static std::unique_ptr<ZipWriter> open(const std::string& path, const std::string& file);
  virtual ~ZipWriter() = default;
  // Throws Error, with the reason alone, for a name or a size that the archive cannot have.
  virtual void add(const std::string& name, const Tensor& tensor) = 0;
  // Until then there is no archive.
  virtual void close() = 0;
};

}  // namespace gradus
