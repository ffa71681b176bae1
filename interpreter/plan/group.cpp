// Planning: groups of pointwise instructions and reductions of rows become one kernel each.
#include <algorithm>

#include "fusion/cost.h"
#include "gradus/bind.h"
#include "interpreter/plan/group_edges.h"
#include "interpreter/plan/join_rows.h"
#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

// Members and those that members read through, ascending.
std::vector<uint32_t> instructions_of(std::span<const uint32_t> members, const Members& m) {
  std::vector<uint32_t> all(members.begin(), members.end());
  for (uint32_t n : m.edge_instructions)
    if (!std::ranges::count(members, n)) all.push_back(n);
  std::ranges::sort(all);
  return all;
}

class Grouper {
 public:
  Grouper(Draft& draft, const std::vector<uint32_t>& uses)
      : d(draft), uses_(uses), edges_(draft, uses) {}
  void run();

 private:
  GroupFinder::Loops loops_of(uint32_t index);
  bool repeats_rows(uint32_t index, const GroupFinder& finder, std::span<const uint32_t> maker);
  bool takes_memory(uint32_t index);
  bool waits_too_long(uint32_t index, std::span<const uint32_t> members,
                      std::span<const Register> loads);
  void fuse_members(std::span<const uint32_t> found, uint32_t place);
  Members members_of(std::span<const uint32_t> members);
  void fuse_parts(std::span<const uint32_t> members, uint32_t place);
  bool leaves_little(uint32_t index);
  void find_loads(uint32_t index, Members& m);
  void find_stored(std::span<const uint32_t> members, Members& m);
  bool is_wanted(std::span<const uint32_t> members, const Members& m, const fusion::Group& group);
  fusion::StatedRows stated_rows(std::span<const uint32_t> members, const fusion::Frame& frame);
  std::shared_ptr<const fusion::Kernel> kernel_of(const fusion::Nest& nest,
                                                  const std::string& text);
  bool is_on_its_way(const std::string& nest) const;
  Register find_in_place(const Members& m, const fusion::Nest& nest);
  void place_group(std::span<const uint32_t> members, uint32_t settled, const Members& m,
                   fusion::Group&& group, std::shared_ptr<const fusion::Kernel> kernel);
  bool are_enough(std::span<const uint32_t> members);

  Draft& d;
  const std::vector<uint32_t>& uses_;
  Edges edges_;
};

void Grouper::run() {
  edges_.find();
  GroupFinder finder;
  std::vector<uint32_t> maker(d.locals.size(), Local::never);
  SmallVector<uint32_t, 4> makers;
  SmallVector<Register, 4> loads;
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    makers.clear();
    loads.clear();
    for (uint32_t k = 0; k < d.instruction(n).operands; ++k) {
      Register r = d.operand(n, k);
      if (!d.is_met(r)) continue;
      loads.push_back(r);
      if (uint32_t m = maker[d.local_number(r)]; m != Local::never) makers.push_back(m);
    }
    if (!makers.empty() && repeats_rows(n, finder, maker)) {
      maker[d.local_number(d.results_of(n)[0])] = makers[0];
      continue;
    }
    if (edges_.add(n, finder, makers, loads)) {
      maker[d.local_number(d.results_of(n)[0])] = n;
      continue;
    }
    GroupFinder::Loops loops = loops_of(n);
    loops.leaves_little = !makers.empty() && leaves_little(n);
    finder.add(n, loops, makers, loads);
    if (takes_memory(n))
      finder.close_others(
          n, [&](auto members, auto read) { return waits_too_long(n, members, read); });
    for (Register r : d.results_of(n))
      if (d.is_met(r)) maker[d.local_number(r)] = n;
  }
  for (const GroupFinder::Found& found : finder.take()) fuse_members(found.members, found.place);
}

