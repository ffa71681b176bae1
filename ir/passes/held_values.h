// What values are memory of their own, and which of it is held between stages.
#pragma once

#include <optional>
#include <vector>

#include "gradus/passes.h"
#include "gradus/tensor.h"

namespace gradus::ir {

// The values of a lowered graph for known sizes. Valid until the graph's nodes change.
class HeldValues {
 public:
  // Throws Error where a size of an input is missing, and as operators' `bind` does.
  HeldValues(const Graph& graph, const MemoryBudget& sizes);

  struct Maker {
    uint32_t stage = 0, node = 0;
  };
  // How many values there were.
  size_t size() const { return of_.size(); }
  // The node that makes it; none of an input.
  const std::optional<Maker>& maker(ValueId v) const { return of_[index_of(v)].maker; }
  // The value whose memory it lies in: itself, if it is no view.
  ValueId root(ValueId v) const { return of_[index_of(v)].root; }
  bool is_view(ValueId v) const { return root(v) != v; }
  // Whether sizes of inputs settle how large it is.
  bool is_known(ValueId v) const { return of_[index_of(v)].layout.has_value(); }
  // Of a tensor of its own, in units of places; an Error where data decides its size.
  int64_t bytes(ValueId v) const;
  // Whether the caller or the program has its memory after the stage, whoever reads it.
  bool is_free(ValueId v, size_t stage) const;
  // By value: whether it is memory that stages up to this one have made and later ones read.
  std::vector<bool> held_after(size_t stage) const;
  int64_t sum(const std::vector<bool>& roots) const;

 private:
  struct Of {
    std::optional<Maker> maker;
    ValueId root = no_value;
    std::optional<Layout> layout;    // none: data decides a size, or no tensor
    bool constant = false;           // of the program, or absent
    uint32_t returned = UINT32_MAX;  // of a root: the first stage that returns it
  };
  void define(ValueId v, const DimEnvironment& sizes);
  void find_views(const Node& node, const DimEnvironment& sizes);

  const Graph& graph_;
  std::vector<Of> of_;  // by value
};

}  // namespace gradus::ir
