// Putting elements in order, and finding places in an order.
#include <bit>

#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

void sort_rule(Call& c) {
  Value x = c.x();
  auto out =
      emit_all(c.world(), c.ours(), std::array{as_row(x)},
               {{"dim", c.dim("dim", -1, x.rank())}, {"descending", c.flag("descending", false)}});
  for (const Value& y : out) c.give(x.rank() == 0 ? squeeze(y, 0) : y);
}

void rows_sort_rule(Call& c) {
  Value x = c.x();
  Value y = emit("sort", {as_row(x)}, {{"dim", 0}});
  c.give(x.rank() == 0 ? squeeze(y, 0) : y);
}

void topk_rule(Call& c) {
  Value x = c.x();
  auto out = emit_all(c.world(), "topk", std::array{as_row(x)},
                      {{"k", c.size("k")},
                       {"dim", c.dim("dim", -1, x.rank())},
                       {"largest", c.flag("largest", true)}});
  for (const Value& y : out) c.give(x.rank() == 0 ? squeeze(y, 0) : y);
}

void kthvalue_rule(Call& c) {
  Value x = c.x();
  const int64_t dim = c.dim("dim", -1, x.rank());
  auto out =
      emit_all(c.world(), "kthvalue", std::array{as_row(x)}, {{"k", c.size("k")}, {"dim", dim}});
  const bool keepdim = x.rank() > 0 && c.flag("keepdim", false);
  for (const Value& y : out) c.give(keepdim ? unsqueeze(y, dim) : y);
}

// How often n elements can be halved until none is left.
int64_t halvings_of(const Dim& n) {
  constexpr int64_t of_any_size = 40;  // more elements fit into no memory
  return n.is_constant() ? std::bit_width(static_cast<uint64_t>(n.value())) : of_any_size;
}

// Rows in ascending order, read at places: of one row at any, of several row by row.
struct Sequences {
  Value rows;
  Value at(const Value& places) const {
    if (rows.rank() > 1) return ops::gather(rows, places, rows.rank() - 1);
    return reshape(ops::index_select(rows, flat(places), 0), places.dims());
  }
};

// The first place whose element is not below x, or with `right` is above it. What is left between
// `low` and `high` is halved as ATen does it, so that NaN and rows in no order give its places.
Value place_in_order(const Value& rows, const Value& x, const Dims& shape, bool right) {
  const Dim n = rows.dims().back();
  Value low = full(*rows.world, shape, 0, DType::i64);
  Value high = low + Value::number(n);
  const Sequences sequences{pad_zeros(rows, rows.rank() - 1, 0, 1)};  // no place lies outside
  for (int64_t left = halvings_of(n); left > 0; --left) {
    Value middle = binary("bitwise_right_shift", low + high, num(int64_t{1}));
    Value element = sequences.at(middle);
    Value stops = right ? gt(element, x) : ge(element, x);
    Value below = logical_and(lt(low, high), logical_not(stops));
    low = where(below, middle + num(int64_t{1}), low);
    high = where(below, high, middle);
  }
  return low;
}

void place_in_order_rule(Call& c) {
  Value rows = c.x(c.given("boundaries") ? "boundaries" : "sorted_sequence"), x = c.x();
  need_dims(rows, 1, "its sequence");
  if (rows.rank() > 1 && x.is_number()) c.fail("a number wants one sequence, not several");
  if (c.given("sorter")) rows = ops::gather(rows, cast(c.x("sorter"), DType::i64), rows.rank() - 1);
  const bool right = c.flag("right", false) || c.text("side", "left") == "right";
  const Dims shape = x.is_number() ? Dims() : x.dims();
  c.give(cast(place_in_order(rows, x, shape, right), c.result().dtype));
}

constexpr RuleEntry sorting_table[] = {
    {"sort", sort_rule},
    {"argsort", sort_rule},
    {"msort", rows_sort_rule},
    {"topk", topk_rule},
    {"kthvalue", kthvalue_rule},
    {"searchsorted", place_in_order_rule},
    {"bucketize", place_in_order_rule},
};

}  // namespace

constinit const Rules sorting_rules = sorting_table;

}  // namespace gradus::pt2