bool Grouper::leaves_little(uint32_t index) {
  constexpr int64_t part = 64;
  if (d.instruction(index).kind != Instruction::Kind::kernel || !d.bound[index].work) return false;
  int64_t read = 0, left = 0;
  for (uint32_t k = 0; k < d.instruction(index).operands; ++k)
    if (const Register r = d.operand(index, k); d.is_met(r))
      read = std::max(read, d.local(r).bytes());
  for (Register y : d.results_of(index))
    if (d.is_met(y)) left += d.local(y).bytes();
  return left <= read / part;
}

GroupFinder::Loops Grouper::loops_of(uint32_t index) {
  if (!can_fuse(d, index)) return {};
  // Whatever can be fused has an operand.
  const Register of = d.operand(index, 0);
  if (of != no_register) {
    const Sizes& reduced = d.find(of).kind == Local::Kind::absent ? d.sizes_of(d.code.type_of(of))
                                                                  : d.find(of).layout.shape;
    auto row = fusion::row_result(d.code.graph(), d.node(index), reduced);
    auto column = fusion::column_result(d.code.graph(), d.node(index), reduced);
    if ((row || column) && numel(reduced) == 0) return {};  // nothing to run over
    if (row) return {reduced, std::move(row->shape), row->drops};
    if (column) {
      const int64_t columns = numel(*column);
      if (!d.choice.source->takes_columns(numel(reduced) / columns, columns,
                                          d.code.type_of(of).dtype))
        return {};
      return {reduced, {}, true, std::move(column)};
    }
  }
  return {d.local(d.results_of(index)[0]).layout.shape, {}, false};
}

// Whether the instruction does nothing but to view a row's value as one of each element of the row,
// for kernels of this segment alone. The group need not end for it then.
bool Grouper::repeats_rows(uint32_t index, const GroupFinder& finder,
                           std::span<const uint32_t> maker) {
  const Instruction& i = d.instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || d.bound[index].acts()) return false;
  const Register y = d.results_of(index)[0];
  if (!d.is_met(y) || d.code.last_segment(y) > d.number || std::ranges::count(d.returns(), y))
    return false;
  const Local& view = d.local(y);
  const Local& root = d.local(view.root);
  if (view.root == y || root.kind != Local::Kind::slot || root.root != root.reg ||
      view.offset != root.offset || view.layout.rank() != root.layout.rank())
    return false;
  for (int k = 0; k < view.layout.rank(); ++k) {
    const bool same = view.layout.shape[k] == root.layout.shape[k];
    if (same ? view.layout.shape[k] > 1 && view.layout.strides[k] != root.layout.strides[k]
             : root.layout.shape[k] != 1 || view.layout.strides[k] != 0)
      return false;
  }
  const uint32_t m = maker[d.local_number(view.root)];
  return m != Local::never && finder.reduces(m, view.layout.shape, root.layout.shape);
}

// Whether somewhere to put its results is worth a thought.
bool Grouper::takes_memory(uint32_t index) {
  return std::ranges::any_of(d.results_of(index), [&](Register r) {
    if (!d.is_met(r)) return false;
    const Local& l = d.local(r);
    return l.kind == Local::Kind::slot && l.root == r && l.bytes() >= fusion::least_waiting_bytes;
  });
}

// A group that waits for members keeps alive what it reads, while other instructions take memory.
// Given   an instruction that is no member
// Result  whether what nobody else reads any more is too much beside what the members, had they run
//         already, would have left for later ones: a network's gradient of a weight is a product of
//         each step, added to those before, and the sums would hold all the products
bool Grouper::waits_too_long(uint32_t index, std::span<const uint32_t> members,
                             std::span<const Register> loads) {
  SmallVector<Register, 16> roots;
  int64_t waiting = 0, largest = 0;
  for (uint32_t n : members) {
    const Local& y = d.local(d.results_of(n)[0]);
    roots.push_back(y.root);
    if (y.last_use > index) waiting -= y.bytes();
    largest = std::max(largest, y.bytes());
  }
  for (Register r : loads) {
    const Local& root = d.local(d.local(r).root);
    if (root.kind != Local::Kind::slot || root.last_use > index ||
        std::ranges::count(roots, root.reg) || d.code.last_segment(root.reg) > d.number)
      continue;
    roots.push_back(root.reg);
    waiting += root.bytes();
  }
  return waiting > std::max(fusion::most_waiting_bytes, largest);
}

