// Moving elements: lists of strided copies and fills that a kernel runs in order. Most operators
// that only rearrange elements are such a list.
#pragma once

#include "ops/value.h"

namespace gradus::ops {

// Where a copy's elements lie: an argument of the kernel, and how to walk it.
struct Window {
  int argument = 0;  // index into the kernel's arguments (operands, then results)
  DType dtype = DType::f32;
  Sizes strides;                      // elements; a source's may be zero or negative
  int64_t offset = 0;                 // elements from the argument's first one to the window's
  static constexpr int scratch = -1;  // as `argument`: the kernel's scratch memory
};

// The element that a fill writes, converted to a dtype.
struct Pattern {
  alignas(8) std::byte bytes[8] = {};
};
Pattern pattern_of(const ir::Number& value, DType dtype);
// The number that an attribute holds (a bool, an integer, a dimension expression, a float);
// throws Error naming the operator and the attribute for anything else.
ir::Number number_of(const ir::Literal& literal, const ir::DimEnvironment* sizes,
                     std::string_view op, std::string_view attribute);

class Copies {
 public:
  // target[i] = source[i] for every i of `shape`, dtypes converted as `cast` does.
  void copy(std::span<const int64_t> shape, Window source, Window target);
  // target[i] = pattern. `pattern` is of the target's dtype.
  void fill(std::span<const int64_t> shape, const Pattern& pattern, Window target);

  bool empty() const { return jobs_.empty(); }
  // Runs all, in order; large ones in chunks that depend on the sizes alone.
  void run(std::byte* const* args, KernelScope& scope) const;
  // Makes the list the call's kernel.
  static void bind(BindCall& call, Copies copies, size_t scratch_bytes = 0);
  // A kernel of its own.
  static ir::Kernel kernel(Copies copies, size_t scratch_bytes = 0);

  struct Job {
    Sizes shape;  // collapsed; the last dimension is the row
    Window source, target;
    bool fills = false;
    Pattern pattern;
    int across = -1;  // a dimension that the source walks in steps of one while the row does not
    int64_t count = 0;
  };
  std::span<const Job> jobs() const { return {jobs_.data(), jobs_.size()}; }

 private:
  void add(Job job);
  static void run_job(const Job& job, std::byte* const* args, KernelScope& scope);
  static void run_rows(const Job& job, const std::byte* source, std::byte* target, int64_t first,
                       int64_t last);
  static void run_blocks(const Job& job, const std::byte* source, std::byte* target, int64_t first,
                         int64_t last);

  SmallVector<Job, 2> jobs_;
};

// The windows of operand i as it lies, and of result i (contiguous).
Window operand_window(const BindCall& call, size_t i);
Window result_window(const BindCall& call, size_t i = 0);
// Binds result 0 as a contiguous copy of operand 0, both of the operand's shape.
void bind_copy(BindCall& call);

// target[i] = source[i * stride] for elements of `size` bytes.
void copy_row(size_t size, const std::byte* source, int64_t source_stride, std::byte* target,
              int64_t target_stride, int64_t n);
// The same between dtypes.
void convert_row(DType source_dtype, const std::byte* source, int64_t source_stride,
                 DType target_dtype, std::byte* target, int64_t target_stride, int64_t n);
// target[i * stride] = pattern.
void fill_row(size_t size, const Pattern& pattern, std::byte* target, int64_t stride, int64_t n);

// Walks the indices of `shape` in row-major order, keeping offsets under several sets of strides.
template <size_t N>
class Walk {
 public:
  Walk(std::span<const int64_t> shape, std::array<std::span<const int64_t>, N> strides,
       int64_t start)
      : shape_(shape), strides_(strides), index_(shape.size()) {
    for (size_t d = shape.size(); d-- > 0;) {
      index_[d] = start % std::max<int64_t>(shape[d], 1);
      start /= std::max<int64_t>(shape[d], 1);
      for (size_t k = 0; k < N; ++k) offset_[k] += index_[d] * strides[k][d];
    }
  }
  int64_t offset(size_t k) const { return offset_[k]; }
  void next() {
    for (size_t d = shape_.size(); d-- > 0;) {
      for (size_t k = 0; k < N; ++k) offset_[k] += strides_[k][d];
      if (++index_[d] < shape_[d]) return;
      for (size_t k = 0; k < N; ++k) offset_[k] -= strides_[k][d] * shape_[d];
      index_[d] = 0;
    }
  }

 private:
  std::span<const int64_t> shape_;
  std::array<std::span<const int64_t>, N> strides_;
  Sizes index_;
  std::array<int64_t, N> offset_{};
};

}  // namespace gradus::ops
