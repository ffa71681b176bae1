// NumPy's .npz: a zip archive of .npy files. See npy.h for the dtypes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/npy.h"

namespace gradus {
class ZipReader;
struct ZipMember;
}  // namespace gradus

#pragma GCC visibility push(default)

namespace gradus {

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

// An open archive, of which entries are read one at a time. An entry's name is its file's name
// without ".npy"; files without that ending are no entries. Names are never used as paths, so
// "../x" is a name like any other. Stored and deflated files are read, of any size (zip64);
// encrypted ones are refused. Thread-safe.
//
// Throws Error, "path: entry 'x': what is wrong", for everything that is damaged: checksums are
// checked, and memory is taken for a tensor only after its size agreed with the archive's and with
// the number of bytes that are really there.
class NpzFile {
 public:
  explicit NpzFile(std::string path);
  ~NpzFile();
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  const std::string& path() const { return path_; }
  // In the archive's order, each once.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  // Dtype and shape of an entry, without reading its elements. Throws Error for an unknown name.
  NpyHeader header(std::string_view name) const;
  // A contiguous tensor with memory of the context's. Throws Error for an unknown name.
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  // Throws Error for an unknown name.
  const ZipMember& find(std::string_view name) const;

  std::string path_;
  std::unique_ptr<ZipReader> archive_;
  std::vector<std::string> names_;
  std::map<std::string, const ZipMember*, std::less<>> index_;  // of the archive's members
};

// All entries. Prefer NpzFile where some are enough.
NamedTensors read_npz(const std::string& path, Context& context = *Context::default_context());

// Writes the tensors in this order, stored as np.savez does; equal tensors give equal bytes, no
// time of day goes in. Atomic (see AtomicFile). Names are UTF-8, not empty and each given once.
void write_npz(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors);
void write_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace gradus

#pragma GCC visibility pop