bool Grouper::are_enough(std::span<const uint32_t> members) {
  if (members.size() != 1 || d.choice.source->wants_single_steps()) return !members.empty();
  return fusion::may_gain_alone(d.local(d.results_of(members[0])[0]).layout.shape);
}

// Edges are members where a member reads them, and where a kernel that reads their operands can be
// made and is worth it; else they run as they would.
void Grouper::fuse_members(std::span<const uint32_t> found, uint32_t place) {
  const SmallVector<uint32_t, 16> kept = edges_.kept(found, false);
  const std::span<const uint32_t> members(kept.data(), kept.size());
  if (!are_enough(members)) return;
  Members m = members_of(members);
  auto without = [&] {
    const SmallVector<uint32_t, 16> others = edges_.kept(members, true);
    fuse_members({others.data(), others.size()}, place);
  };
  if (m.inputs.size() + m.stored.size() > fusion::most_slots)
    return m.edges.empty() ? fuse_parts(members, place) : without();
  std::vector<ir::ValueId> inputs, results;
  for (Register r : m.inputs) inputs.push_back(d.code.value_of(r));
  for (Register r : m.stored) results.push_back(d.code.value_of(r));
  auto group = fusion::group_nodes({d.code.graph(), m.nodes, inputs, m.layouts, results, m.aliases,
                                    d.choice.source->wants_places(), m.edges});
  // Operands whose rows are no single loop, say: they may be those of one half alone.
  if (!group) return m.edges.empty() ? fuse_parts(members, place) : without();
  d.choice.source->suit(group->nest, stated_rows(members, group->frame));
  if (!is_wanted(members, m, *group)) {
    if (!m.edges.empty())
      without();
    else if (members.back() > place)
      fuse_parts(members, place);
    return;
  }
  const std::string text = fusion::print(group->nest);
  if (auto kernel = kernel_of(group->nest, text)) {
    place_group(members, place, m, std::move(*group), std::move(kernel));
  } else if (!d.choice.traits().has_loops && is_on_its_way(text)) {
    for (uint32_t n : members) d.bound[n].later = true;
  } else if (!d.choice.traits().has_loops) {
    fuse_parts(members, place);  // less may be something that there is code for
  }
}

// By the type of a member that has all elements of the loops.
fusion::StatedRows Grouper::stated_rows(std::span<const uint32_t> members,
                                        const fusion::Frame& frame) {
  fusion::StatedRows rows;
  for (uint32_t n : members) {
    const auto loops = loops_of(n);
    const Register r = loops.row || loops.column ? d.operand(n, 0) : d.results_of(n)[0];
    const auto& dims = d.code.type_of(r).dims;
    const Sizes& shape = d.local(r).layout.shape;
    if (frame.sizes.size() < 2 || numel(shape) != frame.count() || shape.size() != dims.size())
      continue;
    // The trailing dimensions that a loop consists of; 0 where one has a name.
    size_t left = dims.size();
    auto stated = [&](int64_t size) -> int64_t {
      int64_t reached = 1;
      bool is_stated = true;
      for (; left > 0 && reached < size; --left) {
        reached *= shape[left - 1];
        is_stated = is_stated && dims[left - 1].is_constant();
      }
      return is_stated && reached == size ? size : 0;
    };
    rows.size = stated(frame.sizes.back());
    rows.count = stated(frame.sizes[frame.sizes.size() - 2]);
    return rows;
  }
  return rows;
}

