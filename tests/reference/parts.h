// The parts of the evaluator: elements, places, sums of products; and a function for each kind.
#pragma once

#include <cmath>
#include <cstring>

#include "gradus/convert.h"
#include "work/work.h"

namespace gradus::reference {

using namespace work;
using Args = std::byte* const*;

// Elements in memory, read and written by their distance from the first one.
struct Array {
  DType dtype;
  std::byte* first;

  // Converted as `cast` does.
  template <class T>
  T get(int64_t at) const {
    return visit_dtype(dtype, [&](auto tag) {
      using Stored = typename decltype(tag)::type;
      Stored x;
      std::memcpy(&x, first + at * static_cast<int64_t>(sizeof x), sizeof x);
      return convert<T>(x);
    });
  }
  template <class T>
  void set(int64_t at, T value) const {
    visit_dtype(dtype, [&](auto tag) {
      const auto x = convert<typename decltype(tag)::type>(value);
      std::memcpy(first + at * static_cast<int64_t>(sizeof x), &x, sizeof x);
    });
  }
  // The element of another array.
  void set(int64_t at, const Array& source, int64_t source_at) const {
    visit_dtype(source.dtype,
                [&](auto tag) { set(at, source.get<typename decltype(tag)::type>(source_at)); });
  }
};

// Where the element with this number lies, counted in row-major order of the shape.
inline int64_t offset_of(int64_t number, std::span<const int64_t> shape,
                         std::span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0; number /= shape[d])
    offset += number % shape[d] * strides[d];
  return offset;
}
inline int64_t offset_of(int64_t number, const Layout& l) {
  return offset_of(number, l.shape, l.strides);
}
inline int64_t offset_of(int64_t number, const Axes& axes) {
  int64_t offset = 0;
  for (size_t d = axes.size(); d-- > 0; number /= axes[d].size)
    offset += number % axes[d].size * axes[d].stride;
  return offset;
}

// Integers wrap.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

// The sum of a[k] * b[k] in the order of work/product.h.
template <class T>
T sum_of_products(std::span<const T> a, std::span<const T> b) {
  T sum = 0, block = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    if constexpr (std::is_integral_v<T>)
      block = add(block, multiply(a[k], b[k]));
    else
      block = std::fma(a[k], b[k], block);
    if (k + 1 < a.size() && (k + 1) % gemm_block != 0) continue;
    sum = k < gemm_block ? block : add(sum, block);
    block = 0;
  }
  return sum;
}

// Calls f with the type that sums of a dtype are kept in: double, float or int64_t.
template <class F>
void visit_sums(DType dtype, F f) {
  visit_compute(compute_of(dtype), f);
}

void run_copies(std::span<const Copy> copies, Args args, std::byte* scratch);

// Without a look at divisors.
void run_pointwise(const Pointwise& w, Args args);

void evaluate(const Move& w, Args args);
void evaluate(const Index& w, Args args);
void evaluate(const IndexCheck& w, Args args);
void evaluate(const Reduce& w, Args args);
void evaluate(const Extremum& w, Args args);
void evaluate(const Product& w, Args args);
void evaluate(const Convolution& w, Args args);
void evaluate(const Columns& w, Args args);
void evaluate(const MaxPool& w, Args args);
void evaluate(const Triangle& w, Args args);
void evaluate(const Range& w, Args args);
void evaluate(const Spacing& w, Args args);
void evaluate(const OneHot& w, Args args);
void evaluate(const Nonzero& w, Args args);
void evaluate(const RandomBits& w, Args args);
void evaluate(const Sort& w, Args args);
void evaluate(const Scan& w, Args args);
void evaluate(const RunningMax& w, Args args);
void evaluate(const Factor& w, Args args);
void evaluate(const Solve& w, Args args);
void evaluate(const Fourier& w, Args args);
void evaluate(const Pointwise& w, Args args);
void evaluate(const Loops& w, Args args);
void evaluate(const Collective& w, Args args);
void evaluate(const CollectiveEnd& w, Args args);
void evaluate(const OwnRank& w, Args args);
void evaluate(const OwnBlock& w, Args args);
void evaluate(const Foreign& w, Args args);

}  // namespace gradus::reference
