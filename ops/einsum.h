// Sums of products named by letters.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

// "bij,bjk->bik": each operand's dimensions are named by letters, spaces have no say; a letter that
// the result leaves out is summed over, one that an operand names twice walks its diagonal, "..."
// stands for dimensions that broadcast. Without "->" the result has the letters that occur once, in
// alphabetical order (capitals first), after "...".
// A size of 1 broadcasts against another size of the same letter.
struct Einsum {
  static constexpr auto name = "einsum"sv,
                        doc = "the sum of products that the equation names, \"ij,jk->ik\""sv;
  static constexpr std::array inputs{"t..."sv};
  struct Attr {
    std::string equation;
    static constexpr auto fields() { return std::tuple(required("equation", &Attr::equation)); }
  };
  // Operands are contracted from left to right, pairs by matmul (or mul where nothing is summed).
  static void compose(ComposeCall&, const Attr&);
};

using EinsumOperators = std::tuple<Einsum>;

}  // namespace gradus::ops
