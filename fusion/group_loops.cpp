#include "fusion/group_loops.h"

#include "fusion/cells.h"

namespace gradus::fusion {

namespace {

// How an operand of a load lies in the loops, and which part of them it is for.
struct Walker {
  size_t load;
  const Sizes* shape;  // of what it is of; the loops may have more dimensions, and larger ones
  const Sizes *strides, *first, *sizes;  // by that shape's dimensions; null: all of them
  bool fills = false;                    // no stride is asked of it
  Frame::Part part = {};                 // by loops

  int64_t stride(const Sizes& loops, size_t d) const {
    const size_t lead = loops.size() - shape->size();
    return d < lead || (*shape)[d - lead] == 1 ? 0 : (*strides)[d - lead];
  }
  std::pair<int64_t, int64_t> range(const Sizes& loops, size_t d) const {
    const size_t lead = loops.size() - shape->size();
    if (!first || d < lead || (*shape)[d - lead] == 1) return {0, loops[d]};
    return {(*first)[d - lead], (*sizes)[d - lead]};
  }
  bool joins(const Sizes& loops, size_t d) const {
    const bool one = fills || part.strides.back() == stride(loops, d) * loops[d];
    return one && range(loops, d) == std::pair(int64_t{0}, loops[d]);
  }
  void walk(const Sizes& loops, size_t d, bool joined) {
    const auto [from, n] = range(loops, d);
    if (!joined) {
      part.strides.push_back(0);
      part.first.push_back(from);
      part.sizes.push_back(n);
    } else {
      part.first.back() *= loops[d];
      part.sizes.back() *= loops[d];
    }
    part.strides.back() = stride(loops, d);
  }
};

class Loops {
 public:
  Loops(Group& group, std::span<const Layout> inputs, size_t row_dims)
      : group_(group), inputs_(inputs), row_dims_(row_dims) {}

  // Loops over `shape`, neighbours joined where every load walks them in one stride, those of a row
  // among themselves. False where they are more than one loop then.
  bool lay_out(const Sizes& shape) {
    Frame& frame = group_.frame;
    find_walkers();
    const size_t first_of_row = shape.size() - row_dims_;
    size_t outer = SIZE_MAX;  // loops, before the row's
    for (size_t d = 0; d < shape.size(); ++d) {
      if (row_dims_ && d == first_of_row) outer = frame.sizes.size();
      if (shape[d] == 1) continue;
      bool joins = !frame.sizes.empty() && frame.sizes.size() != outer;
      for (const Walker& w : walkers_) joins = joins && w.joins(shape, d);
      if (joins)
        frame.sizes.back() *= shape[d];
      else
        frame.sizes.push_back(shape[d]);
      for (Walker& w : walkers_) w.walk(shape, d, joins);
    }
    if (row_dims_ && frame.sizes.size() != outer + 1) return false;
    if (frame.sizes.empty()) {
      frame.sizes.push_back(1);
      for (Walker& w : walkers_) w.part = {{0}, {1}, {0}};
    }
    group_.nest.rank = static_cast<int>(frame.sizes.size());
    for (Load& l : group_.nest.loads) l.walks.resize(frame.sizes.size(), Walk::broadcast);
    frame.strides.assign(group_.nest.loads.size(), Sizes(frame.sizes.size(), 0));
    for (size_t w = 0; w < walkers_.size();) w = choose_walks(w);
    return true;
  }

  // What frames say of edges. Why not, or null.
  const char* finish_edges() {
    if (group_.edges.empty()) return nullptr;
    const Nest& nest = group_.nest;
    Frame& frame = group_.frame;
    const size_t rank = frame.sizes.size();
    frame.index_steps.assign(nest.loads.size(), 0);
    frame.parts.resize(nest.loads.size());
    size_t argument = 0;
    for (Walker& w : walkers_) {
      if (w.load < inputs_.size()) continue;
      const Load& load = nest.loads[w.load];
      Group::Argument& a = group_.arguments[argument++];
      if (load.index) frame.index_steps[w.load] = group_.edges[a.edge].index->step;
      if (load.operands == 1) continue;
      if (!nest.column_stores.empty()) return "columns are reduced, and an operand is for a part";
      if (row_dims_ && w.part.sizes[rank - 1] != frame.sizes[rank - 1])
        return "an operand is for a part of a row";
      if (w.fills) {
        const bool lies = load.walks.back() == Walk::contiguous;
        w.part.strides.assign(rank, 0);
        if (lies) w.part.strides[rank - 1] = 1;
        a.filled = lies ? w.part.sizes[rank - 1] : 1;
        if (a.filled * static_cast<int64_t>(size_of(load.dtype)) > most_filled)
          return "a border is wide";
      }
      frame.parts[w.load].push_back(w.part);
    }
    return count_cells(nest, frame) > most_cells ? "the loops fall into many parts" : nullptr;
  }

 private:
  void find_walkers() {
    size_t k = 0;
    for (const Layout& l : inputs_)
      walkers_.push_back({k++, &l.shape, &l.strides, nullptr, nullptr});
    for (const Edge& e : group_.edges) {
      if (e.index) walkers_.push_back({k++, &e.layout.shape, &e.index->strides, nullptr, nullptr});
      for (const Edge::Source& s : e.sources)
        walkers_.push_back({k, &e.layout.shape, &s.strides, &s.first, &s.sizes, !s.operand});
      ++k;
    }
  }

  // Of the load that the walker is of; returns the next load's.
  size_t choose_walks(size_t first) {
    Load& load = group_.nest.loads[walkers_[first].load];
    const size_t last = first + load.operands, rank = group_.frame.sizes.size();
    auto all = [&](size_t d, int64_t stride) {
      for (size_t w = first; w < last; ++w) {
        const Frame::Part& p = walkers_[w].part;
        const bool any = walkers_[w].fills || (load.operands > 1 && p.sizes[d] == 1);
        if (!any && p.strides[d] != stride) return false;
      }
      return true;
    };
    for (size_t d = 0; d < rank; ++d)
      load.walks[d] = d + 1 == rank && all(d, 1) ? Walk::contiguous
                      : all(d, 0)                ? Walk::broadcast
                                                 : Walk::strided;
    if (load.operands == 1)
      group_.frame.strides[walkers_[first].load] = walkers_[first].part.strides;
    return last;
  }

  Group& group_;
  std::span<const Layout> inputs_;
  size_t row_dims_;
  std::vector<Walker> walkers_;  // by load and operand
};

}  // namespace

const char* find_loops(Group& group, std::span<const Layout> inputs, const Sizes& shape,
                       size_t row_dims) {
  Loops loops(group, inputs, row_dims);
  if (!loops.lay_out(shape)) return "the rows are no single loop";
  return loops.finish_edges();
}

}  // namespace gradus::fusion
