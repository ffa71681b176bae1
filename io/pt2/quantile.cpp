// What stands at a rank: quantiles, medians, the most frequent element.
#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// Rows along the last dimension: those along a dimension of x, or all of x as one.
Value rows_of(Call& c, const Value& x) {
  if (!c.given("dim")) return flat(x);
  if (x.rank() == 0) return as_row(x);
  return emit("movedim", {x}, {{"source", c.dim("dim", x.rank())}, {"destination", -1}});
}

Value is_number(const Value& x) { return logical_not(unary("isnan", x)); }

// Ranks [.., Q] of quantiles q [Q] in sorted rows, whose NaN stand last. Without `skips_nan`, a row
// with NaN has NaN at each.
Value ranks_of(const Value& sorted, const Value& q, bool skips_nan) {
  if (skips_nan) {
    Value count = sum(cast(is_number(sorted), DType::i64), {-1}, true);
    return binary("maximum", q * cast(count - num(int64_t{1}), q.dtype()), num(0.0));
  }
  Value last = full(*q.world, {}, 0, q.dtype()) + Value::number(sorted.dims().back() - Dim(1));
  Value has_nan = emit("any", {unary("isnan", sorted)}, {{"dim", -1}, {"keepdim", true}});
  return where(has_nan, last, q * last);
}

Value at_rank(const Value& sorted, const Value& rank) {
  return ops::gather(sorted, cast(rank, DType::i64), sorted.rank() - 1);
}

Value interpolated(Call& c, const Value& sorted, const Value& rank) {
  const std::string mode = c.text("interpolation", "linear");
  if (mode == "lower") return at_rank(sorted, unary("floor", rank));
  if (mode == "higher") return at_rank(sorted, unary("ceil", rank));
  if (mode == "nearest") return at_rank(sorted, unary("round", rank));
  if (mode != "linear" && mode != "midpoint")
    c.fail("its interpolation is '{}'; linear, lower, higher, nearest or midpoint is wanted", mode);
  Value low = unary("floor", rank);
  Value weight = mode == "midpoint" ? ones_like(rank) * 0.5 : rank - low;
  Value below = at_rank(sorted, low), above = at_rank(sorted, unary("ceil", rank));
  return emit("lerp", {below, above, weight});
}

template <bool skips_nan>
void quantile(Call& c) {
  const DType dtype = c.result().dtype;
  Value rows = rows_of(c, c.x()), q = as(c.x("q"), dtype);
  if (q.is_number()) q = number_tensor(c, q, dtype);
  if (q.rank() > 1) c.fail("its q has {} dimensions; 1 is the most", q.rank());
  const bool several = q.rank() == 1;
  Value sorted = emit_all(c.world(), "sort", std::array{rows}, {{"dim", -1}})[0];
  Value y = interpolated(c, sorted, ranks_of(sorted, as_row(q), skips_nan));
  if (several) y = emit("movedim", {y}, {{"source", -1}, {"destination", 0}});
  c.give(reshape(y, c.result().sizes));
}

// The elements of rows at one place of each, and from where in the rows they are.
void give_picked(Call& c, const Value& place, std::span<const Value> sorted_and_sources) {
  for (size_t i = 0; i < 2; ++i) {
    Value y = ops::gather(sorted_and_sources[i], place, sorted_and_sources[i].rank() - 1);
    c.give(reshape(y, c.result(i).sizes));
  }
}

// The place of the middle one of those in a sorted row that are numbers, the lower one of two.
Value middle_of_numbers(const Value& sorted) {
  Value known = is_floating(sorted.dtype()) ? is_number(sorted) : ones_like(sorted);
  Value count = sum(cast(known, DType::i64), {-1}, true);
  Value last = binary("maximum", count - num(int64_t{1}), num(int64_t{0}));
  return binary("floor_divide", last, num(int64_t{2}));
}

void nanmedian_along(Call& c) {
  Value rows = rows_of(c, c.x());
  auto sorted = emit_all(c.world(), "sort", std::array{rows}, {{"dim", -1}});
  give_picked(c, middle_of_numbers(sorted[0]), sorted);
}

// Elements of a row that are equal to its middle one share the derivative evenly.
void give_middle(Call& c, const Value& row, const Value& found) {
  Value middle = detach(found);
  if (!is_floating(row.dtype())) return c.give(middle);
  // What is added is 0, and has the derivative.
  Value equal = logical_and(eq(row, middle), unary("isfinite", row));
  Value count = sum_all(cast(equal, row.dtype()));
  Value share = sum_all(keep_where(equal, row - detach(row))) / count;
  c.give(where(gt(count, num(0.0)), middle + share, middle));
}

void median_of_all(Call& c) {
  Value row = flat(c.x());
  give_middle(c, row, emit("median_dim", {row}, {{"dim", 0}}));
}

void nanmedian_of_all(Call& c) {
  Value row = flat(c.x());
  Value sorted = emit_all(c.world(), "sort", std::array{row}, {{"dim", 0}})[0];
  give_middle(c, row, reshape(ops::gather(sorted, middle_of_numbers(sorted), 0), {}));
}

// The least of the elements that come most often; of equal ones the last. NaN comes once.
void mode(Call& c) {
  Value x = c.x();
  Value rows = x.rank() == 0 ? as_row(x)
                             : emit("movedim", {x},
                                    {{"source", c.dim("dim", -1, x.rank())}, {"destination", -1}});
  const int64_t dim = rows.rank() - 1;
  const Dim n = rows.dims().back();
  auto sorted = emit_all(c.world(), "sort", std::array{rows}, {{"dim", dim}});
  const Value& s = sorted[0];
  Value differ = ne(slice(s, dim, 1, n), slice(s, dim, 0, n - Dim(1)));
  Value fresh = cast(pad_zeros(cast(differ, DType::i64), dim, 1, 0), DType::boolean);
  Value place = expand(arange(c.world(), n), rows.dims());
  Value start = emit_all(c.world(), "cummax", std::array{where(fresh, place, num(int64_t{0}))},
                         {{"dim", dim}})[0];
  // The first element that is the last one of the longest run.
  give_picked(c, emit("argmax", {place - start}, {{"dim", dim}, {"keepdim", true}}), sorted);
}

constexpr RuleEntry quantile_table[] = {
    {"quantile", quantile<false>},      {"nanquantile", quantile<true>},
    {"median.default", median_of_all},  {"nanmedian.default", nanmedian_of_all},
    {"nanmedian.dim", nanmedian_along}, {"mode", mode},
};

}  // namespace

constinit const Rules quantile_rules = quantile_table;

}  // namespace gradus::pt2
