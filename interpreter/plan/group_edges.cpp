// Planning: instructions that only move elements are read by kernels where their operands are.
#include "interpreter/plan/group_edges.h"

#include <algorithm>
#include <cstring>

#include "work/index.h"

namespace gradus::interpreter {

// What an instruction is to a kernel that reads its operands in its place, if it is such a one.
std::optional<fusion::Edge> Edges::edge_at(uint32_t index) {
  const Instruction& i = d.instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || !d.bound[index].work)
    return std::nullopt;
  const Register y = d.results_of(index)[0];
  if (y == no_register || d.local(y).kind != Local::Kind::slot || d.local(y).root != y)
    return std::nullopt;
  std::vector<std::optional<Layout>> in;
  for (uint32_t k = 0; k < i.operands; ++k) {
    const Register r = d.operand(index, k);
    const bool there = r != no_register && d.local(r).kind != Local::Kind::absent;
    in.push_back(there ? std::optional(d.local(r).layout) : std::nullopt);
  }
  return fusion::edge_of(d.node(index), in, d.local(y).layout, d.sizes);
}

// A view that only says the shape otherwise, and is all that reads an edge, stands for it.
void Edges::find() {
  seen_by_view_.assign(d.bound.size(), false);
  if (!d.choice.traits().reads_edges) return;
  std::map<Register, uint32_t> waiting;  // results that are read once, and whose
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    const Instruction& i = d.instruction(n);
    if (i.operands == 1 && i.results == 1 && !d.bound[n].acts()) {
      const auto of = waiting.find(d.stage.operands[i.first_operand].reg);
      const Register y = d.results_of(n)[0];
      if (of != waiting.end() && d.is_met(y)) {
        fusion::Edge edge = edges_.at(of->second).edge;
        const Local& view = d.local(y);
        const bool same = view.root == of->first && view.offset == d.local(of->first).offset &&
                          view.layout.contiguous() && view.layout.numel() == edge.layout.numel();
        if (same && fusion::reshape(edge, view.layout.shape)) {
          edge.result = d.node(n).results[0];
          seen_by_view_[of->second] = true;
          edges_.erase(of->second);
          edges_.insert({n, {of->second, std::move(edge)}});
          waiting.erase(of);
        }
      }
    }
    auto edge = edge_at(n);
    if (!edge) continue;
    const Register y = d.results_of(n)[0];
    if (uses_[d.local_number(y)] == 1) waiting.emplace(y, n);
    edges_.insert({n, {n, std::move(*edge)}});
  }
}

// Tells the finder of an instruction that stands for an edge; false for all others.
bool Edges::add(uint32_t index, GroupFinder& finder, std::span<const uint32_t> makers,
                std::span<const Register> loads) const {
  const auto found = edges_.find(index);
  if (found == edges_.end()) return false;
  GroupFinder::Loops loops{found->second.edge.layout.shape, {}, false};
  loops.edge = true;
  const Instruction& i = d.instruction(found->second.instruction);
  SmallVector<Register, 4> read(loads.begin(), loads.end());
  if (found->second.instruction != index) {
    read.clear();
    for (uint32_t k = 0; k < i.operands; ++k)
      read.push_back(d.operand(found->second.instruction, k));
  }
  finder.add(index, loops, makers, {read.data(), read.size()});
  return true;
}

const fusion::Edge* Edges::of(uint32_t member) const {
  const auto found = edges_.find(member);
  return found == edges_.end() ? nullptr : &found->second.edge;
}

// The members without edges that none of them reads, or that a view stands for and others read; or
// without any.
SmallVector<uint32_t, 16> Edges::kept(std::span<const uint32_t> members, bool none) const {
  SmallVector<uint32_t, 16> kept;
  for (uint32_t n : members) {
    const auto found = edges_.find(n);
    if (found != edges_.end()) {
      const Register y = d.results_of(n)[0];
      uint32_t reads = 0;
      for (uint32_t other : members) {
        if (edges_.contains(other)) continue;
        const Instruction& i = d.instruction(other);
        for (uint32_t k = 0; k < i.operands; ++k) reads += d.operand(other, k) == y;
      }
      const bool viewed = found->second.instruction != n;
      if (none || reads == 0 || (viewed && reads < uses_[d.local_number(y)])) continue;
    }
    kept.push_back(n);
  }
  return kept;
}

// The arguments of edges.
void Edges::place_arguments(const Members& m, const fusion::Group& group, uint32_t last) {
  auto operand = [&](size_t edge, uint32_t k) { return d.operand(m.edge_instructions[edge], k); };
  for (const fusion::Group::Argument& a : group.arguments) {
    const fusion::Edge& edge = m.edges[a.edge];
    if (a.operand) {
      const Register r = operand(a.edge, *a.operand);
      d.args.push_back({BoundArg::Kind::value, r});
      d.read_until(r, last);
      continue;
    }
    const work::Pattern pattern = work::pattern_of(edge.fill, edge.layout.dtype);
    const size_t bytes = size_of(edge.layout.dtype), n = static_cast<size_t>(a.filled);
    std::vector<std::byte>& filled = d.plan->numbers.emplace_back(std::max<size_t>(n * bytes, 1));
    for (size_t k = 0; k < n; ++k) std::memcpy(filled.data() + k * bytes, pattern.data(), bytes);
    d.args.push_back({BoundArg::Kind::fixed, no_register, filled.data()});
    d.end_number_block();
  }
}

// What is left of an instruction that reads at an index is to check it, in its place: an error is
// the one that it would give.
void Edges::place_checks(const Members& m) {
  for (size_t e = 0; e < m.edges.size(); ++e) {
    const uint32_t n = m.edge_instructions[e];
    d.bound[n] = {};
    d.bound[n].group = static_cast<uint32_t>(d.plan->groups.size());
    // One that a view stands for; others are among what the group makes.
    if (seen_by_view_[n]) d.local(d.results_of(n)[0]).kind = Local::Kind::inside;
    if (!m.edges[e].index) continue;
    const fusion::Edge::Index& index = *m.edges[e].index;
    Bound& bound = d.bound[n] = {};
    bound.work = work::share(work::index_check(*m.edges[e].node->op, index.check, index.shape));
    bound.checks = true;
    bound.first_arg = static_cast<uint32_t>(d.args.size());
    bound.args = 1;
    d.args.push_back(
        {BoundArg::Kind::value,
         d.stage.operands[d.instruction(n).first_operand + fusion::Edge::index_operand].reg});
  }
}

}  // namespace gradus::interpreter
