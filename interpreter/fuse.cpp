// Makes plans: groups of pointwise instructions and reductions of rows become one kernel each.
#include <algorithm>

#include "fusion/cost.h"
#include "fusion/group.h"
#include "interpreter/find_groups.h"
#include "interpreter/planner.h"

namespace gradus::interpreter {

// Given    all instructions are bound
// Execute  finds groups; each that has a kernel runs where its last member stands, and the others
//          of it do nothing
// Result   what only members read has no memory (Local::Kind::inside)
void Planner::fuse() {
  if (choice_.mode == fusion::FusionMode::off) return;
  count_uses();
  if (choice_.device) join_products();
  find_edges();
  GroupFinder finder(least_members());
  std::vector<uint32_t> maker(locals_.size(), Local::never);
  SmallVector<uint32_t, 4> makers;
  SmallVector<Register, 4> loads;
  for (uint32_t n = 0; n < bound_.size(); ++n) {
    const Instruction& i = instruction(n);
    makers.clear();
    loads.clear();
    for (uint32_t k = 0; k < i.operands; ++k) {
      Register r = stage_code_.operands[i.first_operand + k].reg;
      if (!is_met(r)) continue;
      loads.push_back(r);
      if (uint32_t m = maker[local_numbers_[index_of(r)]]; m != Local::never) makers.push_back(m);
    }
    if (!makers.empty() && repeats_rows(n, finder, maker)) {
      maker[local_numbers_[index_of(results_of(n)[0])]] = makers[0];
      continue;
    }
    if (add_edge(n, finder, makers, loads)) {
      maker[local_numbers_[index_of(results_of(n)[0])]] = n;
      continue;
    }
    finder.add(n, loops_of(n), makers, loads);
    if (takes_memory(n))
      finder.close_others(
          n, [&](auto members, auto read) { return waits_too_long(n, members, read); });
    for (Register r : results_of(n))
      if (is_met(r)) maker[local_numbers_[index_of(r)]] = n;
  }
  for (const auto& members : finder.take()) fuse_members(members);
}

// How often instructions of the segment read a register; what is read later or returned is read
// once more.
void Planner::count_uses() {
  uses_.assign(locals_.size(), 0);
  auto use = [&](Register r) {
    if (is_met(r)) ++uses_[local_numbers_[index_of(r)]];
  };
  for (uint32_t n = 0; n < bound_.size(); ++n) {
    const Instruction& i = instruction(n);
    for (uint32_t k = 0; k < i.operands; ++k) use(stage_code_.operands[i.first_operand + k].reg);
    for (Register r : results_of(n))
      if (r != no_register && code_.last_segment(r) > number_) use(r);
  }
  for (Register r : returns()) use(r);
}

const ir::Node& Planner::node(uint32_t index) const {
  return code_.graph().stages[segment_.stage].nodes[instruction(index).node];
}

// It computes one result that somebody reads, into memory of its own.
bool Planner::can_fuse(uint32_t index) {
  const Instruction& i = instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || !bound_[index].work ||
      bound_[index].group != Local::never)
    return false;
  Register y = results_of(index)[0];
  if (y == no_register) return false;
  const Local& l = local(y);
  return l.kind == Local::Kind::slot && l.root == y && l.layout.numel() > 0 &&
         fusion::belongs_into_nests(code_.graph(), node(index));
}

GroupFinder::Loops Planner::loops_of(uint32_t index) {
  if (!can_fuse(index)) return {};
  // Whatever can be fused has an operand.
  const Register of = stage_code_.operands[instruction(index).first_operand].reg;
  if (of != no_register) {
    const Sizes& reduced =
        find(of).kind == Local::Kind::absent ? sizes_of(code_.type_of(of)) : find(of).layout.shape;
    auto row = fusion::row_result(code_.graph(), node(index), reduced);
    auto column = fusion::column_result(code_.graph(), node(index), reduced);
    if ((row || column) && numel(reduced) == 0) return {};  // nothing to run over
    if (row) return {reduced, std::move(row->shape), row->drops};
    if (column && !choice_.source->takes_columns(numel(*column))) return {};
    if (column) return {reduced, {}, true, std::move(column)};
  }
  return {local(results_of(index)[0]).layout.shape, {}, false};
}

// Whether the instruction does nothing but to view a row's value as one of each element of the row,
// for kernels of this segment alone. The group need not end for it then.
bool Planner::repeats_rows(uint32_t index, const GroupFinder& finder,
                           std::span<const uint32_t> maker) {
  const Instruction& i = instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || bound_[index].acts()) return false;
  const Register y = results_of(index)[0];
  if (!is_met(y) || code_.last_segment(y) > number_ || std::ranges::count(returns(), y))
    return false;
  const Local& view = local(y);
  const Local& root = local(view.root);
  if (view.root == y || root.kind != Local::Kind::slot || root.root != root.reg ||
      view.offset != root.offset || view.layout.rank() != root.layout.rank())
    return false;
  for (int d = 0; d < view.layout.rank(); ++d) {
    const bool same = view.layout.shape[d] == root.layout.shape[d];
    if (same ? view.layout.shape[d] > 1 && view.layout.strides[d] != root.layout.strides[d]
             : root.layout.shape[d] != 1 || view.layout.strides[d] != 0)
      return false;
  }
  const uint32_t m = maker[local_numbers_[index_of(view.root)]];
  return m != Local::never && finder.reduces(m, view.layout.shape, root.layout.shape);
}

