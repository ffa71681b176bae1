// Ranges, one-hot rows and triangles.
#include <algorithm>

#include "gradus/convert.h"
#include "gradus/error.h"
#include "kernels/copies.h"

namespace gradus::kernels {

namespace {

void run_arange(const Range& p, std::byte* const* args, KernelScope&) {
  visit_dtype(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(args[0]);
    for (int64_t i = 0; i < p.count; ++i) {
      if (p.integral)  // the caller's own numbers may wrap only past the last element
        out[i] = convert<T>(
            static_cast<int64_t>(static_cast<uint64_t>(p.start) +
                                 static_cast<uint64_t>(i) * static_cast<uint64_t>(p.step)));
      else
        out[i] = convert<T>(p.first + static_cast<double>(i) * p.by);
    }
  });
}

void run_linspace(const Spacing& p, std::byte* const* args, KernelScope&) {
  visit_dtype(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<T, double> || std::is_integral_v<T>, double, float>;
    T* out = reinterpret_cast<T*>(args[0]);
    C start = static_cast<C>(p.start), end = static_cast<C>(p.end);
    C step = p.count > 1 ? (end - start) / static_cast<C>(p.count - 1) : C(0);
    for (int64_t i = 0; i < p.count; ++i)
      out[i] = convert<T>(i < p.count / 2 || p.count == 1
                              ? start + step * static_cast<C>(i)
                              : end - step * static_cast<C>(p.count - 1 - i));
  });
}

void run_one_hot(const OneHot& p, std::byte* const* args, KernelScope&) {
  int64_t* out = reinterpret_cast<int64_t*>(args[1]);
  int64_t n = p.index.numel();
  std::memset(out, 0, static_cast<size_t>(n * p.classes) * sizeof(int64_t));
  Walk<1> walk(p.index.shape, {p.index.strides}, 0);
  for (int64_t i = 0; i < n; ++i, walk.next()) {
    int64_t c = 0;
    convert_row(p.index.dtype,
                args[0] + walk.offset(0) * static_cast<int64_t>(size_of(p.index.dtype)), 0,
                DType::i64, reinterpret_cast<std::byte*>(&c), 1, 1);
    if (c < 0 || c >= p.classes)
      throw Error("one_hot: operand 'x' holds the class {}, outside of 0 .. {}", c, p.classes - 1);
    out[i * p.classes + c] = 1;
  }
}

void run_triangle(const Triangle& p, std::byte* const* args, KernelScope& scope) {
  const size_t outer = p.x.shape.size() - 1;
  const int64_t columns = p.x.shape[outer], rows = p.x.shape[outer - 1], step = p.x.strides[outer];
  const auto size = static_cast<int64_t>(size_of(p.x.dtype));
  const int64_t total = columns == 0 ? 0 : p.x.numel() / columns;
  const int64_t per_chunk = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(columns, 1));
  scope.workers.parallel_parts(total, per_chunk, [&](int64_t first, int64_t last) {
    Walk<1> walk({p.x.shape.data(), outer}, {std::span(p.x.strides.data(), outer)}, first);
    for (int64_t r = first; r < last; ++r, walk.next()) {
      // The column where what is kept ends (lower) or begins.
      int64_t edge = r % rows + (p.lower ? 1 : 0);
      edge = p.diagonal > columns ? columns : p.diagonal < -rows ? 0 : edge + p.diagonal;
      edge = std::clamp<int64_t>(edge, 0, columns);
      int64_t from = p.lower ? 0 : edge, to = p.lower ? edge : columns;
      const std::byte* s = args[0] + walk.offset(0) * size;
      std::byte* t = args[1] + r * columns * size;
      fill_row(size_of(p.x.dtype), Pattern(), t, 1, from);
      copy_row(size_of(p.x.dtype), s + from * step * size, step, t + from * size, 1, to - from);
      fill_row(size_of(p.x.dtype), Pattern(), t + to * size, 1, columns - to);
    }
  });
}

}  // namespace

Kernel make_kernel(const Range& w) { return Kernel::of<run_arange>(w); }
Kernel make_kernel(const Spacing& w) { return Kernel::of<run_linspace>(w); }
Kernel make_kernel(const OneHot& w) { return Kernel::of<run_one_hot>(w); }
Kernel make_kernel(const Triangle& w) { return Kernel::of<run_triangle>(w); }

}  // namespace gradus::kernels
