// Putting elements in order, and finding places in an order.
#include "io/pt2/operands.h"
#include "io/pt2/search.h"
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

void place_in_order_rule(Call& c) {
  Value rows = c.x(c.given("boundaries") ? "boundaries" : "sorted_sequence"), x = c.x();
  need_dims(rows, 1, "its sequence");
  if (rows.rank() > 1 && x.is_number()) c.fail("a number wants one sequence, not several");
  if (c.given("sorter")) rows = ops::gather(rows, cast(c.x("sorter"), DType::i64), rows.rank() - 1);
  const bool right = c.flag("right", false) || c.text("side", "left") == "right";
  c.give(cast(place_in_order(rows, x, right), c.result().dtype));
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
