// Reads and writes tensors in .npy, .npz and .safetensors files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/context.h"
#include "gradus/tensor.h"

namespace gradus {
class ZipReader;
struct ZipMember;
}  // namespace gradus

#pragma GCC visibility push(default)

// NumPy's .npy: one array after a header (numpy.lib.format, versions 1.0, 2.0 and 3.0).
//
//   stored            read as        written as
//   f8 f4 f2          f64 f32 f16    <f8 <f4 <f2
//   V2, 'bfloat16'    bf16           <V2, as ml_dtypes writes it: NumPy reads two raw bytes per
//                                    element, which `.view(ml_dtypes.bfloat16)` converts
//   i8 i4 i1 u1 b1    i64 i32 i8 u8 bool (any byte except 0 is true)   <i8 <i4 |i1 |u1 |b1
//   i2                i16                                              <i2
//   u2 u4 u8          u16 u32 u64                                      <u2 <u4 <u8
//
// Both byte orders and both element orders are read. Files are written little-endian and row-major.
// Complex numbers, strings, dates, structures and Python objects are errors.

namespace gradus {

// The contents of a header, which were checked against the number of bytes after it.
struct NpyHeader {
  DType dtype = DType::f32;  // of the resulting tensor
  Sizes shape;
  bool fortran_order = false;  // of the file: the first index varies fastest
  bool big_endian = false;     // of the file
  char kind = 'f';             // of the file: f i u b V
  int item_size = 4;           // of the file, in bytes
};

// Reads bytes of a stream into the span. Returns their number, which is less than requested only at
// the end of the stream.
using ReadBytes = FunctionRef<size_t(std::span<std::byte>)>;

// Reads the header of a stream of `size` bytes. Throws Error if the header is malformed or not
// supported, or if `size` is not the size of its elements. It checks sizes before it allocates
// memory.
NpyHeader read_npy_header(ReadBytes read, uint64_t size);
// Reads the elements of a stream after its header, into a contiguous tensor in memory of the
// context.
Tensor read_npy_elements(const NpyHeader& header, ReadBytes read, Context& context);

// Read from and write to memory. The bytes need no alignment and are copied.
Tensor read_npy(std::span<const std::byte> bytes, Context& context = *Context::default_context());
std::vector<std::byte> write_npy(const Tensor& tensor);
// Returns the bytes before the elements of a tensor's file. Throws Error for an undefined tensor
// and for one on a device.
std::string npy_header(const Tensor& tensor);

// Read and write files. Messages of errors begin with the path. A file is written under a temporary
// name and renamed, so it is complete or unchanged.
Tensor load_npy(const std::string& path, Context& context = *Context::default_context());
void save_npy(const std::string& path, const Tensor& tensor);

// NumPy's .npz: a zip archive of .npy files, with the same dtypes.

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

// An open archive, from which single entries are read. The name of an entry is the name of its file
// without ".npy". Files without this ending are no entries. Names are not used as paths, so "../x"
// is an ordinary name. Stored and deflated files of any size (zip64) are read. Encrypted files are
// errors. Thread-safe.
//
// Throws Error, "path: entry 'x': what is wrong", for damaged archives. Checksums are checked.
// Memory for a tensor is allocated after its size was checked against the archive and the number of
// bytes in the file.
class NpzFile {
 public:
  explicit NpzFile(std::string path);
  ~NpzFile();
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  const std::string& path() const { return path_; }
  // The names of the entries in the order of the archive, each once.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  // Returns dtype and shape of an entry without reading its elements. Throws Error for an unknown
  // name.
  NpyHeader header(std::string_view name) const;
  // Returns an entry as a contiguous tensor in memory of the context. Throws Error for an unknown
  // name.
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  // Throws Error for an unknown name.
  const ZipMember& find(std::string_view name) const;

  std::string path_;
  std::unique_ptr<ZipReader> archive_;
  std::vector<std::string> names_;
  std::map<std::string, const ZipMember*, std::less<>> index_;  // to the archive's members
};

// Reads all entries. NpzFile reads single entries.
NamedTensors read_npz(const std::string& path, Context& context = *Context::default_context());

// Writes the tensors in this order, without compression, like np.savez. Equal tensors give equal
// files, which contain no time. A file is complete or unchanged. Names must be UTF-8, not empty,
// and unique.
void write_npz(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors);
void write_npz(const std::string& path, const NamedTensors& tensors);

// The .safetensors format: tensors by name, after a header of JSON. Specification:
// github.com/huggingface/safetensors, "Format".
//
//   stored           read as          written as
//   F64 F32 F16 BF16 f64 f32 f16 bf16 the same
//   I64 I32 I8 U8    i64 i32 i8 u8    the same
//   BOOL             bool (any byte except 0 is true)   BOOL
//   I16              i16              I16
//   U16 U32 U64      u16 u32 u64      the same
//
// Reading a tensor of another dtype (F8_E5M2, …) is an error.

// The header's entry of one tensor.
struct SafetensorsEntry {
  std::string dtype;  // the name in the file
  Sizes shape;
  // The range of its bytes, from the start of the file.
  uint64_t begin = 0, end = 0;
};

// The header of a file.
struct SafetensorsHeader {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;  // in the order of the header
  std::map<std::string, std::string, std::less<>> metadata;
};

// Reads a header and checks it against the size of the file: names are unique, ranges are inside
// the file and do not overlap, and the length of each range fits its shape. The memory that it
// takes is proportional to the header, which has at most 100 MB. Throws Error for other files.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file);

// An open file, which is mapped. A tensor is a view of the mapping if its elements have the memory
// format of its dtype and are aligned; otherwise it is a copy. Views read the file when their
// elements are read, and keep the mapping alive. Writing to a view (Tensor::mutable_data) does not
// change the file. If another process shortens the file in place, reading the missing bytes ends
// this process. Thread-safe. Throws Error, "path: tensor 'x': what is wrong".
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // The names of the tensors, in the order of the header.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& metadata() const {
    return header_.metadata;
  }
  // Both throw Error for an unknown name.
  const SafetensorsEntry& entry(std::string_view name) const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::string path_;
  Ref<Storage> storage_;  // the whole file
  SafetensorsHeader header_;
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> index_;  // from a name to the index of its entry
};

// Reads all tensors. Views keep the whole file mapped.
NamedTensors read_safetensors(const std::string& path,
                              Context& context = *Context::default_context());

// Writes the tensors: those with the widest elements first, so that all are aligned, otherwise in
// this order. Equal tensors give equal files. A file is complete or unchanged. Names must be UTF-8,
// not empty, not "__metadata__", and unique.
void write_safetensors(const std::string& path,
                       std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});
void write_safetensors(const std::string& path, const NamedTensors& tensors);

// Files of named tensors in either format.

// An open file: .safetensors if its name ends so, otherwise .npz. Throws like SafetensorsFile and
// NpzFile. Thread-safe.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);
  const std::string& path() const;
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  // The metadata of a .safetensors file. Empty for .npz.
  std::map<std::string, std::string, std::less<>> metadata() const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::unique_ptr<NpzFile> npz_;
  std::unique_ptr<SafetensorsFile> safetensors_;
};

// Writes a .safetensors file if the name ends so, otherwise an .npz file.
void write_tensors(const std::string& path,
                   std::span<const std::pair<std::string, Tensor>> tensors);

}  // namespace gradus

#pragma GCC visibility pop
