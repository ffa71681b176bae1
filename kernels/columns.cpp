// Windows of images as columns of a matrix, and columns added up to images.
#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "kernels/conv_columns.h"

namespace gradus::kernels {

namespace {

template <class T>
void run_unfold(const Columns& p, std::byte* const* args, KernelScope& scope) {
  const Phase phase = window_phase(p.axes);
  const int64_t each = phase.taps() * phase.positions();
  scope.workers.parallel_for(p.batch * p.channels, [&](int64_t i) {
    const T* image = reinterpret_cast<const T*>(args[0]) + i / p.channels * p.image.batch_stride +
                     i % p.channels * p.image.channel_stride;
    gather_columns(phase, p.image, image, 1, 0, phase.positions(),
                   reinterpret_cast<T*>(args[1]) + i * each, phase.positions());
  });
}

// One channel of one image: its columns added up, tap by tap.
template <class T, class C>
void fold_channel(const Columns& p, const T* columns, C* image) {
  const ConvAxis &h = p.axes[1], &w = p.axes[2];
  std::fill_n(image, h.image * w.image, C(0));
  const int64_t step = p.columns[2];
  for (int64_t r = 0; r < h.kernel; ++r)
    for (int64_t s = 0; s < w.kernel; ++s, columns += p.columns[1])
      for (int64_t i = 0; i < h.windows; ++i) {
        const int64_t u = i * h.stride - h.padding + r * h.dilation;
        if (u < 0 || u >= h.image) continue;
        const int64_t start = s * w.dilation - w.padding;
        const T* row = columns + i * w.windows * step;
        for (int64_t j = 0; j < w.windows; ++j) {
          const int64_t v = start + j * w.stride;
          if (v >= 0 && v < w.image) image[u * w.image + v] += convert<C>(row[j * step]);
        }
      }
}

template <class T, class C>
void run_fold(const Columns& p, std::byte* const* args, KernelScope& scope) {
  const int64_t size = p.axes[1].image * p.axes[2].image;
  const int64_t channel_step = p.axes[1].kernel * p.axes[2].kernel * p.columns[1];
  run_in_slots(scope.workers, p.batch * p.channels, [&](int64_t i, int64_t slot) {
    const T* columns = reinterpret_cast<const T*>(args[0]) + i / p.channels * p.columns[0] +
                       i % p.channels * channel_step;
    T* image = reinterpret_cast<T*>(args[1]) + i * size;
    if constexpr (std::is_same_v<T, C>) {
      fold_channel<T, C>(p, columns, image);
    } else {
      C* sums = reinterpret_cast<C*>(scope.scratch) + slot * size;
      fold_channel<T, C>(p, columns, sums);
      std::transform(sums, sums + size, image, convert<T, C>);
    }
  });
}

template <class F>
void visit_floating(DType dtype, F f) {
  visit_dtype(dtype, [&](auto tag) {
    if constexpr (!std::is_integral_v<typename decltype(tag)::type>) f(tag);
  });
}

Kernel make_unfold(const Columns& w) {
  Kernel kernel;
  visit_floating(
      w.dtype, [&](auto tag) { kernel = Kernel::of<run_unfold<typename decltype(tag)::type>>(w); });
  return kernel;
}

Kernel make_fold(const Columns& w) {
  const int64_t images = w.batch * w.channels, size = w.axes[1].image * w.axes[2].image;
  Kernel kernel;
  visit_floating(w.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<sizeof(T) == 2, float, T>;
    const bool sums = !std::is_same_v<T, C>;
    const int64_t elements = sums ? std::min(images, most_slots()) * size : 0;
    kernel = Kernel::of<run_fold<T, C>>(w, static_cast<size_t>(elements) * sizeof(C));
  });
  return kernel;
}

}  // namespace

Kernel make_kernel(const Columns& w) { return w.folds ? make_fold(w) : make_unfold(w); }

}  // namespace gradus::kernels
