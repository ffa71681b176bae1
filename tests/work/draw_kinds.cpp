// Trials of kinds of work that stand alone.
#include <cmath>
#include <cstring>

#include "gradus/registry.h"
#include "tests/work/trial.h"

namespace gradus::work::test {

template <>
void draw<Triangle>(Random& random, Trial& trial) {
  const Layout x = random.layout(random.dtype(), random.shape(2, 4));
  trial.operand(x, Values::special);
  trial.result(x.dtype, x.numel());
  const int64_t diagonal =
      random.chance(0.1) ? random.pick({INT64_MIN, INT64_MAX}) : random.between(-10, 10);
  trial.work = Triangle{x, diagonal, random.chance(0.5)};
}

template <>
void draw<Range>(Random& random, Trial& trial) {
  Range w;
  w.dtype = random.dtype();
  w.count = random.between(0, 600);
  w.integral = random.chance(0.5);
  w.start = random.integer(random.values());
  w.step = random.integer(random.values());
  w.first = random.number(Values::plain) * 100;
  w.by = random.number(Values::plain);
  trial.result(w.dtype, w.count);
  trial.work = w;
}

template <>
void draw<Spacing>(Random& random, Trial& trial) {
  Spacing w;
  w.dtype = random.dtype();
  w.count = random.chance(0.3) ? random.between(0, 3) : random.between(0, 300);
  const double scale = random.pick({10.0, 1e7});
  w.start = random.number(Values::plain) * scale;
  w.end = random.number(Values::plain) * scale;
  trial.result(w.dtype, w.count);
  trial.work = w;
}

template <>
void draw<OneHot>(Random& random, Trial& trial) {
  OneHot w;
  w.index = random.layout(random.pick({DType::i64, DType::i32, DType::i8, DType::u8}),
                          random.shape(0, 3));
  w.classes = random.between(1, 20);
  const int64_t extent = w.index.numel() == 0 ? 0 : w.index.extent();
  trial.operand(w.index);
  for (int64_t i = 0; i < extent; ++i) trial.set(0, i, random.between(0, w.classes - 1));
  if (extent > 0 && random.chance(0.1))
    trial.set(0, 0, random.pick({w.classes, int64_t{-1}, int64_t{100}}));
  trial.result(DType::i64, w.index.numel() * w.classes);
  trial.work = w;
}

template <>
void draw<Nonzero>(Random& random, Trial& trial) {
  Nonzero w;
  w.x = random.layout(random.dtype(), random.shape(0, 4));
  trial.operand(w.x, random.pick({Values::few, Values::special}));
  for (int64_t i = 0; i < w.x.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (int d = w.x.rank(); d-- > 0; rest /= w.x.shape[d])
      at += rest % w.x.shape[d] * w.x.strides[d];
    w.count += trial.get(0, at) != 0;
  }
  trial.result(DType::i64, w.count * w.x.rank());
  if (random.chance(0.1)) ++w.count;  // which it refuses
  trial.work = w;
}

template <>
void draw<RandomBits>(Random& random, Trial& trial) {
  RandomBits w;
  w.key_stride = random.pick<int64_t>({0, 1, 3});
  w.keys = random.pick<int64_t>({0, 1, 1, 4});
  w.keys_stride = random.pick<int64_t>({0, 1, 2, 7});
  w.count = random.chance(0.05) ? 70'001 : random.between(0, 300);
  w.by_block = random.chance(0.5);
  trial.operand(DType::i64, 1 + w.key_stride + 4 * w.keys_stride);
  trial.result(DType::i64, w.keys * w.count);
  trial.work = w;
}

namespace {

Layout draw_matrices(Random& random, Trial& trial, int64_t m, int64_t n) {
  Sizes shape = random.shape(0, 2);
  for (int64_t& size : shape) size = std::min<int64_t>(size, 6);
  shape.push_back(m);
  shape.push_back(n);
  Layout l = random.layout(random.floating(), shape, false);
  if (l.rank() > 2 && random.chance(0.2)) l.strides[0] = 0;
  trial.operand(l, Values::unit);
  return l;
}

Layout draw_matrices(Random& random, Trial& trial, int64_t n) {
  return draw_matrices(random, trial, n, n);
}

// Calls f(place of element [i, j]) for all matrices.
template <class F>
void for_each_matrix(const Layout& l, F f) {
  const int64_t size = l.shape[l.shape.size() - 2] * l.shape.back();
  for (int64_t number = 0; size > 0 && number < l.numel() / size; ++number) {
    int64_t at = 0, rest = number;
    for (int d = l.rank() - 2; d-- > 0; rest /= l.shape[d]) at += rest % l.shape[d] * l.strides[d];
    f([&, at](int64_t i, int64_t j) {
      return at + i * l.strides[l.strides.size() - 2] + j * l.strides.back();
    });
  }
}

}  // namespace

namespace {

// Of more rows than columns for some. Elements on the diagonal lie apart, so that there are as many
// singular values and eigenvalues.
void draw_factorisation(Random& random, Trial& trial, Factor w) {
  const bool square = w.function == MatrixFunction::eigh || w.function == MatrixFunction::exp;
  const bool wide = w.function == MatrixFunction::lu && random.chance(0.3);
  const int64_t n = random.between(0, 6), m = square ? n : n + random.between(0, 3);
  w.x = draw_matrices(random, trial, wide ? n : m, wide ? m : n);
  const int64_t rows = w.x.shape[w.x.shape.size() - 2], columns = w.x.shape.back();
  const int64_t count = rows * columns == 0 ? 0 : w.x.numel() / (rows * columns);
  const double step = w.function == MatrixFunction::exp ? 0.3 : 3;
  for_each_matrix(w.x, [&](auto at) {
    for (int64_t i = 0; i < std::min(rows, columns); ++i)
      trial.set(0, at(i, i), step * static_cast<double>(i + 1) * (random.chance(0.5) ? 1 : -1.2));
  });
  const int64_t stacked =
      rows * columns == 0 ? numel(std::span(w.x.shape).first(w.x.shape.size() - 2)) : count;
  auto result = [&](DType dtype, int64_t elements) { trial.result(dtype, stacked * elements); };
  const DType dtype = w.x.dtype;
  switch (w.function) {
    case MatrixFunction::lu:
      result(dtype, rows * columns);
      result(DType::i32, std::min(rows, columns));
      result(DType::i64, rows);
      break;
    case MatrixFunction::qr:
      result(dtype, rows * columns);
      result(dtype, columns * columns);
      break;
    case MatrixFunction::eigh:
      result(dtype, columns);
      result(dtype, columns * columns);
      break;
    case MatrixFunction::svd:
      result(dtype, rows * columns);
      result(dtype, columns);
      result(dtype, columns * columns);
      break;
    default:
      result(dtype, columns * columns);
  }
  trial.slack = [e = epsilon_of(dtype)](int, int64_t, double evaluated) {
    return 1e-11 + 2 * e * std::fabs(evaluated);
  };
  trial.work = std::move(w);
}

}  // namespace

template <>
void draw<Factor>(Random& random, Trial& trial) {
  Factor w;
  w.function = static_cast<MatrixFunction>(random.between(0, 8));
  if (w.function > MatrixFunction::cofactor) {
    w.op = ops::find(w.function == MatrixFunction::eigh ? "eigh" : "lu_factor");
    return draw_factorisation(random, trial, std::move(w));
  }
  w.op = ops::find(name_of(w.function));
  const int64_t n = random.between(0, 7);
  w.x = draw_matrices(random, trial, n);
  // A large element in each row and column, anywhere: pivots have to be looked for.
  const Sizes columns = random.permutation(n);
  for_each_matrix(w.x, [&](auto at) {
    for (int64_t i = 0; i < n && w.function != MatrixFunction::cholesky; ++i)
      trial.set(0, at(i, columns[i]), (random.chance(0.5) ? 1 : -1) * static_cast<double>(n + 1));
    if (w.function != MatrixFunction::cholesky) return;
    for (int64_t i = 0; i < n; ++i) {
      trial.set(0, at(i, i), static_cast<double>(n + 1));
      for (int64_t j = 0; j < i; ++j) trial.set(0, at(j, i), trial.get(0, at(i, j)));
    }
  });
  // One that has no inverse, or no factor; of which other functions are zero.
  if (n > 0 && w.x.numel() > 0 && random.chance(0.2))
    for (int64_t j = 0; j < n; ++j)
      trial.set(0, (n - 1) * w.x.strides[w.x.strides.size() - 2] + j * w.x.strides.back(), 0.0);
  const bool det = w.function == MatrixFunction::det;
  trial.result(w.x.dtype, det ? numel({w.x.shape.data(), w.x.shape.size() - 2}) : w.x.numel());
  if (w.function == MatrixFunction::cholesky) return trial.work = std::move(w), void();
  // Elements of matrices of size n are at most n + 1, and of rows 2n + 1 together.
  const double largest =
      w.function == MatrixFunction::inverse ? 1 : std::pow(2 * static_cast<double>(n) + 1, n);
  trial.slack = [largest, e = epsilon_of(w.x.dtype)](int, int64_t, double evaluated) {
    return 1e-13 * largest + 2 * e * std::fabs(evaluated);
  };
  trial.work = std::move(w);
}

template <>
void draw<Fourier>(Random& random, Trial& trial) {
  Fourier w;
  Sizes shape = random.shape(1, 3, 300);
  w.dim = static_cast<int>(random.between(0, static_cast<int64_t>(shape.size()) - 1));
  // Of small factors, of a large prime, of any.
  int64_t& n = shape[static_cast<size_t>(w.dim)];
  n = random.pick<int64_t>({n, 8, 12, 30, 64, 67, 134, random.between(0, 200)});
  w.scale = random.pick<double>({1, 0.5, 1 / static_cast<double>(n + 1)});
  const int form = static_cast<int>(random.between(0, 3));  // complex, complex, of real, to real
  if (form >= 2) n = std::max<int64_t>(n, 1);
  w.inverse = form == 3 || (form < 2 && random.chance(0.5));
  w.of_real = form == 2;
  w.real_size = form == 3 ? n : 0;
  Sizes result = shape;
  if (w.of_real) result[static_cast<size_t>(w.dim)] = n / 2 + 1;
  if (form == 3) n = n / 2 + 1;
  if (form != 2) shape.push_back(2);
  if (form != 3) result.push_back(2);
  w.x = random.layout(random.floating(), shape);
  trial.operand(w.x, Values::unit);
  int64_t elements = 1;
  for (int64_t size : result) elements *= size;
  trial.result(w.x.dtype, elements);
  trial.slack = [e = epsilon_of(w.x.dtype)](int, int64_t, double y) {
    return 1e-11 + 2 * e * std::fabs(y);
  };
  trial.work = w;
}

template <>
void draw<Solve>(Random& random, Trial& trial) {
  Solve w;
  w.upper = random.chance(0.5);
  w.transpose = random.chance(0.5);
  w.general = random.chance(0.4);
  w.op = ops::find(w.general ? "square_solve" : "triangular_solve");
  const int64_t n = random.between(0, 9);
  w.a = draw_matrices(random, trial, n);
  for_each_matrix(w.a, [&](auto at) {
    for (int64_t i = 0; i < n; ++i) trial.set(0, at(i, i), random.real(0.5, 2));
    if (w.general && n > 0 && random.chance(0.1))  // a singular one
      for (int64_t i = 0; i < n; ++i) trial.set(0, at(i, n / 2), 0.0);
  });
  Sizes shape = w.a.shape;
  shape.back() = random.between(0, 5);
  w.b = random.layout(w.a.dtype, shape);
  trial.operand(w.b, random.values());
  trial.result(w.b.dtype, w.b.numel());
  trial.work = std::move(w);
}

// Of a group of one rank, where calls copy. tests/ranks has groups of more.
template <>
void draw<Collective>(Random& random, Trial& trial) {
  Collective w;
  w.kind = random.pick({CollectiveKind::all_reduce, CollectiveKind::all_gather,
                        CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
                        CollectiveKind::broadcast, CollectiveKind::shift});
  w.reducer = random.pick({CollectiveReducer::sum, CollectiveReducer::max, CollectiveReducer::min});
  w.group = "alone";
  Sizes shape = random.shape(1, 3, 300);
  if (w.kind == CollectiveKind::reduce_scatter || w.kind == CollectiveKind::all_to_all)
    shape[0] = 1;
  w.x = random.layout(random.floating(), shape);
  w.ranks = random.pick<int64_t>({-1, 1});
  if (w.kind == CollectiveKind::shift) w.peer = random.between(-3, 3);
  trial.operand(w.x, Values::unit);
  w.begins = w.x.contiguous() && random.between(0, 1) == 1;
  trial.result(w.x.dtype, w.x.numel());
  if (w.begins) trial.result(DType::i64, 1);
  trial.work = std::move(w);
}

template <>
void draw<CollectiveEnd>(Random&, Trial& trial) {
  trial.operand(Layout(DType::i64, {1}), Values::unit);
  trial.work = CollectiveEnd{"alone"};
}

template <>
void draw<OwnRank>(Random&, Trial& trial) {
  trial.result(DType::i64, 1);
  trial.work = OwnRank{"alone"};
}

template <>
void draw<OwnBlock>(Random& random, Trial& trial) {
  Sizes shape = random.shape(1, 3, 300);
  shape[0] = 1;
  OwnBlock w{"alone", random.layout(random.floating(), shape)};
  trial.operand(w.x, Values::unit);
  trial.result(w.x.dtype, w.x.numel());
  trial.work = std::move(w);
}

template <>
void draw<Foreign>(Random& random, Trial& trial) {
  const int64_t count = random.between(0, 100);
  auto reverse = [](const void* parameters, std::byte* const* args, KernelScope& scope) {
    const int64_t n = *static_cast<const int64_t*>(parameters);
    std::memcpy(scope.scratch, args[0], static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) args[1][i] = scope.scratch[n - 1 - i];
  };
  trial.operand(DType::u8, count);
  trial.result(DType::u8, count);
  trial.work = foreign(Kernel::of(reverse, count, static_cast<size_t>(count)));
}

}  // namespace gradus::work::test
