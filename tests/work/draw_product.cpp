// Trials of products, convolutions and other windows over images.
#include <algorithm>
#include <cmath>

#include "gradus/convert.h"
#include "kernels/library_convolution.h"
#include "tests/reference/work.h"
#include "tests/work/trial.h"

namespace gradus::work::test {

namespace {

// What two sums of the same k products, in any two orders, may differ by, once they are rounded to
// the dtype: each is off by at most about k steps of the sum of the magnitudes.
double bound_of(DType dtype, int64_t k, double magnitudes, double evaluated) {
  const double step = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  return 2 * static_cast<double>(k + 2) * step * magnitudes +
         2 * epsilon_of(dtype) * std::fabs(evaluated) + 1e-40;
}

// Lets a library order the sums of `work`, k products each: the evaluator computes the sums of the
// magnitudes, in f64.
void allow_any_order(Trial& trial, Work in_f64, std::array<int64_t, 3> elements, DType dtype,
                     int64_t k) {
  std::array<std::vector<double>, 3> memory;
  for (size_t i = 0; i < 3; ++i) memory[i].resize(static_cast<size_t>(elements[i]));
  for (size_t i = 0; i < 2; ++i)
    for (size_t e = 0; e < memory[i].size(); ++e)
      memory[i][e] = std::fabs(trial.get(static_cast<int>(i), static_cast<int64_t>(e)));
  std::byte* args[3];
  for (size_t i = 0; i < 3; ++i) args[i] = reinterpret_cast<std::byte*>(memory[i].data());
  reference::evaluate(in_f64, args);
  trial.slack = [sums = std::move(memory[2]), dtype, k](int, int64_t at, double evaluated) {
    return bound_of(dtype, k, sums[static_cast<size_t>(at)], evaluated);
  };
}

// An operand of a product: its matrix's strides, and its batch's.
Layout matrix_layout(Random& random, DType dtype, int64_t rows, int64_t columns) {
  return random.layout(dtype, Sizes{rows, columns});
}

Gemm draw_gemm(Random& random) {
  Gemm g;
  do g.dtype = random.dtype();
  while (g.dtype == DType::boolean);
  auto size = [&] { return random.chance(0.04) ? 0 : random.between(1, 20); };
  g.m = size();
  g.n = size();
  g.k = random.chance(0.2) ? random.between(200, 800) : size();
  if (random.chance(0.06)) {  // of a size for libraries and for several workers
    g.m = random.between(64, 140);
    g.n = random.between(64, 140);
    g.k = random.between(100, 300);
  } else if (random.chance(0.1)) {
    (random.chance(0.5) ? g.m : g.n) = random.between(100, 400);
  }
  return g;
}

}  // namespace

template <>
void draw<Product>(Random& random, Trial& trial) {
  Gemm g = draw_gemm(random);
  const Layout a = matrix_layout(random, g.dtype, g.m, g.k);
  const Layout b = matrix_layout(random, g.dtype, g.k, g.n);
  g.a_row = a.strides[0];
  g.a_column = a.strides[1];
  g.b_row = b.strides[0];
  g.b_column = b.strides[1];
  int64_t a_size = a.numel() ? a.extent() : 0, b_size = b.numel() ? b.extent() : 0, batch = 1;
  for (int64_t d = random.pick<int64_t>({0, 0, 0, 1, 2}); d > 0; --d) {
    Gemm::Batch entry{random.chance(0.05) ? 0 : random.between(1, 3)};
    if (random.chance(0.7)) entry.a_stride = a_size;
    if (random.chance(0.7)) entry.b_stride = b_size;
    a_size += (std::max<int64_t>(entry.size, 1) - 1) * entry.a_stride;
    b_size += (std::max<int64_t>(entry.size, 1) - 1) * entry.b_stride;
    batch *= entry.size;
    g.batch.insert(g.batch.begin(), entry);
  }
  const Values values =
      is_large(g) ? Values::unit : random.pick({Values::plain, Values::special, Values::unit});
  trial.operand(g.dtype, a_size, values);
  trial.operand(g.dtype, b_size, values);
  trial.result(g.dtype, batch * g.m * g.n);
  if (is_large(g)) {
    Gemm exact = g;
    exact.dtype = DType::f64;
    allow_any_order(trial, Product{exact}, {a_size, b_size, batch * g.m * g.n}, g.dtype, g.k);
  }
  trial.work = Product{std::move(g)};
}

namespace {

int64_t windows_in(const ConvAxis& a) {
  return (a.image + 2 * a.padding - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
}

// An axis with at least one window.
ConvAxis draw_axis(Random& random, int64_t most) {
  ConvAxis a;
  a.kernel = random.between(1, 4);
  a.dilation = random.pick<int64_t>({1, 1, 1, 2, 3});
  a.stride = random.pick<int64_t>({1, 1, 2, 3, 4});
  a.padding = random.pick<int64_t>({0, 0, 1, 2});
  const int64_t least = std::max<int64_t>(1, a.dilation * (a.kernel - 1) + 1 - 2 * a.padding);
  a.image = random.between(least, std::max(least, most));
  a.windows = windows_in(a);
  return a;
}

}  // namespace

template <>
void draw<Convolution>(Random& random, Trial& trial) {
  const bool long_row = random.chance(0.01);  // of several tiles
  const int spatial = long_row ? 1 : static_cast<int>(random.between(1, 3));
  const bool large = long_row || random.chance(0.06);
  Convolution w;
  w.direction = random.pick({Direction::result, Direction::image, Direction::kernel});
  w.groups = random.pick<int64_t>({1, 1, 2, 3});
  const DType dtype = random.floating();
  const int64_t batch = random.chance(0.04) ? 0 : random.between(1, large ? 5 : 3);
  const int64_t channels = random.between(1, large ? 12 : 4);
  const int64_t rows = random.between(1, large ? 12 : 4);
  Sizes image{batch, w.groups * channels}, kernel{w.groups * rows, channels},
      result{batch, w.groups * rows};
  for (int d = conv_axes - spatial; d < conv_axes; ++d) {
    ConvAxis& a = w.axes[static_cast<size_t>(d)];
    a = draw_axis(random, long_row ? 5000 : spatial == 1 ? 40 : spatial == 2 ? 10 : 6);
    // A gradient may leave the last windows out.
    if (w.direction != Direction::result && a.windows > 1 && random.chance(0.2)) --a.windows;
    image.push_back(a.image);
    kernel.push_back(a.kernel);
    result.push_back(a.windows);
  }
  const bool to_image = w.direction == Direction::image,
             to_kernel = w.direction == Direction::kernel;
  w.first = random.layout(dtype, to_image ? result : image);
  w.second = random.layout(dtype, to_kernel ? result : kernel);
  w.result = Layout(dtype, to_image ? image : to_kernel ? kernel : result);
  const bool library = kernels::make_library(w).has_value();
  const Values values =
      library ? Values::unit : random.pick({Values::plain, Values::special, Values::unit});
  trial.operand(w.first, values);
  trial.operand(w.second, values);
  trial.result(dtype, w.result.numel());
  if (library) {
    Convolution exact = w;
    for (Layout* l : {&exact.first, &exact.second, &exact.result}) l->dtype = DType::f64;
    const int64_t windows = numel(result) / std::max<int64_t>(result[1], 1);
    const int64_t k = to_kernel ? windows : std::max(channels, rows) * numel(kernel);
    allow_any_order(trial, exact, {w.first.extent(), w.second.extent(), w.result.numel()}, dtype,
                    k);
  }
  trial.work = std::move(w);
}

template <>
void draw<Columns>(Random& random, Trial& trial) {
  Columns w;
  w.dtype = random.floating();
  w.folds = random.chance(0.5);
  w.batch = random.chance(0.05) ? 0 : random.between(1, 3);
  w.channels = random.between(1, 4);
  for (size_t d : {1, 2}) w.axes[d] = draw_axis(random, 12);
  const Sizes image{w.batch, w.channels, w.axes[1].image, w.axes[2].image};
  const Sizes columns{w.batch, w.channels * w.axes[1].kernel * w.axes[2].kernel,
                      w.axes[1].windows * w.axes[2].windows};
  const Layout operand = random.layout(w.dtype, w.folds ? columns : image);
  const Layout result(w.dtype, w.folds ? image : columns);
  w.image = ConvTensor(w.folds ? result : operand);
  w.columns = w.folds ? operand.strides : result.strides;
  trial.operand(operand, random.values());
  trial.result(w.dtype, result.numel());
  trial.work = std::move(w);
}

template <>
void draw<MaxPool>(Random& random, Trial& trial) {
  MaxPool w;
  do w.dtype = random.dtype();
  while (w.dtype == DType::boolean);
  const int spatial = static_cast<int>(random.between(1, 3));
  Sizes image{random.chance(0.05) ? 0 : random.between(1, 3), random.between(1, 4)};
  const bool pairs = random.chance(0.2);  // windows of two that lie side by side
  for (int d = conv_axes - spatial; d < conv_axes; ++d) {
    ConvAxis& a = w.axes[static_cast<size_t>(d)];
    bool holds = false;
    while (!holds) {
      a = draw_axis(random, spatial == 1 ? 300 : spatial == 2 ? 40 : 9);
      if (pairs) {
        a = {std::max<int64_t>(a.image, 2), 1, 2, 2, 0, 1};
        a.windows = windows_in(a);
      }
      holds = true;
      for (int64_t i = 0; i < a.windows; ++i) {
        const WindowRange r = range_of(a, i);
        holds = holds && r.first < r.last;
      }
    }
    image.push_back(a.image);
    w.windows *= a.windows;
  }
  const Layout x = pairs ? Layout(w.dtype, image) : random.layout(w.dtype, image);
  w.x = ConvTensor(x);
  w.channels = image[1];
  w.planes = image[0] * image[1];
  trial.operand(x, random.values());
  for (DType dtype : {w.dtype, DType::i64}) trial.result(dtype, w.planes * w.windows);
  trial.work = std::move(w);
}

}  // namespace gradus::work::test