bool Grouper::is_wanted(std::span<const uint32_t> members, const Members& m,
                        const fusion::Group& group) {
  if (group.nest.operands() + m.stored.size() > fusion::most_slots) return false;
  const bool wanted = d.choice.source->wants(group.nest, group.frame);
  if (d.choice.weighed) {
    const std::vector<uint32_t> all = instructions_of(members, m);
    d.choice.weighed({d, all, {m.stored.data(), m.stored.size()}, group.nest, group.frame, wanted});
  }
  return wanted;
}

Members Grouper::members_of(std::span<const uint32_t> members) {
  Members m;
  for (uint32_t n : members) {
    m.made.push_back(d.results_of(n)[0]);
    if (const fusion::Edge* e = edges_.of(n)) {
      m.edges.push_back(*e);
      m.edge_instructions.push_back(edges_.instruction_of(n));
    } else {
      m.nodes.push_back(&d.node(n));
    }
  }
  for (uint32_t n : members)
    if (!edges_.of(n)) find_loads(n, m);
  find_stored(members, m);
  return m;
}

// What is read elsewhere: values of elements, then those of rows, then those of columns.
void Grouper::find_stored(std::span<const uint32_t> members, Members& m) {
  int64_t most = 0;  // elements that rows are reduced of
  SmallVector<Register, 16> of_rows, of_columns;
  for (uint32_t n : members)
    if (auto loops = loops_of(n); loops.row) most = std::max(most, numel(*loops.shape));
  for (uint32_t n : members) {
    const Register y = d.results_of(n)[0];
    if (std::ranges::count(m.read, y) >= uses_[d.local_number(y)]) continue;
    if (loops_of(n).column)
      of_columns.push_back(y);
    else if (most != 0 && d.local(y).layout.numel() != most)
      of_rows.push_back(y);
    else
      m.stored.push_back(y);
  }
  m.stored.append(of_rows.begin(), of_rows.end());
  m.stored.append(of_columns.begin(), of_columns.end());
}

// Two parts are groups as well: the first one ends before the second. If the members behind a place
// may run there, they are one part.
void Grouper::fuse_parts(std::span<const uint32_t> members, uint32_t place) {
  const auto behind = std::ranges::upper_bound(members, place);
  const size_t first =
      behind == members.end() ? members.size() / 2 : static_cast<size_t>(behind - members.begin());
  for (auto part : {members.first(first), members.subspan(first)})
    if (!part.empty() && part.size() < members.size()) fuse_members(part, part.back());
}

// What the instruction reads: of the group, or loaded.
void Grouper::find_loads(uint32_t index, Members& m) {
  const Instruction& i = d.instruction(index);
  for (uint32_t k = 0; k < i.operands; ++k) {
    Register r = d.operand(index, k);
    if (r == no_register) continue;
    if (std::ranges::count(m.made, r)) {
      m.read.push_back(r);
    } else if (const Register of = d.local(r).root; of != r && std::ranges::count(m.made, of)) {
      m.aliases.emplace_back(d.code.value_of(r), d.code.value_of(of));
    } else if (!std::ranges::count(m.inputs, r)) {
      m.inputs.push_back(r);
      const Local& l = d.local(r);
      if (l.kind != Local::Kind::absent) {
        m.layouts.push_back(l.layout);
        continue;
      }
      Sizes shape = d.sizes_of(d.code.type_of(r));
      const size_t rank = shape.size();
      m.layouts.emplace_back(d.code.type_of(r).dtype, std::move(shape), Sizes(rank, 0));
    }
  }
}

// Null where there is none yet.
std::shared_ptr<const fusion::Kernel> Grouper::kernel_of(const fusion::Nest& nest,
                                                         const std::string& text) {
  if (d.choice.mode == FusionMode::first) return d.choice.source->get(nest, text);
  if (auto kernel = d.choice.set->find(text)) return kernel;
  auto& missing = d.plan->missing;
  if (!d.choice.set->has_failed(text) &&
      std::ranges::none_of(missing, [&](const auto& other) { return other.second == text; }))
    missing.emplace_back(nest, text);
  return nullptr;
}

