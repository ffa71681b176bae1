// oneDNN, behind one door: products of matrices and convolutions in f32 and bf16.
//
// What is made here is made for known sizes, when a kernel is made, and never changes: any number
// of threads may run it at once. A run works on the calling thread alone; no OpenMP team is ever
// formed, so that a fork is safe. How a sum over k is ordered is the library's choice, which
// depends on the sizes, the strides and the instruction set, and on nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "work/convolution.h"

namespace gradus::kernels::onednn {

using work::ConvAxes;
using work::ConvAxis;
using work::Direction;

// c[entry, i, j] = sum over k of a[entry, i, k] * b[entry, k, j]; strides in elements, c's columns
// are neighbours and its entries follow one another. A stride of 0 over entries is one matrix for
// all.
struct ProductSizes {
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  int64_t entries = 1, a_entry = 0, b_entry = 0;
};

class Product {
 public:
  // Null where the library has nothing better than a plain loop: for the dtype, the strides (those
  // of rows or those of columns must be 1, and nothing may overlap) or the processor.
  static std::shared_ptr<const Product> make(const ProductSizes& sizes);
  virtual ~Product() = default;
  virtual size_t scratch_bytes() const = 0;
  // `scratch` is 64-byte aligned.
  virtual void run(const std::byte* a, const std::byte* b, std::byte* c,
                   std::byte* scratch) const = 0;
};

// The layouts of x [N, C, ..], w [O, C / groups, ..] and y [N, O, ..], of operands and results.
struct ConvolutionSizes {
  Direction direction = Direction::result;
  Layout x, w, y;
  ConvAxes axes;  // of which the last `rank - 2` count
  int64_t groups = 1;
  // Of dw: a run leaves f32 numbers in an order of the library's, which add up element by element
  // with those of other parts of a batch; `finish` rounds and arranges them.
  bool partial = false;
};

// Works in the layouts that the library likes: operands are rearranged into scratch memory.
class Convolution {
 public:
  // Null where the library has nothing, as above.
  static std::shared_ptr<const Convolution> make(const ConvolutionSizes& sizes);
  virtual ~Convolution() = default;
  virtual size_t shared_bytes() const = 0;   // for the rearranged kernels
  virtual size_t scratch_bytes() const = 0;  // for one run
  // Fills `shared`, before any run. `w` is not looked at for dw.
  virtual void prepare(const std::byte* w, std::byte* shared) const = 0;
  // y from x, dx from dy, or dw from x and dy (`other`).
  virtual void run(const std::byte* source, const std::byte* other, std::byte* target,
                   const std::byte* shared, std::byte* scratch) const = 0;

  // Of a partial dw. `scratch` as for a run.
  virtual size_t partial_bytes() const = 0;
  virtual bool adds_up_with(const Convolution& other) const = 0;
  virtual void finish(const std::byte* sum, std::byte* dw, std::byte* scratch) const = 0;
};

}  // namespace gradus::kernels::onednn