// Whether somewhere to put its results is worth a thought.
bool Planner::takes_memory(uint32_t index) {
  return std::ranges::any_of(results_of(index), [&](Register r) {
    if (!is_met(r)) return false;
    const Local& l = local(r);
    return l.kind == Local::Kind::slot && l.root == r && l.bytes() >= fusion::least_waiting_bytes;
  });
}

// A group that waits for members keeps alive what it reads, while other instructions take memory.
// Given   an instruction that is no member
// Result  whether what nobody else reads any more is too much beside what the members, had they run
//         already, would have left for later ones: a network's gradient of a weight is a product of
//         each step, added to those before, and the sums would hold all the products
bool Planner::waits_too_long(uint32_t index, std::span<const uint32_t> members,
                             std::span<const Register> loads) {
  SmallVector<Register, 16> roots;
  int64_t waiting = 0, largest = 0;
  for (uint32_t n : members) {
    const Local& y = local(results_of(n)[0]);
    roots.push_back(y.root);
    if (y.last_use > index) waiting -= y.bytes();
    largest = std::max(largest, y.bytes());
  }
  for (Register r : loads) {
    const Local& root = local(local(r).root);
    if (root.kind != Local::Kind::slot || root.last_use > index ||
        std::ranges::count(roots, root.reg) || code_.last_segment(root.reg) > number_)
      continue;
    roots.push_back(root.reg);
    waiting += root.bytes();
  }
  return waiting > std::max(fusion::most_waiting_bytes, largest);
}

// Edges are members where a member reads them, and where a kernel that reads their operands can be
// made and is worth it; else they run as they would.
void Planner::fuse_members(std::span<const uint32_t> found) {
  const SmallVector<uint32_t, 16> kept = with_edges(found, false);
  const std::span<const uint32_t> members(kept.data(), kept.size());
  if (members.size() < least_members()) return;
  Members m = members_of(members);
  auto without = [&] {
    const SmallVector<uint32_t, 16> others = with_edges(members, true);
    fuse_members({others.data(), others.size()});
  };
  if (m.inputs.size() + m.stored.size() > fusion::most_slots)
    return m.edges.empty() ? fuse_halves(members) : without();
  std::vector<ir::ValueId> inputs, results;
  for (Register r : m.inputs) inputs.push_back(code_.value_of(r));
  for (Register r : m.stored) results.push_back(code_.value_of(r));
  auto group = fusion::group_nodes({code_.graph(), m.nodes, inputs, m.layouts, results, m.aliases,
                                    choice_.source->wants_places(), m.edges});
  // Operands whose rows are no single loop, say: they may be those of one half alone.
  if (!group) return m.edges.empty() ? fuse_halves(members) : without();
  if (group->nest.operands() + m.stored.size() > fusion::most_slots ||
      !choice_.source->wants(group->nest, group->frame)) {
    if (!m.edges.empty()) without();
    return;
  }
  const std::string text = fusion::print(group->nest);
  if (auto kernel = kernel_of(group->nest, text)) {
    place_group(members, m, *group, std::move(kernel));
  } else if (choice_.device && is_on_its_way(text)) {
    for (uint32_t n : members) bound_[n].later = true;
  } else if (choice_.device) {
    fuse_halves(members);  // less may have a form that the device has
  }
}

Planner::Members Planner::members_of(std::span<const uint32_t> members) {
  Members m;
  for (uint32_t n : members) {
    m.made.push_back(results_of(n)[0]);
    if (const fusion::Edge* e = edge_of(n)) {
      m.edges.push_back(*e);
      m.edge_instructions.push_back(edges_.at(n).instruction);
    } else {
      m.nodes.push_back(&node(n));
    }
  }
  for (uint32_t n : members)
    if (!edge_of(n)) find_loads(instruction(n), m);
  find_stored(members, m);
  return m;
}

// What is read elsewhere: values of elements, then those of rows, then those of columns.
void Planner::find_stored(std::span<const uint32_t> members, Members& m) {
  int64_t most = 0;  // elements that rows are reduced of
  SmallVector<Register, 16> of_rows, of_columns;
  for (uint32_t n : members)
    if (auto loops = loops_of(n); loops.row) most = std::max(most, numel(*loops.shape));
  for (uint32_t n : members) {
    const Register y = results_of(n)[0];
    if (std::ranges::count(m.read, y) >= uses_[local_numbers_[index_of(y)]]) continue;
    if (loops_of(n).column)
      of_columns.push_back(y);
    else if (most != 0 && local(y).layout.numel() != most)
      of_rows.push_back(y);
    else
      m.stored.push_back(y);
  }
  m.stored.append(of_rows.begin(), of_rows.end());
  m.stored.append(of_columns.begin(), of_columns.end());
}

