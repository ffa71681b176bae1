// Tensors in files: .npy, .npz, .safetensors.
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

// NumPy's .npy: one array behind a header (numpy.lib.format, versions 1.0, 2.0 and 3.0).
//
//   stored            read as        written as
//   f8 f4 f2          f64 f32 f16    <f8 <f4 <f2
//   V2, 'bfloat16'    bf16           <V2, as ml_dtypes writes it: NumPy gives two raw bytes an
//                                    element back, `.view(ml_dtypes.bfloat16)` makes them numbers
//   i8 i4 i1 u1 b1    i64 i32 i8 u8 bool (any byte but 0 is true)   <i8 <i4 |i1 |u1 |b1
//   i2                i16                                           <i2
//   u2 u4 u8          u16 u32 u64                                   <u2 <u4 <u8
//
// Either byte order and either element order is read; what is written is little-endian and
// row-major. Complex numbers, strings, dates, structures and Python objects are refused.

namespace gradus {

// What the header says, checked against the number of bytes that follow it.
struct NpyHeader {
  DType dtype = DType::f32;  // of the tensor that is made
  Sizes shape;
  bool fortran_order = false;  // as stored: the first index runs fastest
  bool big_endian = false;     // as stored
  char kind = 'f';             // as stored: f i u b V
  int item_size = 4;           // as stored, in bytes
};

// Fills the span from a stream; gives the number of bytes, fewer than asked for only at the end.
using ReadBytes = FunctionRef<size_t(std::span<std::byte>)>;

// From a stream of `size` bytes in all: first the header, then the elements. Throw Error for what
// is malformed or not supported, and before any memory is taken for a size that does not fit.
NpyHeader read_npy_header(ReadBytes read, uint64_t size);
// A contiguous tensor with memory of the context's. The stream stands behind the header.
Tensor read_npy_elements(const NpyHeader& header, ReadBytes read, Context& context);

// From and to memory. The bytes may lie at any address; they are copied.
Tensor read_npy(std::span<const std::byte> bytes, Context& context = *Context::default_context());
std::vector<std::byte> write_npy(const Tensor& tensor);
// Everything before the elements of `tensor`. Throws Error for an undefined one or one on a device.
std::string npy_header(const Tensor& tensor);

// From and to files. Errors begin with the path. Writing is atomic (see AtomicFile).
Tensor load_npy(const std::string& path, Context& context = *Context::default_context());
void save_npy(const std::string& path, const Tensor& tensor);

// NumPy's .npz: a zip archive of .npy files. Its dtypes are those of .npy.

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

// The .safetensors format: tensors by name behind a header of JSON.
// Specification: github.com/huggingface/safetensors, "Format".
//
//   stored           read as          written as
//   F64 F32 F16 BF16 f64 f32 f16 bf16 the same
//   I64 I32 I8 U8    i64 i32 i8 u8    the same
//   BOOL             bool (any byte but 0 is true)   BOOL
//   I16              i16              I16
//   U16 U32 U64      u16 u32 u64      the same
//
// Other dtypes (F8_E5M2, …) are refused when such a tensor is read.

struct SafetensorsEntry {
  std::string dtype;  // as stored
  Sizes shape;
  uint64_t begin = 0, end = 0;  // of its bytes, counted from the start of the file
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;  // in the header's order
  std::map<std::string, std::string, std::less<>> metadata;
};

// What the header of a file says, held against the file's size: names are given once, ranges lie
// within the file, each is as long as its shape says, and no two overlap. Memory stays proportional
// to the header, which is at most 100 MB. Throws Error for anything else.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file);

// A mapped file. Tensors view the mapping where elements are stored as they are used and lie
// aligned (in other cases they are copied): reading costs nothing before elements are looked at,
// and writing to one (Tensor::mutable_data) does not reach the file. They keep the mapping alive.
// Not to be used for a file that others shorten in place (see MappedFile). Thread-safe.
//
// Throws Error, "path: tensor 'x': what is wrong".
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // In the header's order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& metadata() const {
    return header_.metadata;
  }
  // Throw Error for an unknown name.
  const SafetensorsEntry& entry(std::string_view name) const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::string path_;
  Ref<Storage> storage_;  // the whole file
  SafetensorsHeader header_;
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> place among the entries
};

NamedTensors read_safetensors(const std::string& path,
                              Context& context = *Context::default_context());

// Writes the tensors, those of the widest elements first so that all are aligned, otherwise in this
// order; equal tensors give equal bytes. Atomic (see AtomicFile). Names are UTF-8, not empty, not
// "__metadata__", and each given once.
void write_safetensors(const std::string& path,
                       std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});
void write_safetensors(const std::string& path, const NamedTensors& tensors);

// Files of tensors by name, of either format.

// .safetensors where the name ends so, .npz otherwise. Thread-safe; throws as those do.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);
  const std::string& path() const;
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  // Of a .safetensors; an .npz has none.
  std::map<std::string, std::string, std::less<>> metadata() const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::unique_ptr<NpzFile> npz_;
  std::unique_ptr<SafetensorsFile> safetensors_;
};

void write_tensors(const std::string& path,
                   std::span<const std::pair<std::string, Tensor>> tensors);

}  // namespace gradus

#pragma GCC visibility pop
