// Of the evaluator: products, convolutions, and other windows over images.
#include "tests/reference/parts.h"

namespace gradus::reference {

void evaluate(const Product& w, Args args) {
  const Gemm& g = w.gemm;
  const Array a{g.dtype, args[0]}, b{g.dtype, args[1]}, y{g.dtype, args[w.adds_row ? 3 : 2]};
  Axes a_batch, b_batch;
  int64_t batch = 1;
  for (const Gemm::Batch& d : g.batch) {
    a_batch.push_back({d.size, d.a_stride});
    b_batch.push_back({d.size, d.b_stride});
    batch *= d.size;
  }
  visit_sums(g.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> row(static_cast<size_t>(g.k)), column(row.size());
    for (int64_t c = 0; c < batch * g.m * g.n; ++c) {
      const int64_t j = c % g.n, i = c / g.n % g.m, entry = c / g.n / g.m;
      for (int64_t k = 0; k < g.k; ++k) {
        row[k] = a.get<T>(offset_of(entry, a_batch) + i * g.a_row + k * g.a_column);
        column[k] = b.get<T>(offset_of(entry, b_batch) + k * g.b_row + j * g.b_column);
      }
      T sum = sum_of_products<T>(row, column);
      if (w.adds_row) sum = add(sum, Array{g.dtype, args[2]}.get<T>(j));
      y.set(c, sum);
    }
  });
}

namespace {

using Place = std::array<int64_t, conv_axes>;

// Where the place with this row-major number is.
Place place_of(int64_t number, const Place& sizes) {
  Place p;
  for (size_t d = conv_axes; d-- > 0; number /= sizes[d]) p[d] = number % sizes[d];
  return p;
}
int64_t count_of(const Place& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

// One size of each axis.
Place sizes_of(const ConvAxes& axes, int64_t ConvAxis::*size) {
  return {axes[0].*size, axes[1].*size, axes[2].*size};
}

// A tensor [N, C, spatial] of which what lies outside is 0.
struct Image {
  Array array;
  ConvTensor strides;
  Place sizes;

  bool holds(const Place& p) const {
    for (size_t d = 0; d < conv_axes; ++d)
      if (p[d] < 0 || p[d] >= sizes[d]) return false;
    return true;
  }
  int64_t offset(int64_t n, int64_t c, const Place& p) const {
    int64_t at = n * strides.batch_stride + c * strides.channel_stride;
    for (size_t d = 0; d < conv_axes; ++d) at += p[d] * strides.strides[d];
    return at;
  }
  template <class T>
  T get(int64_t n, int64_t c, const Place& p) const {
    return holds(p) ? array.get<T>(offset(n, c, p)) : T(0);
  }
};

// The place of the image that a window reads with element k of the kernel.
Place read_by(const ConvAxes& axes, const Place& window, const Place& k) {
  Place p;
  for (size_t d = 0; d < conv_axes; ++d)
    p[d] = window[d] * axes[d].stride - axes[d].padding + k[d] * axes[d].dilation;
  return p;
}
// The window that reads a place with element k, which may lie outside; none where no number of
// strides leads to it.
std::optional<Place> reader_of(const ConvAxes& axes, const Place& place, const Place& k) {
  Place p;
  for (size_t d = 0; d < conv_axes; ++d) {
    const int64_t distance = place[d] + axes[d].padding - k[d] * axes[d].dilation;
    if (distance % axes[d].stride != 0) return std::nullopt;
    p[d] = distance / axes[d].stride;
  }
  return p;
}

// A convolution's three tensors, whichever of them are operands.
template <class T>
struct Convolved {
  const Convolution& w;
  Image x, kernel, y;
  int64_t batch, groups, rows, channels;  // rows and channels: of a group
  Place taps = sizes_of(w.axes, &ConvAxis::kernel);

  Convolved(const Convolution& c, Args args) : w(c), groups(c.groups) {
    const bool to_image = c.direction == Direction::image;
    const bool to_kernel = c.direction == Direction::kernel;
    auto image = [&](const Layout& l, int argument, int64_t ConvAxis::*size) {
      return Image{{l.dtype, args[argument]}, ConvTensor(l), sizes_of(c.axes, size)};
    };
    const Layout& x_layout = to_image ? c.result : c.first;
    const Layout& y_layout = to_image ? c.first : to_kernel ? c.second : c.result;
    x = image(x_layout, to_image ? 2 : 0, &ConvAxis::image);
    kernel = image(to_kernel ? c.result : c.second, to_kernel ? 2 : 1, &ConvAxis::kernel);
    y = image(y_layout, to_image ? 0 : to_kernel ? 1 : 2, &ConvAxis::windows);
    batch = x_layout.shape[0];
    channels = x_layout.shape[1] / groups;
    rows = y_layout.shape[1] / groups;
  }

  T result_at(int64_t n, int64_t o, const Place& window) const {
    std::vector<T> a, b;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t k = 0; k < count_of(taps); ++k) {
        const Place tap = place_of(k, taps);
        a.push_back(kernel.get<T>(o, c, tap));
        b.push_back(x.get<T>(n, o / rows * channels + c, read_by(w.axes, window, tap)));
      }
    return sum_of_products<T>(a, b);
  }

  T image_at(int64_t n, int64_t c, const Place& place) const {
    std::vector<T> a, b;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < count_of(taps); ++k) {
        const Place tap = place_of(k, taps);
        const auto window = reader_of(w.axes, place, tap);
        if (!window) continue;
        const int64_t o = c / channels * rows + r;
        a.push_back(kernel.get<T>(o, c % channels, tap));
        b.push_back(y.get<T>(n, o, *window));
      }
    return sum_of_products<T>(a, b);
  }

