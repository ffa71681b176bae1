// Work bound before: programs repeat few operators on few layouts.
#pragma once

#include <vector>

#include "ops/bind.h"

namespace gradus::ops {

// A small table from (operator, attributes, layouts) to what its `bind` chose, the latest in each
// place. One set of dimension sizes per memo. One thread at a time.
class KernelMemo {
 public:
  struct Entry {
    const ir::Operator* op = nullptr;
    ir::Attributes attributes;
    SmallVector<Layout, 2> in, wanted;  // the operands', and the results' as the type rule has them
    SmallVector<bool, 8> present, number;
    SmallVector<Layout, 1> out;
    SmallVector<BindCall::View, 2> views;
    work::WorkRef work;
  };

  // Given   a call whose `out` holds the results' layouts
  // Result  what `call.op.bind` makes of it, from memory where the same was asked before. Throws
  //         what it throws. Good until the next call.
  const Entry& bind(BindCall& call);

 private:
  static constexpr size_t size = 64;
  std::vector<Entry> entries_;
};

}  // namespace gradus::ops