// Each half is a group as well: the first one ends before the second.
void Planner::fuse_halves(std::span<const uint32_t> members) {
  const size_t half = members.size() / 2;
  if (half == 0) return;
  for (auto part : {members.first(half), members.subspan(half)})
    if (part.size() >= least_members()) fuse_members(part);
}

// What the instruction reads: of the group, or loaded.
void Planner::find_loads(const Instruction& i, Members& m) {
  for (uint32_t k = 0; k < i.operands; ++k) {
    Register r = stage_code_.operands[i.first_operand + k].reg;
    if (r == no_register) continue;
    if (std::ranges::count(m.made, r)) {
      m.read.push_back(r);
    } else if (const Register of = local(r).root; of != r && std::ranges::count(m.made, of)) {
      m.aliases.emplace_back(code_.value_of(r), code_.value_of(of));
    } else if (!std::ranges::count(m.inputs, r)) {
      m.inputs.push_back(r);
      const Local& l = local(r);
      if (l.kind != Local::Kind::absent) {
        m.layouts.push_back(l.layout);
        continue;
      }
      Sizes shape = sizes_of(code_.type_of(r));
      const size_t rank = shape.size();
      m.layouts.emplace_back(code_.type_of(r).dtype, std::move(shape), Sizes(rank, 0));
    }
  }
}

// Null where there is none yet.
std::shared_ptr<const fusion::Kernel> Planner::kernel_of(const fusion::Nest& nest,
                                                         const std::string& text) {
  if (choice_.mode == fusion::FusionMode::first) return choice_.source->get(nest, text);
  if (auto kernel = choice_.set->find(text)) return kernel;
  auto& missing = plan_->missing;
  if (!choice_.set->failed.contains(text) &&
      std::ranges::none_of(missing, [&](const auto& other) { return other.second == text; }))
    missing.emplace_back(nest, text);
  return nullptr;
}

bool Planner::is_on_its_way(const std::string& nest) const {
  return choice_.mode == fusion::FusionMode::behind && !choice_.set->failed.contains(nest);
}

// Of a kernel with one store and single loops: all that it reads of an element is read before the
// element is written.
Register Planner::find_in_place(const Members& m, const fusion::Nest& nest) {
  if (!choice_.source->reads_before_writing() || m.stored.size() != 1 || !m.edges.empty() ||
      nest.stores.size() != 1 || nest.reduces())
    return no_register;
  const Layout& result = local(m.stored[0]).layout;
  for (Register r : m.inputs) {
    const Local& l = local(r);
    if (l.kind != Local::Kind::slot || l.root != r || !(l.layout == result)) continue;
    // By no other way.
    if (std::ranges::count_if(m.inputs, [&](Register q) { return local(q).root == r; }) == 1)
      return r;
  }
  return no_register;
}

void Planner::place_group(std::span<const uint32_t> members, const Members& m,
                          const fusion::Group& group,
                          std::shared_ptr<const fusion::Kernel> kernel) {
  const uint32_t last = members.back();
  work::Kernel ready = kernel->bind(group.frame);
  for (uint32_t n : members) {
    bound_[n] = {};
    bound_[n].group = static_cast<uint32_t>(plan_->groups.size());
  }
  Bound& bound = bound_[last];
  bound.set_code(ready);
  bound.first_arg = static_cast<uint32_t>(args_.size());
  for (Register r : m.inputs) {
    if (local(r).kind == Local::Kind::absent) {
      args_.push_back({BoundArg::Kind::fixed, no_register, number_memory()});
    } else {
      args_.push_back({BoundArg::Kind::value, r});
      Local& root = local(local(r).root);
      root.last_use = std::max(root.last_use, last);
    }
  }
  place_edges(m, group, last);
  for (const ir::Dim& size : group.sizes) {
    std::byte* memory = number_memory();
    ops::store_number(ir::Number::of(size.evaluate(sizes_)), memory);
    args_.push_back({BoundArg::Kind::fixed, no_register, memory});
  }
  for (Register y : m.made) local(y).kind = Local::Kind::inside;
  for (Register y : m.stored) {
    Local& l = local(y);
    l.kind = Local::Kind::slot;
    l.last_use = std::max(l.last_use, last);
    args_.push_back({BoundArg::Kind::value, y});
  }
  bound.args = static_cast<uint32_t>(args_.size()) - bound.first_arg;
  bound.in_place = find_in_place(m, group.nest);
  if (ready.parameters) plan_->kernels.push_back(std::move(ready.parameters));
  place_checks(m);
  SegmentPlan::Group& placed = plan_->groups.emplace_back();
  for (uint32_t n : members) placed.instructions.push_back(segment_.first + n);
  for (uint32_t n : m.edge_instructions)
    if (!std::ranges::count(members, n)) placed.instructions.push_back(segment_.first + n);
  std::ranges::sort(placed.instructions);
  placed.stored.assign(m.stored.begin(), m.stored.end());
  placed.kernel = std::move(kernel);
}

}  // namespace gradus::interpreter
