// Reductions of what goes to one place.
#pragma once

#include "ops/selection.h"
#include "ops/shape.h"

namespace gradus::ops {

// Places that no index names keep x. With include_self a place's x counts as one more element.
// sum and mean are by scatter_add. prod runs along the elements in the order of their places, so
// that its derivatives are polynomials, whatever is zero. amax and amin write the elements in their
// order; equal ones, x among them, share the derivative evenly, and NaN is greatest and least.
struct ScatterReduce {
  static constexpr std::string_view name = "scatter_reduce";
  static constexpr std::string_view doc =
      "y = x; y[i, index[i, j, ..], ..] = the sum, prod, mean, amax or amin of src's elements "
      "there";
  static constexpr std::array inputs{"x"sv, "index"sv, "src"sv};
  struct Attr {
    int64_t dim = 0;
    std::string reduce;
    bool include_self = true;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), required("reduce", &Attr::reduce),
                        field("include_self", &Attr::include_self));
    }
  };
  static bool vjp_holds(const ir::Attributes& a) {
    const std::string& reduce = attributes_as<Attr>(a).reduce;
    return reduce == "amax" || reduce == "amin";
  }
  static BatchedResults batch(const BatchedCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

}  // namespace gradus::ops
