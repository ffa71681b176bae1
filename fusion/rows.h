// How a kernel runs over the rows of a nest.
#pragma once

#include "fusion/nest.h"

namespace gradus::fusion {

// A row is run over once for each level of reductions, and once more for what is stored of its
// elements. A value of an element is computed anew in each of these loops that needs it: a row is
// near by then. Only what costs a function is kept meanwhile, where a result of its dtype will lie.
struct RowLoops {
  // A step whose values wait in a store's place: written by one loop, read by those after it.
  struct Kept {
    ValueNumber value;
    size_t store;  // index into Nest::stores
    int loop;
  };
  // What a loop reads, computes and keeps of single elements.
  struct Loop {
    std::vector<ValueNumber> wanted;  // what it reduces, stores, or adds to columns
    std::vector<bool> loads, steps;
    std::vector<size_t> reads, writes;  // indices into `kept`
  };

  RowFacts facts;
  int levels = 0;
  std::vector<Kept> kept;
  std::vector<Loop> loops;  // those of the levels 1, 2, ..; the last one stores

  const Loop& of_level(int level) const { return loops[static_cast<size_t>(level) - 1]; }
  const Loop& storing() const { return loops.back(); }
};
RowLoops row_loops(const Nest& nest);

}  // namespace gradus::fusion
