// Trials of work that runs over elements of one dimension or of several.
#include "tests/work/trial.h"

namespace gradus::work::test {

namespace {

DType result_of(Random& random, Reducer reducer, DType in) {
  if (random.chance(0.2)) return random.dtype();
  if (reducer == Reducer::all || reducer == Reducer::any) return DType::boolean;
  const bool counts = reducer == Reducer::sum || reducer == Reducer::prod;
  return counts && !is_floating(in) ? DType::i64 : in;
}

Sizes some_dimensions(Random& random, size_t rank) {
  Sizes dims;
  for (size_t d = 0; d < rank; ++d)
    if (random.chance(0.5)) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// Few sums of many elements: of several chunks, or of so many that workers share a sum.
Sizes long_shape(Random& random) {
  Sizes shape{random.between(1, 20), random.between(1000, 8000)};
  if (random.chance(0.2)) shape = {random.between(1, 3), random.between(60'000, 90'000)};
  if (random.chance(0.5)) std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

template <>
void draw<Reduce>(Random& random, Trial& trial) {
  const auto reducer =
      random.chance(0.4) ? Reducer::sum : static_cast<Reducer>(random.between(0, 5));
  const bool is_long = random.chance(0.3);
  const DType dtype = random.chance(0.4) ? random.pick({DType::f64, DType::f32}) : random.dtype();
  const Layout x = random.layout(dtype, is_long ? long_shape(random) : random.shape(0, 4));
  Sizes dims = some_dimensions(random, x.shape.size());
  if (is_long) dims = {x.shape[0] > x.shape[1] ? 0 : 1};
  Reduce w = reduce(reducer, x, dims, result_of(random, reducer, x.dtype));
  trial.operand(x, random.values());
  trial.result(w.out, w.outputs);
  trial.work = std::move(w);
}

template <>
void draw<Extremum>(Random& random, Trial& trial) {
  const Layout x = random.layout(random.dtype(), random.nonempty_shape(0, 4));
  const bool gives_value = random.chance(0.5);
  Extremum w = extremum(random.chance(0.5), x, some_dimensions(random, x.shape.size()),
                        gives_value ? 0 : -1, gives_value ? 1 : 0);
  trial.operand(x, random.values());
  if (gives_value) trial.result(x.dtype, w.outputs);
  trial.result(DType::i64, w.outputs);
  trial.work = std::move(w);
}

template <>
void draw<Scan>(Random& random, Trial& trial) {
  Scan w;
  w.next = static_cast<ScanStep>(random.between(0, 4));
  w.exclusive = random.chance(0.5);
  w.reverse = random.chance(0.5);
  const bool cut = w.next == ScanStep::cut_recurrence;
  const bool two = w.next == ScanStep::recurrence || cut;
  const bool floating = w.next == ScanStep::recurrence || w.next == ScanStep::log_sum_exp;
  const DType dtype = floating ? random.floating() : random.dtype();
  const Sizes shape = random.shape(0, 4);
  const int64_t rank = static_cast<int64_t>(shape.size());
  w.dim = rank ? static_cast<int>(random.between(0, rank - 1)) : 0;
  const Values values = random.values();
  for (int k = two ? 2 : 1; k > 0; --k) {
    w.in.push_back(random.layout(dtype, shape));
    trial.operand(w.in.back(), values);
  }
  if (cut) {
    w.in.push_back(random.layout(DType::boolean, shape));
    trial.operand(w.in.back(), values);
  }
  w.out = is_floating(dtype) ? dtype : DType::i64;
  trial.result(w.out, numel(shape));
  trial.work = std::move(w);
}

template <>
void draw<RunningMax>(Random& random, Trial& trial) {
  const Layout x = random.layout(random.dtype(), random.shape(0, 4));
  trial.operand(x, random.values());
  trial.result(x.dtype, x.numel());
  trial.result(DType::i64, x.numel());
  trial.work = RunningMax{x, x.rank() ? static_cast<int>(random.between(0, x.rank() - 1)) : 0};
}

template <>
void draw<Sort>(Random& random, Trial& trial) {
  // Its meaning compares each with each.
  Sizes shape = random.nonempty_shape(1, 3, random.chance(0.04) ? 600 : 12);
  shape.back() = random.chance(0.06) ? 0 : random.between(1, 130);
  const Layout x = random.layout(random.dtype(), shape);
  trial.operand(x, random.values());
  Sort w;
  w.x = x;
  w.rows = x.shape.back() == 0 ? 0 : x.numel() / x.shape.back();
  w.kept = random.chance(0.5) ? x.shape.back() : random.between(0, x.shape.back());
  w.descending = random.chance(0.5);
  if (w.kept == 0) w.rows = 0;
  // As rows, or as columns of matrices.
  if (w.rows > 0 && random.chance(0.5)) {
    w.inner = x.shape.size() > 1 ? x.shape[x.shape.size() - 2] : 1;
    w.step = w.inner;
  }
  w.outer_stride = w.inner * w.kept;
  for (DType dtype : {x.dtype, DType::i64}) trial.result(dtype, w.rows * w.kept);
  trial.work = std::move(w);
}

}  // namespace gradus::work::test