  // Windows [first, last) of one image.
  T kernel_sum(int64_t n, int64_t o, int64_t c, const Place& tap, int64_t first,
               int64_t last) const {
    std::vector<T> a, b;
    for (int64_t q = first; q < last; ++q) {
      const Place window = place_of(q, y.sizes);
      a.push_back(y.get<T>(n, o, window));
      b.push_back(x.get<T>(n, o / rows * channels + c, read_by(w.axes, window, tap)));
    }
    return sum_of_products<T>(a, b);
  }
  T kernel_at(int64_t o, int64_t c, const Place& tap) const {
    const KernelSums cut = kernel_sums(w);
    T sum = 0;
    for (int64_t part = 0; part < cut.parts; ++part) {
      T of_part = 0;
      for (int64_t n = batch * part / cut.parts; n < batch * (part + 1) / cut.parts; ++n)
        for (int64_t q = 0; q < count_of(y.sizes); q += cut.width)
          of_part += kernel_sum(n, o, c, tap, q, std::min(q + cut.width, count_of(y.sizes)));
      sum = part == 0 ? of_part : sum + of_part;
    }
    return sum;
  }
};

// Calls f(n, c, place) for every element of a tensor [outer, inner, sizes].
template <class F>
void for_each_element(int64_t outer, int64_t inner, const Place& sizes, F f) {
  for (int64_t n = 0; n < outer; ++n)
    for (int64_t c = 0; c < inner; ++c)
      for (int64_t q = 0; q < count_of(sizes); ++q) f(n, c, place_of(q, sizes));
}

template <class T>
void convolve(const Convolution& w, Args args) {
  const Convolved<T> v(w, args);
  auto fill = [](const Image& to, int64_t outer, int64_t inner, auto element) {
    for_each_element(outer, inner, to.sizes, [&](int64_t n, int64_t c, const Place& p) {
      to.array.set(to.offset(n, c, p), element(n, c, p));
    });
  };
  switch (w.direction) {
    case Direction::result:
      return fill(v.y, v.batch, v.groups * v.rows,
                  [&](int64_t n, int64_t o, const Place& p) { return v.result_at(n, o, p); });
    case Direction::image:
      return fill(v.x, v.batch, v.groups * v.channels,
                  [&](int64_t n, int64_t c, const Place& p) { return v.image_at(n, c, p); });
    case Direction::kernel:
      return fill(v.kernel, v.groups * v.rows, v.channels,
                  [&](int64_t o, int64_t c, const Place& p) { return v.kernel_at(o, c, p); });
  }
}

}  // namespace