bool Grouper::is_on_its_way(const std::string& nest) const {
  return d.choice.mode == FusionMode::behind && !d.choice.set->has_failed(nest);
}

// Of a kernel with one store and single loops: all that it reads of an element is read before the
// element is written.
Register Grouper::find_in_place(const Members& m, const fusion::Nest& nest) {
  if (!d.choice.source->reads_before_writing() || m.stored.size() != 1 || !m.edges.empty() ||
      nest.stores.size() != 1 || nest.reduces())
    return no_register;
  const Layout& result = d.local(m.stored[0]).layout;
  for (Register r : m.inputs) {
    const Local& l = d.local(r);
    if (l.kind != Local::Kind::slot || l.root != r || !(l.layout == result)) continue;
    // By no other way.
    if (std::ranges::count_if(m.inputs, [&](Register q) { return d.local(q).root == r; }) == 1)
      return r;
  }
  return no_register;
}

void Grouper::place_group(std::span<const uint32_t> members, uint32_t settled, const Members& m,
                          fusion::Group&& group, std::shared_ptr<const fusion::Kernel> kernel) {
  // Edges are no places: a check of their indices is.
  uint32_t place = 0;
  for (uint32_t n : members)
    if (n <= settled && !edges_.of(n)) place = n;
  for (uint32_t n : members) {
    d.bound[n] = {};
    d.bound[n].group = static_cast<uint32_t>(d.plan->groups.size());
  }
  Bound& bound = d.bound[place];
  bound.kernel = std::move(kernel);
  bound.first_arg = static_cast<uint32_t>(d.args.size());
  for (Register r : m.inputs) {
    if (d.local(r).kind == Local::Kind::absent) {
      d.args.push_back({BoundArg::Kind::fixed, no_register, d.number_memory()});
    } else {
      d.args.push_back({BoundArg::Kind::value, r});
      d.read_until(r, place);
    }
  }
  edges_.place_arguments(m, group, place);
  for (const ir::Dim& size : group.sizes) {
    std::byte* memory = d.number_memory();
    ops::store_number(ir::Number::of(size.evaluate(d.sizes)), memory);
    d.args.push_back({BoundArg::Kind::fixed, no_register, memory});
  }
  for (Register y : m.made) d.local(y).kind = Local::Kind::inside;
  for (Register y : m.stored) {
    Local& l = d.local(y);
    l.kind = Local::Kind::slot;
    l.last_use = std::max(l.last_use, place);
    d.args.push_back({BoundArg::Kind::value, y});
  }
  bound.args = static_cast<uint32_t>(d.args.size()) - bound.first_arg;
  bound.in_place = find_in_place(m, group.nest);
  bound.work = work::share(work::Loops{std::move(group.nest), std::move(group.frame)});
  edges_.place_checks(m);
  SegmentPlan::Group& placed = d.plan->groups.emplace_back();
  for (uint32_t n : instructions_of(members, m)) placed.instructions.push_back(d.segment.first + n);
  placed.place = d.segment.first + place;
  placed.stored.assign(m.stored.begin(), m.stored.end());
  placed.work = bound.work;
}

}  // namespace

// It computes one result that somebody reads, into memory of its own.
bool can_fuse(Draft& d, uint32_t index) {
  const Instruction& i = d.instruction(index);
  if (i.kind != Instruction::Kind::kernel || i.results != 1 || !d.bound[index].work ||
      d.bound[index].group != Local::never)
    return false;
  Register y = d.results_of(index)[0];
  if (y == no_register) return false;
  const Local& l = d.local(y);
  return l.kind == Local::Kind::slot && l.root == y && l.layout.numel() > 0 &&
         fusion::belongs_into_nests(d.code.graph(), d.node(index));
}

void group(Draft& d) {
  if (d.choice.mode == FusionMode::off) return;
  const std::vector<uint32_t> uses = count_uses(d);
  join_rows(d, uses);
  Grouper(d, uses).run();
}

}  // namespace gradus::interpreter
