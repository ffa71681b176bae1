// Makes plans: instructions that only move elements are read by kernels where their operands are.
#include <algorithm>
#include <cstring>

#include "interpreter/planner.h"
#include "work/index.h"

namespace gradus::interpreter {

// What an instruction is to a kernel that reads its operands in its place, if it is such a one.
std::optional<fusion::Edge> Planner::edge_at(uint32_t index) {
  const Instruction& i = instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || !bound_[index].work)
    return std::nullopt;
  const Register y = results_of(index)[0];
  if (y == no_register || local(y).kind != Local::Kind::slot || local(y).root != y)
    return std::nullopt;
  std::vector<std::optional<Layout>> in;
  for (uint32_t k = 0; k < i.operands; ++k) {
    const Register r = stage_code_.operands[i.first_operand + k].reg;
    const bool there = r != no_register && local(r).kind != Local::Kind::absent;
    in.push_back(there ? std::optional(local(r).layout) : std::nullopt);
  }
  return fusion::edge_of(node(index), in, local(y).layout, sizes_);
}

// A view that only says the shape otherwise, and is all that reads an edge, stands for it.
void Planner::find_edges() {
  seen_by_view_.assign(bound_.size(), false);
  if (choice_.device) return;            // its kernels read no edges
  std::map<Register, uint32_t> waiting;  // results that are read once, and whose
  for (uint32_t n = 0; n < bound_.size(); ++n) {
    const Instruction& i = instruction(n);
    if (i.operands == 1 && i.results == 1 && !bound_[n].acts()) {
      const auto of = waiting.find(stage_code_.operands[i.first_operand].reg);
      const Register y = results_of(n)[0];
      if (of != waiting.end() && is_met(y)) {
        fusion::Edge edge = edges_.at(of->second).edge;
        const Local& view = local(y);
        const bool same = view.root == of->first && view.offset == local(of->first).offset &&
                          view.layout.contiguous() && view.layout.numel() == edge.layout.numel();
        if (same && fusion::reshape(edge, view.layout.shape)) {
          edge.result = node(n).results[0];
          seen_by_view_[of->second] = true;
          edges_.erase(of->second);
          edges_.insert({n, {of->second, std::move(edge)}});
          waiting.erase(of);
        }
      }
    }
    auto edge = edge_at(n);
    if (!edge) continue;
    const Register y = results_of(n)[0];
    if (uses_[local_numbers_[index_of(y)]] == 1) waiting.emplace(y, n);
    edges_.insert({n, {n, std::move(*edge)}});
  }
}

// Tells the finder of an instruction that stands for an edge; false for all others.
bool Planner::add_edge(uint32_t index, GroupFinder& finder, std::span<const uint32_t> makers,
                       std::span<const Register> loads) {
  const auto found = edges_.find(index);
  if (found == edges_.end()) return false;
  GroupFinder::Loops loops{found->second.edge.layout.shape, {}, false};
  loops.edge = true;
  const Instruction& i = instruction(found->second.instruction);
  SmallVector<Register, 4> read(loads.begin(), loads.end());
  if (found->second.instruction != index) {
    read.clear();
    for (uint32_t k = 0; k < i.operands; ++k)
      read.push_back(stage_code_.operands[i.first_operand + k].reg);
  }
  finder.add(index, loops, makers, {read.data(), read.size()});
  return true;
}

const fusion::Edge* Planner::edge_of(uint32_t member) const {
  const auto found = edges_.find(member);
  return found == edges_.end() ? nullptr : &found->second.edge;
}

// The members without edges that none of them reads, or that a view stands for and others read; or
// without any.
SmallVector<uint32_t, 16> Planner::with_edges(std::span<const uint32_t> members, bool none) const {
  SmallVector<uint32_t, 16> kept;
  for (uint32_t n : members) {
    const auto found = edges_.find(n);
    if (found != edges_.end()) {
      const Register y = results_of(n)[0];
      uint32_t reads = 0;
      for (uint32_t other : members) {
        if (edges_.contains(other)) continue;
        const Instruction& i = instruction(other);
        for (uint32_t k = 0; k < i.operands; ++k)
          reads += stage_code_.operands[i.first_operand + k].reg == y;
      }
      const bool viewed = found->second.instruction != n;
      if (none || reads == 0 || (viewed && reads < uses_[local_numbers_[index_of(y)]])) continue;
    }
    kept.push_back(n);
  }
  return kept;
}

// The arguments of edges.
void Planner::place_edges(const Members& m, const fusion::Group& group, uint32_t last) {
  auto operand = [&](size_t edge, uint32_t k) {
    return stage_code_.operands[instruction(m.edge_instructions[edge]).first_operand + k].reg;
  };
  for (const fusion::Group::Argument& a : group.arguments) {
    const fusion::Edge& edge = m.edges[a.edge];
    if (a.operand) {
      const Register r = operand(a.edge, *a.operand);
      args_.push_back({BoundArg::Kind::value, r});
      Local& root = local(local(r).root);
      root.last_use = std::max(root.last_use, last);
      continue;
    }
    const work::Pattern pattern = work::pattern_of(edge.fill, edge.layout.dtype);
    const size_t bytes = size_of(edge.layout.dtype), n = static_cast<size_t>(a.filled);
    plan_->numbers.push_back(std::make_unique<std::byte[]>(n * bytes));
    for (size_t k = 0; k < n; ++k)
      std::memcpy(plan_->numbers.back().get() + k * bytes, pattern.data(), bytes);
    args_.push_back({BoundArg::Kind::fixed, no_register, plan_->numbers.back().get()});
    number_at_ = number_block;  // the last of them is no block of numbers
  }
}

// What is left of an instruction that reads at an index is to check it, in its place: an error is
// the one that it would give.
void Planner::place_checks(const Members& m) {
  for (size_t e = 0; e < m.edges.size(); ++e) {
    const uint32_t n = m.edge_instructions[e];
    bound_[n] = {};
    bound_[n].group = static_cast<uint32_t>(plan_->groups.size());
    // One that a view stands for; others are among what the group makes.
    if (seen_by_view_[n]) local(results_of(n)[0]).kind = Local::Kind::inside;
    if (!m.edges[e].index) continue;
    const fusion::Edge::Index& index = *m.edges[e].index;
    Bound& bound = bound_[n] = {};
    bound.work = std::make_shared<const work::Work>(
        work::index_check(*m.edges[e].node->op, index.check, index.shape));
    bound.checks = true;
    bound.first_arg = static_cast<uint32_t>(args_.size());
    bound.args = 1;
    args_.push_back(
        {BoundArg::Kind::value,
         stage_code_.operands[instruction(n).first_operand + fusion::Edge::index_operand].reg});
  }
}

}  // namespace gradus::interpreter
