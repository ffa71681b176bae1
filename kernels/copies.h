// Loops over strided elements, and lists of copies made of them.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// Runs the copies in order; large ones in chunks that depend on the sizes alone.
class Copies {
 public:
  Copies() = default;
  explicit Copies(std::span<const Copy> copies);
  bool empty() const { return jobs_.empty(); }
  void run(std::byte* const* args, KernelScope& scope) const;

 private:
  struct Job {
    Copy copy;        // the last dimension is the row
    int across = -1;  // a dimension that the source walks in steps of one while the row does not
    int64_t count = 0;
    size_t columns = 1;  // this job and those after it that fill columns of the same rows
  };
  static void run_job(const Job& job, std::byte* const* args, KernelScope& scope);
  static void run_columns(std::span<const Job> jobs, std::byte* const* args, KernelScope& scope);
  static void run_rows(const Copy& c, const std::byte* source, std::byte* target, int64_t first,
                       int64_t last);
  static void run_blocks(const Copy& c, const std::byte* source, std::byte* target, int64_t first,
                         int64_t last);

  SmallVector<Job, 1> jobs_;
};

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

}  // namespace gradus::kernels