void evaluate(const Convolution& w, Args args) {
  if (w.first.dtype == DType::f64)
    convolve<double>(w, args);
  else
    convolve<float>(w, args);
}

namespace {

// Element `tap` of the window of channel c of image n, among the columns.
int64_t column_number(const Columns& w, int64_t n, int64_t c, int64_t tap, int64_t window,
                      std::span<const int64_t> strides) {
  const int64_t taps = count_of(sizes_of(w.axes, &ConvAxis::kernel));
  return n * strides[0] + (c * taps + tap) * strides[1] + window * strides[2];
}

void unfold(const Columns& w, const Image& image, const Array& columns) {
  const Place taps = sizes_of(w.axes, &ConvAxis::kernel);
  const Place windows = sizes_of(w.axes, &ConvAxis::windows);
  const Sizes strides =
      contiguous_strides(Sizes{w.batch, w.channels * count_of(taps), count_of(windows)});
  for_each_element(w.batch, w.channels, windows, [&](int64_t n, int64_t c, const Place& window) {
    const int64_t number = (window[0] * windows[1] + window[1]) * windows[2] + window[2];
    for (int64_t k = 0; k < count_of(taps); ++k) {
      const Place p = read_by(w.axes, window, place_of(k, taps));
      const int64_t to = column_number(w, n, c, k, number, strides);
      if (image.holds(p))
        columns.set(to, image.array, image.offset(n, c, p));
      else
        columns.set(to, false);
    }
  });
}

template <class T>
void fold(const Columns& w, const Image& image, const Array& columns) {
  const Place taps = sizes_of(w.axes, &ConvAxis::kernel);
  const Place windows = sizes_of(w.axes, &ConvAxis::windows);
  for_each_element(w.batch, w.channels, image.sizes, [&](int64_t n, int64_t c, const Place& p) {
    T sum = 0;
    for (int64_t k = 0; k < count_of(taps); ++k) {
      const auto window = reader_of(w.axes, p, place_of(k, taps));
      if (!window) continue;
      const auto& [i, j, l] = *window;
      if (i < 0 || i >= windows[0] || j < 0 || j >= windows[1] || l < 0 || l >= windows[2])
        continue;
      const int64_t number = (i * windows[1] + j) * windows[2] + l;
      sum += columns.get<T>(column_number(w, n, c, k, number, w.columns));
    }
    image.array.set(image.offset(n, c, p), sum);
  });
}

}  // namespace

void evaluate(const Columns& w, Args args) {
  const Place sizes = sizes_of(w.axes, &ConvAxis::image);
  const Array columns{w.dtype, args[w.folds ? 0 : 1]};
  Image image{{w.dtype, args[w.folds ? 1 : 0]}, w.image, sizes};
  if (!w.folds) return unfold(w, image, columns);
  image.strides = ConvTensor(Layout(w.dtype, {w.batch, w.channels, sizes[0], sizes[1], sizes[2]}));
  if (w.dtype == DType::f64)
    fold<double>(w, image, columns);
  else
    fold<float>(w, image, columns);
}

void evaluate(const MaxPool& w, Args args) {
  const Array y{w.dtype, args[1]}, index{DType::i64, args[2]};
  const Place taps = sizes_of(w.axes, &ConvAxis::kernel);
  const Place windows = sizes_of(w.axes, &ConvAxis::windows);
  const Image image{{w.dtype, args[0]}, w.x, sizes_of(w.axes, &ConvAxis::image)};
  visit_compute(compute_of(w.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < w.planes * w.windows; ++i) {
      const int64_t n = i / w.windows / w.channels, c = i / w.windows % w.channels;
      std::optional<Place> best;
      for (int64_t k = 0; k < count_of(taps); ++k) {
        const Place p = read_by(w.axes, place_of(i % w.windows, windows), place_of(k, taps));
        if (!image.holds(p)) continue;
        const T value = image.get<T>(n, c, p);
        if (!best || value > image.get<T>(n, c, *best) || value != value) best = p;
      }
      const auto& [u, v, t] = *best;
      y.set(i, image.array, image.offset(n, c, *best));
      index.set(i, (u * image.sizes[1] + v) * image.sizes[2] + t);
    }
  });
}

}  // namespace gradus::reference
