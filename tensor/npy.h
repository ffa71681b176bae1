// NumPy's .npy: one array behind a header (numpy.lib.format, versions 1.0, 2.0 and 3.0).
//
//   stored            read as        written as
//   f8 f4 f2          f64 f32 f16    <f8 <f4 <f2
//   V2, 'bfloat16'    bf16           <V2, as ml_dtypes writes it: NumPy gives two raw bytes an
//                                    element back, `.view(ml_dtypes.bfloat16)` makes them numbers
//   i8 i4 i1 u1 b1    i64 i32 i8 u8 bool (any byte but 0 is true)   <i8 <i4 |i1 |u1 |b1
//   i2 u2             i32
//   u4 u8             i64; a u8 element of 2^63 or more is an error
//
// Either byte order and either element order is read; what is written is little-endian and
// row-major. Complex numbers, strings, dates, structures and Python objects are refused.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "tensor/tensor.h"

#pragma GCC visibility push(default)

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

}  // namespace gradus

#pragma GCC visibility pop
