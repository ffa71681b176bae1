// How many elements fall into each of several bins. As in ATen, no derivative passes.
#include "io/pt2/operands.h"
#include "io/pt2/search.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// Of each bin the weights of its elements, added up. Elements for which `inside` is false are in no
// bin.
Value filled(const Value& bin, const Value& inside, const Value& weight, const Dim& bins,
             DType dtype) {
  Value index = where(inside, bin, num(int64_t{0}));
  Value added = where(inside, weight, zeros_like(weight));
  Value none = full(*bin.world, {bins}, 0, dtype);
  return scatter_add(none, flat(index), flat(cast(added, dtype)), 0);
}

// The outer edges.
struct Range {
  Value low, high;
};

// Equal ends are moved apart by 1.
Range given_range(Call& c, const Value& x, double low, double high) {
  auto number = [&](double v) { return full(c.world(), {}, v, x.dtype()); };
  if (!(low <= high)) c.fail("its range is from {} to {}; the first has to be less", low, high);
  const double apart = low == high ? 0.5 : 0;
  return {number(low - apart), number(high + apart)};
}

bool has_elements(const Value& x) { return ir::numel(x.dims()) != Dim(0); }

// Of data that have elements.
Range range_of_data(const Value& x) {
  Value least = emit("amin", {flat(x)}), most = emit("amax", {flat(x)});
  Value apart = where(eq(least, most), num(0.5), num(0.0));
  return {least - apart, most + apart};
}

Value is_within(const Value& x, const Range& r) { return logical_and(ge(x, r.low), le(x, r.high)); }

void equal_bins(Call& c) {
  Value x = detach(c.x());
  const int64_t bins = c.integer("bins", 100);
  if (bins < 1) c.fail("it has {} bins; 1 is wanted at least", bins);
  const double low = c.number("min", 0), high = c.number("max", 0);
  const Range r = low == high && has_elements(x) ? range_of_data(x) : given_range(c, x, low, high);
  Value inside = is_within(x, r);
  Value place = (where(inside, x, r.low) - r.low) * static_cast<double>(bins) / (r.high - r.low);
  Value bin = binary("minimum", cast(place, DType::i64), num(bins - 1));
  c.give(filled(bin, inside, ones_like(x), bins, c.result().dtype));
}

// Between edges, and the edges.
void give_between(Call& c, const Value& x, const Value& edges) {
  const Dim bins = size_at(edges.dims(), 0) - Dim(1);
  const Range r{select(edges, 0, 0), select(edges, 0, bins)};
  Value inside = is_within(x, r);
  // What lies on an edge is above it, on the last one below it.
  Value above = place_in_order(edges, x, true) - num(int64_t{1});
  Value bin = binary("minimum", above, Value::number(bins - Dim(1)));
  Value weight = c.given("weight") ? detach(c.x("weight")) : ones_like(x);
  Value y = filled(bin, inside, weight, bins, c.result().dtype);
  if (c.flag("density", false)) {
    Value widths = slice(edges, 0, 1, bins + Dim(1)) - slice(edges, 0, 0, bins);
    y = y / (widths * sum_all(y));
  }
  c.give(y);
  c.give(edges);
}

void bins_with_edges(Call& c) {
  Value x = detach(c.x());
  if (c.given("bins") && c.is_tensor("bins")) return give_between(c, x, detach(c.x("bins")));
  const int64_t bins = c.integer("bins", 100);
  if (bins < 1) c.fail("it has {} bins; 1 is wanted at least", bins);
  std::vector<double> ends{0, 1};
  if (c.given("range")) ends = c.numbers("range");
  if (ends.size() != 2) c.fail("its range has {} numbers; 2 are wanted", ends.size());
  const bool of_data = !c.given("range") && has_elements(x);
  const Range r = of_data ? range_of_data(x) : given_range(c, x, ends[0], ends[1]);
  give_between(c, x, evenly_spaced(r.low, r.high, bins + 1));
}

void bins_of_integers(Call& c) {
  c.fail(
      "how many bins it has depends on data; add to a tensor of a known size: "
      "torch.zeros(n).scatter_add(0, x, weights)");
}

constexpr RuleEntry histogram_table[] = {
    {"histc", equal_bins},
    {"histogram", bins_with_edges},
    {"bincount", bins_of_integers},
};

}  // namespace

constinit const Rules histogram_rules = histogram_table;

}  // namespace gradus::pt2
