// Reductions over chosen dimensions. `dim = none` (or an empty list) means all of them.
#pragma once

#include "ops/reduction_rules.h"
#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Sum {  // y = sum of x over dim
  static constexpr auto name = "sum"sv, doc = "y = sum of x over dim; integers and bool add up as i64"sv;
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    std::optional<Ints> dim;
    bool keepdim = false;
    static constexpr auto fields() {
      return std::tuple(field("dim", &Attr::dim), field("keepdim", &Attr::keepdim));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // dx = dy, expanded
};

using ReductionOperators = std::tuple<Sum>;

}  // namespace gradus::ops
