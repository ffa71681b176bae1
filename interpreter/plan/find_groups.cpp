#include "interpreter/plan/find_groups.h"

#include <algorithm>

#include "fusion/cost.h"

namespace gradus::interpreter {

namespace {

// Groups that wait for members at a time, and for how many instructions one waits for the next: a
// group that stays open keeps what it reads alive.
constexpr size_t most_open = 8;
constexpr uint32_t longest_wait = 64;

}  // namespace

bool GroupFinder::Open::reads(std::span<const Register> registers) const {
  return std::ranges::any_of(registers, [&](Register r) {
    return std::find(loads.begin(), loads.end(), r) != loads.end();
  });
}

bool GroupFinder::Open::has(uint32_t index) const {
  return std::binary_search(members.begin(), members.end(), index);
}

void GroupFinder::close(size_t open) {
  Open& group = open_[open];
  const uint32_t place = group.place.value_or(group.members.back());
  closed_.push_back({std::move(group.members), place});
  open_.erase(open_.begin() + static_cast<long>(open));
}

namespace {

// Rows of two groups, or of a group and an instruction: the same, if both have some.
bool agree(const std::optional<Sizes>& a, const std::optional<Sizes>& b) {
  return !a || !b || *a == *b;
}

// Whether rows have the dimensions that columns have not.
bool cross(const Sizes& shape, const std::optional<Sizes>& row,
           const std::optional<Sizes>& column) {
  for (size_t d = 0; row && column && d < shape.size(); ++d)
    if (shape[d] != 1 && ((*row)[d] == 1) == ((*column)[d] == 1)) return false;
  return true;
}

}  // namespace

// One more member, and those of another group.
bool GroupFinder::fits(const Open& a, const Loops& loops, const Open* b) const {
  if (!agree(a.row, loops.row) || !agree(a.column, loops.column)) return false;
  if (b && !(b->shape == a.shape && agree(a.row, b->row) && agree(b->row, loops.row) &&
             agree(a.column, b->column) && agree(b->column, loops.column)))
    return false;
  const auto& row = a.row ? a.row : b && b->row ? b->row : loops.row;
  const auto& column = a.column ? a.column : b && b->column ? b->column : loops.column;
  if (!cross(a.shape, row, column)) return false;
  return a.members.size() + (b ? b->members.size() : 0) + 1 <= fusion::most_steps &&
         a.loads.size() + (b ? b->loads.size() : 0) <= fusion::most_steps;
}

bool GroupFinder::reduces(uint32_t maker, const Sizes& shape, const Sizes& row) const {
  return std::ranges::any_of(open_, [&](const Open& g) {
    return g.has(maker) && g.row == row && g.shape == shape &&
           std::ranges::count(g.dropping, maker) == 0;
  });
}

// Where a value is made: of a group, where that runs; of an open one nobody knows yet.
uint32_t GroupFinder::run_at(uint32_t maker) const {
  for (const Found& g : closed_)
    if (std::ranges::binary_search(g.members, maker)) return g.place;
  for (const Open& g : open_)
    if (g.has(maker)) return g.place.value_or(UINT32_MAX);
  return maker;
}

// For a reader that is no member. False where one that joined after the place was settled makes
// what it reads, or where the place would be that of an edge.
bool GroupFinder::settle(Open& open, std::span<const uint32_t> makers) {
  if (!open.place && !open.ends_with_edge) open.place = open.members.back();
  return open.place &&
         std::ranges::none_of(makers, [&](uint32_t m) { return open.has(m) && m > *open.place; });
}

// Whether all that a new member reads is made by members, or before the group runs.
bool GroupFinder::in_time(const Open& open, std::span<const uint32_t> makers) const {
  return !open.place || std::ranges::all_of(makers, [&](uint32_t m) {
    return open.has(m) || run_at(m) < *open.place;
  });
}

// The loops that an instruction may join: those whose rows it computes with, or its own.
const Sizes* GroupFinder::shape_for(const Loops& loops, std::span<const uint32_t> makers) const {
  if (!loops.shape) return nullptr;
  if (!loops.row && !loops.column)
    for (const Open& g : open_)
      if (g.row == loops.shape && std::ranges::any_of(makers, [&](uint32_t m) { return g.has(m); }))
        return &g.shape;
  return &*loops.shape;
}

size_t GroupFinder::join(size_t a, size_t b) {
  Open& to = open_[a];
  Open& from = open_[b];
  const auto middle = static_cast<long>(to.members.size());
  to.members.insert(to.members.end(), from.members.begin(), from.members.end());
  std::inplace_merge(to.members.begin(), to.members.begin() + middle, to.members.end());
  for (Register r : from.loads)
    if (!to.reads({&r, 1})) to.loads.push_back(r);
  if (from.row) to.row = from.row;
  if (from.column) to.column = from.column;
  to.dropping.insert(to.dropping.end(), from.dropping.begin(), from.dropping.end());
  open_.erase(open_.begin() + static_cast<long>(b));
  return b < a ? a - 1 : a;
}

void GroupFinder::add(uint32_t index, const Loops& loops, std::span<const uint32_t> makers,
                      std::span<const Register> loads) {
  for (size_t g = open_.size(); g-- > 0;)
    if (index - open_[g].members.back() > longest_wait) close(g);
  const Sizes* found = shape_for(loops, makers);
  const std::optional<Sizes> shape = found ? std::optional(*found) : std::nullopt;
  // Those it reads from: one it joins, with as many others as fit; the rest is closed.
  constexpr size_t none = SIZE_MAX;
  size_t mine = none;
  for (size_t g = open_.size(); g-- > 0;) {
    const Open& open = open_[g];
    if (!std::ranges::any_of(makers, [&](uint32_t m) { return open.has(m); })) continue;
    const bool unread = std::ranges::none_of(
        makers, [&](uint32_t m) { return std::ranges::count(open.dropping, m) > 0; });
    const bool fits_here = unread && !loops.edge && open.shape == shape && in_time(open, makers) &&
                           fits(open, loops, mine == none ? nullptr : &open_[mine]);
    if (!fits_here && loops.leaves_little && settle(open_[g], makers)) {
      // Stays open.
    } else if (!fits_here || (mine != none && (open.place || open_[mine].place))) {
      if (mine != none && g < mine) --mine;
      close(g);
    } else {
      mine = mine == none ? g : join(g, mine);
    }
  }
  if (!shape) return;
  for (size_t g = 0; g < open_.size() && mine == none; ++g)
    if (!open_[g].place && open_[g].shape == *shape && fits(open_[g], loops, nullptr) &&
        (numel(*shape) <= fusion::few_elements || open_[g].reads(loads)))
      mine = g;
  if (mine == none) {
    if (open_.size() == most_open) close(0);
    mine = open_.size();
    open_.push_back({*shape, {}, {}, {}, {}, {}});
  }
  Open& group = open_[mine];
  if (loops.row) group.row = loops.row;
  if (loops.column) group.column = loops.column;
  if (loops.drops) group.dropping.push_back(index);
  group.members.push_back(index);
  group.ends_with_edge = loops.edge;
  for (Register r : loads)
    if (!group.reads({&r, 1})) group.loads.push_back(r);
}

void GroupFinder::close_others(uint32_t index, Closes closes) {
  for (size_t g = open_.size(); g-- > 0;)
    if (const Open& open = open_[g]; open.members.back() != index)
      if (open.place || closes(open.members, open.loads)) close(g);
}

std::vector<GroupFinder::Found> GroupFinder::take() {
  while (!open_.empty()) close(0);
  return std::move(closed_);
}

}  // namespace gradus::interpreter
