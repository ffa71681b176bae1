// Instructions that only move elements, which kernels read where their operands are.
#pragma once

#include <map>

#include "interpreter/plan/draft.h"
#include "interpreter/plan/find_groups.h"

namespace gradus::interpreter {

// The members of a group.
struct Members {
  SmallVector<const ir::Node*, 16> nodes;
  SmallVector<Register, 16> made, read;  // by the group; read as often as members do
  SmallVector<Register, 16> inputs;      // read, and made elsewhere
  std::vector<Layout> layouts;           // of the inputs
  SmallVector<Register, 16> stored;      // of `made`: read elsewhere
  // Views of `made` that say for each element of a row what the row has.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> aliases;
  std::vector<fusion::Edge> edges;
  SmallVector<uint32_t, 4> edge_instructions;
};

// Edges by who stands for them in groups: the instruction, or a view of its result that is all that
// reads it.
class Edges {
 public:
  // `uses`: see count_uses. Both outlive it.
  Edges(Draft& draft, const std::vector<uint32_t>& uses) : d(draft), uses_(uses) {}
  void find();
  // Tells the finder of an instruction that stands for an edge; false for all others.
  bool add(uint32_t index, GroupFinder& finder, std::span<const uint32_t> makers,
           std::span<const Register> loads) const;
  // The edge that a member stands for, if it does, and whose it is.
  const fusion::Edge* of(uint32_t member) const;
  uint32_t instruction_of(uint32_t member) const { return edges_.at(member).instruction; }
  // The members without edges that none of them reads, or that a view stands for and others read;
  // or without any.
  SmallVector<uint32_t, 16> kept(std::span<const uint32_t> members, bool none) const;
  // Appends the arguments of a group's edges.
  void place_arguments(const Members& m, const fusion::Group& group, uint32_t last);
  // What is left of an instruction that reads at an index is to check it, in its place: an error is
  // the one that it would give.
  void place_checks(const Members& m);

 private:
  std::optional<fusion::Edge> edge_at(uint32_t index);

  struct Placed {
    uint32_t instruction;
    fusion::Edge edge;
  };
  Draft& d;
  const std::vector<uint32_t>& uses_;
  std::map<uint32_t, Placed> edges_;
  std::vector<bool> seen_by_view_;  // by instruction: a view stands for it
};

}  // namespace gradus::interpreter
