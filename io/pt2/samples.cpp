// Integrals and derivatives of functions that samples give.
#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

Value all_but_first(const Value& x, int64_t dim) {
  const Dim& n = size_at(x.dims(), dim);
  return slice(x, dim, min(n, 1), n);
}
Value all_but_last(const Value& x, int64_t dim) {
  const Dim& n = size_at(x.dims(), dim);
  return slice(x, dim, 0, max(n - Dim(1), 0));
}
Value steps_of(const Value& x, int64_t dim) { return all_but_first(x, dim) - all_but_last(x, dim); }

// A row along a dimension of y.
Value laid_along(const Value& row, const Value& y, int64_t dim) {
  need_dims(row, 1, "a row of places");
  Dims along(y.dims().size(), 1);
  along[static_cast<size_t>(dim)] = row.dims()[0];
  return reshape(row, along);
}

// Twice the areas between neighbours along a dimension: y's of one distance, or at places x.
Value areas_of(Call& c, const Value& y, int64_t dim) {
  Value ends = all_but_first(y, dim) + all_but_last(y, dim);
  if (!c.given("x")) return ends * (c.given("dx") ? c.x("dx") : num(int64_t{1}));
  Value x = in_result_dtype(c, "x");
  need_dims(x, 1, "its x");
  if (x.rank() > y.rank()) c.fail("its x has {} dimensions, and its y {}", x.rank(), y.rank());
  if (x.rank() == 1) return ends * laid_along(steps_of(x, 0), y, dim);
  while (x.rank() < y.rank()) x = unsqueeze(x, 0);
  return ends * steps_of(x, dim);
}

void integral(Call& c) {
  Value y = in_result_dtype(c, "y");
  need_dims(y, 1, "its y");
  const int64_t dim = c.dim("dim", -1, y.rank());
  c.give(sum(areas_of(c, y, dim), {dim}, false) / 2.0);
}

void running_integral(Call& c) {
  Value y = in_result_dtype(c, "y");
  need_dims(y, 1, "its y");
  const int64_t dim = c.dim("dim", -1, y.rank());
  c.give(emit("cumsum", {areas_of(c, y, dim)}, {{"dim", dim}}) / 2.0);
}

// What stands `places` further along a dimension, of the n - 2 places with two neighbours.
Value neighbour(const Value& x, int64_t dim, int64_t places) {
  const Dim& n = size_at(x.dims(), dim);
  return slice(x, dim, places, n + Dim(places - 2));
}
// One place, counted from an end.
Value place_at(const Value& x, int64_t dim, int64_t place) {
  const Dim at = place < 0 ? size_at(x.dims(), dim) + Dim(place) : Dim(place);
  return slice(x, dim, at, at + Dim(1));
}

// The derivative at the middle of three places, of the parabola through them.
Value slope_of_parabola(const Value (&y)[3], const Value& before, const Value& after) {
  Value both = before + after;
  Value left = (y[1] - y[0]) / before * (after / both);
  return left + (y[2] - y[1]) / after * (before / both);
}

// The derivative at an end: of the line through it and the next place, or of a parabola.
Value slope_at_end(const Value& y, const Value& steps, int64_t dim, bool front, int64_t order) {
  const int64_t at = front ? 0 : -1, turn = front ? 1 : -1;
  auto step = [&](int64_t i) { return place_at(steps, dim, at + turn * i); };
  auto slope = [&](int64_t i) {
    Value near = place_at(y, dim, at + turn * i), far = place_at(y, dim, at + turn * (i + 1));
    Value rise = front ? far - near : near - far;
    return rise / step(i);
  };
  if (order == 1) return slope(0);
  Value change = (slope(0) - slope(1)) * (step(0) / (step(0) + step(1)));
  return slope(0) + change;
}

Value derivative_along(Call& c, const Value& y, const Value& steps, int64_t dim) {
  const int64_t order = c.integer("edge_order", 1);
  if (order != 1 && order != 2) c.fail("its edge_order is {}; 1 or 2 is wanted", order);
  const Value around[] = {neighbour(y, dim, 0), neighbour(y, dim, 1), neighbour(y, dim, 2)};
  const Dim& n = size_at(steps.dims(), dim);
  Value before = slice(steps, dim, 0, n - Dim(1)), after = slice(steps, dim, 1, n);
  const Value parts[] = {slope_at_end(y, steps, dim, true, order),
                         slope_of_parabola(around, before, after),
                         slope_at_end(y, steps, dim, false, order)};
  return cat(parts, dim);
}

// Distances of places along a dimension: numbers or one for all, or from the places themselves.
std::vector<Value> distances(Call& c, const Value& y, const Ints& dims) {
  std::vector<Value> steps;
  const bool by_places = c.op().starts_with("gradient.tensorarray");
  const std::vector<Value> places = by_places ? c.tensors("spacing") : std::vector<Value>();
  std::vector<double> numbers(dims.size(), 1);
  if (c.op().starts_with("gradient.scalarray"))  // a list, and not "scalararray"
    numbers = c.numbers("spacing");
  else if (!by_places && c.given("spacing"))
    numbers.assign(dims.size(), c.number("spacing"));
  if ((by_places ? places.size() : numbers.size()) != dims.size())
    c.fail("its spacing is of {} dimensions, and it is of {}",
           by_places ? places.size() : numbers.size(), dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim gaps = size_at(y.dims(), dims[i]) - Dim(1);
    Value row = by_places ? steps_of(cast(places[i], y.dtype()), 0)
                          : full(c.world(), {gaps}, numbers[i], y.dtype());
    steps.push_back(laid_along(row, y, dims[i]));
  }
  return steps;
}

void derivatives(Call& c) {
  Value y = in_result_dtype(c);
  need_dims(y, 1, "its function");
  Ints dims = c.given("dim") ? dims_of(c, "dim", y.rank()) : dims_or_all(c, "dim", y.rank());
  const std::vector<Value> steps = distances(c, y, dims);
  for (size_t i = 0; i < dims.size(); ++i) c.give(derivative_along(c, y, steps[i], dims[i]));
}

constexpr RuleEntry sample_table[] = {
    {"trapezoid", integral},
    {"trapz", integral},
    {"cumulative_trapezoid", running_integral},
    {"gradient", derivatives},
};

}  // namespace

constinit const Rules sample_rules = sample_table;

}  // namespace gradus::pt2
