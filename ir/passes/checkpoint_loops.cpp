#include "ir/passes/checkpoint_loops.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ir/passes/checkpoint_lengths.h"
#include "ir/passes/loop_step.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

using ops::Ints;
using ValueRow = SmallVector<ops::Value, 4>;

ValueRow values_of(std::span<const ops::Value> v) { return ValueRow(v.begin(), v.end()); }

// A graph while it is put together: what it takes by kind, so that a loop can run it.
struct SegmentGraph {
  Graph graph;
  std::vector<Node> nodes;
  GraphWorld world;
  std::vector<ValueId> carries, sequences, constants;  // its inputs
  ValueRow given_sequences, given_constants;           // what the loop is given for them
  std::map<ValueId, ops::Value> known;                 // by what is given: sequences, constants

  SegmentGraph() : world(graph, 0, nodes) { graph.stages.emplace_back(); }

  ops::Value input(std::vector<ValueId>& list, Type type) {
    list.push_back(graph.add_value(std::move(type), {}, 0));
    return world.value(list.back());
  }
  ops::Value sequence(const ops::Value& given) {
    auto [it, is_new] = known.try_emplace(value_in(given.operand));
    if (!is_new) return it->second;
    Type slice = given.type;
    slice.dims.erase(slice.dims.begin());
    given_sequences.push_back(given);
    return it->second = input(sequences, std::move(slice));
  }
  ops::Value constant(const ops::Value& given) {
    if (value_in(given.operand) == no_value) return given;
    auto [it, is_new] = known.try_emplace(value_in(given.operand));
    if (!is_new) return it->second;
    given_constants.push_back(given);
    return it->second = input(constants, given.type);
  }
  Graph finish(std::string name) {
    Stage& stage = graph.stages[0];
    for (const auto* list : {&carries, &sequences, &constants})
      stage.inputs.insert(stage.inputs.end(), list->begin(), list->end());
    stage.nodes = std::move(nodes);
    graph.name = std::move(name);
    name_inputs(graph);
    return std::move(graph);
  }
};

class Checkpoints {
 public:
  explicit Checkpoints(Graph& graph) : graph_(graph) {}

  // Whether there was one.
  bool run() {
    find_loops();
    if (loops_.empty()) return false;
    find_stacks();
    settle_lengths();
    if (std::ranges::none_of(loops_, has_segments)) return false;
    for (size_t s = 0; s < graph_.stages.size(); ++s) rewrite(s);
    return true;
  }

 private:
  // A loop that may be part of this. What is said of it in segments is known once it is rewritten.
  struct Member {
    Node node;
    Dim steps;
    size_t family = 0;
    std::vector<bool> inner;                           // by result: a stack that members alone read
    std::vector<std::pair<size_t, size_t>> producers;  // by sequence: whose inner stack it is
    std::vector<ValueId> checkpoints;                  // by carry: before each segment
    std::unordered_map<size_t, ValueId> rest;          // by inner stack: of the steps left over
    const ops::Loop loop() const { return *ops::loop_in(node); }
    bool stacks_for_others() const { return std::ranges::count(inner, true) > 0; }
    bool is_rewritten() const {
      return stacks_for_others() ||
             std::ranges::any_of(producers, [](const auto& p) { return p.first != none; });
    }
  };
  static constexpr size_t none = SIZE_MAX;

  void find_loops() {
    for (const Stage& stage : graph_.stages)
      for (const Node& node : stage.nodes) {
        const auto loop = node.op->traits.loop ? ops::loop_in(node) : std::nullopt;
        if (!loop || (loop->form->checkpoint.empty() && !loop->form->memory)) continue;
        SmallVector<OperandType, 4> types;
        for (const Operand& o : node.operands) types.push_back(graph_.type_of(o));
        member_of_.emplace(node.results[0], loops_.size());
        for (size_t i = 0; i < node.results.size(); ++i)
          stack_of_.emplace(node.results[i], std::pair(loops_.size(), i));
        loops_.push_back({node, ops::steps_of(*loop->form, types), loops_.size(), {}, {}, {}, {}});
      }
  }

  bool same_segments(const Member& a, const Member& b) const {
    const ops::LoopForm &x = *a.loop().form, &y = *b.loop().form;
    return a.steps == b.steps && x.checkpoint == y.checkpoint && x.memory == y.memory;
  }

  // Which stacks members read as sequences, and nothing else does.
  void find_stacks() {
    for (Member& m : loops_) {
      const ops::Loop loop = m.loop();
      m.inner.assign(m.node.results.size(), false);
      for (size_t i = loop.carries; i < m.inner.size(); ++i) m.inner[i] = true;
    }
    auto not_inner = [&](ValueId v) {
      if (const auto it = stack_of_.find(v); it != stack_of_.end())
        loops_[it->second.first].inner[it->second.second] = false;
    };
    std::unordered_map<ValueId, size_t> reads;
    for (const Stage& stage : graph_.stages) {
      for (const Node& node : stage.nodes) {
        const auto at = node.results.empty() ? member_of_.end() : member_of_.find(node.results[0]);
        for (size_t i = 0; i < node.operands.size(); ++i) {
          const ValueId v = value_in(node.operands[i]);
          if (v == no_value) continue;
          ++reads[v];
          if (at == member_of_.end() || !reads_in_segments(loops_[at->second], i)) not_inner(v);
        }
      }
      for (const Result& r : stage.results) not_inner(r.value);
    }
    for (size_t n = 0; n < loops_.size(); ++n) {
      Member& m = loops_[n];
      for (size_t i = 0; i < m.inner.size(); ++i)
        if (!reads.contains(m.node.results[i])) m.inner[i] = false;
    }
    for (size_t n = 0; n < loops_.size(); ++n) join(n);
  }

  bool reads_in_segments(const Member& m, size_t operand) const {
    const ops::Loop loop = m.loop();
    if (operand < loop.carries || operand >= loop.first_constant()) return false;
    const auto it = stack_of_.find(value_in(m.node.operands[operand]));
    return it != stack_of_.end() && same_segments(loops_[it->second.first], m);
  }

  // A loop and those whose stacks it reads are of one family.
  void join(size_t n) {
    Member& m = loops_[n];
    const ops::Loop loop = m.loop();
    for (size_t i = loop.carries; i < loop.first_constant(); ++i) {
      const auto it = stack_of_.find(value_in(m.node.operands[i]));
      std::pair<size_t, size_t> from{none, 0};
      if (it != stack_of_.end() && loops_[it->second.first].inner[it->second.second])
        from = it->second;
      m.producers.push_back(from);
      if (from.first == none || loops_[from.first].family == m.family) continue;
      const size_t old = loops_[from.first].family;
      for (Member& other : loops_)
        if (other.family == old) other.family = m.family;
    }
  }

  // By `memory`, of what a family's loops carry and stack together. Segments of all steps are none.
  void settle_lengths() {
    std::map<size_t, std::vector<const Member*>> families;
    for (const Member& m : loops_)
      if (m.loop().form->memory && m.is_rewritten()) families[m.family].push_back(&m);
    std::map<size_t, Ints> lengths;
    for (const auto& [family, members] : families) {
      const Node& first = members[0]->node;
      LoopCosts costs;
      costs.memory = *members[0]->loop().form->memory;
      costs.steps = want_number(first, members[0]->steps);
      for (const Member* m : members)
        for (size_t i = 0; i < m->node.results.size(); ++i) {
          const Type& type = graph_[m->node.results[i]].type;
          if (i < m->loop().carries && m->stacks_for_others())
            costs.carries += bytes_of(first, type, 0);
          else if (m->inner[i])
            costs.step += bytes_of(first, type, 1);
        }
      try {
        lengths[family] = checkpoint_lengths(costs);
      } catch (const Error& e) {
        throw graph_.error_at(first.where, e.bare());
      }
    }
    for (Member& m : loops_) {
      ops::LoopForm form = *m.loop().form;
      if (const auto it = lengths.find(m.family); form.memory && it != lengths.end())
        form.checkpoint = it->second;
      form.memory.reset();
      while (!form.checkpoint.empty() && m.steps.is_constant() &&
             m.steps.value() <= form.checkpoint[0])
        form.checkpoint.erase(form.checkpoint.begin());
      m.node.attributes = ops::scan_attributes(std::move(form), *ops::graphs_in(m.node)[0]);
    }
  }

  int64_t want_number(const Node& node, const Dim& size) const {
    if (size.is_constant()) return size.value();
    throw graph_.error_at(node.where,
                          fmt::format("scan: memory says how many bytes its derivatives may keep, "
                                      "and the size {} has a name; write `checkpoint` with lengths "
                                      "of segments",
                                      size.to_string()));
  }
  int64_t bytes_of(const Node& node, const Type& type, size_t first_dim) const {
    auto n = static_cast<int64_t>(size_of(type.dtype));
    for (size_t d = first_dim; d < type.dims.size(); ++d) n *= want_number(node, type.dims[d]);
    return n;
  }

  void rewrite(size_t stage) {
    std::vector<Node> done;
    done.reserve(graph_.stages[stage].nodes.size());
    for (Node& node : graph_.stages[stage].nodes) {
      const auto it = node.results.empty() ? member_of_.end() : member_of_.find(node.results[0]);
      if (it == member_of_.end() || !has_segments(loops_[it->second])) {
        done.push_back(std::move(node));
        continue;
      }
      for (Node& n : segments(stage, it->second)) done.push_back(std::move(n));
    }
    graph_.stages[stage].nodes = std::move(done);
  }

  static bool has_segments(const Member& m) {
    return m.is_rewritten() && !m.loop().form->checkpoint.empty();
  }

  // ---- One loop ----

  // A member's own loop within a segment, and the loops that it needs again before.
  ValueRow take_again(SegmentGraph& g, size_t n, std::unordered_map<size_t, ValueRow>& made,
                      std::span<const ops::Value> carries) {
    const Member& m = loops_[n];
    const ops::Loop loop = m.loop();
    ValueRow in(carries.begin(), carries.end());
    for (size_t i = loop.carries; i < loop.first_constant(); ++i) {
      const auto [from, result] = m.producers[i - loop.carries];
      in.push_back(from == none ? g.sequence(in_segments(m.node.operands[i]))
                                : again(g, from, made)[result]);
    }
    for (size_t i = loop.first_constant(); i < m.node.operands.size(); ++i)
      in.push_back(g.constant(world_->value(m.node.operands[i])));
    return values_of(
        g.world.emit(ops::scan_operator(), inner(m, Dim(m.loop().form->checkpoint[0])), in));
  }

  const ValueRow& again(SegmentGraph& g, size_t n, std::unordered_map<size_t, ValueRow>& made) {
    if (const auto it = made.find(n); it != made.end()) return it->second;
    ValueRow carries;
    for (ValueId v : loops_[n].checkpoints) carries.push_back(g.sequence(world_->value(v)));
    ValueRow found = take_again(g, n, made, carries);
    return made[n] = std::move(found);
  }

  static Attributes inner(const Member& m, const Dim& length) {
    ops::LoopForm form = *m.loop().form;
    form.length = length;
    form.checkpoint.erase(form.checkpoint.begin());
    return ops::scan_attributes(std::move(form), *ops::graphs_in(m.node)[0]);
  }

  // What stands there for all steps: in segments, and for those that are left over.
  ops::Value in_segments(const Operand& o) { return cut(o).first; }
  std::pair<ops::Value, ops::Value> cut(const Operand& o) {
    const auto it = cuts_.find(value_in(o));
    if (it != cuts_.end()) return it->second;
    ops::Value x = world_->value(o), rest;
    if (!(left_ == Dim(0))) {
      const auto two = ops::split(x, Dims{count_ * each_, left_}, 0);
      x = two[0];
      rest = two[1];
    }
    Dims dims{count_, Dim(each_)};
    dims.append(x.dims().begin() + 1, x.dims().end());
    return cuts_[value_in(o)] = {ops::reshape(x, dims), rest};
  }

  std::vector<Node> segments(size_t stage, size_t n) {
    Member& m = loops_[n];
    std::vector<Node> nodes;
    GraphWorld world(graph_, stage, nodes);
    world.set_place(m.node.where);
    world_ = &world;
    cuts_.clear();
    each_ = m.loop().form->checkpoint[0];
    count_ = floor_div(m.steps, each_);
    left_ = m.steps - count_ * each_;
    const bool rest = !(left_ == Dim(0)), reverse = m.loop().form->reverse;
    ValueRow carries;
    for (size_t i = 0; i < m.loop().carries; ++i)
      carries.push_back(world.value(m.node.operands[i]));
    ValueRow last;
    if (rest && reverse) last = steps_left(m, carries);
    ValueRow all = steps_in_segments(n, rest && reverse ? last : carries);
    if (rest && !reverse) last = steps_left(m, all);
    give(m, nodes, all, last);
    world_ = nullptr;
    return nodes;
  }

  // The last carries, then stacks of all segments' steps; nothing where no other node reads one.
  ValueRow steps_in_segments(size_t n, std::span<const ops::Value> carries) {
    Member& m = loops_[n];
    const size_t own = m.loop().carries;
    SegmentGraph g;
    ValueRow in;
    for (size_t i = 0; i < own; ++i) in.push_back(g.input(g.carries, carries[i].type));
    std::unordered_map<size_t, ValueRow> made;
    const ValueRow out = take_again(g, n, made, in);
    auto result = [&](const ops::Value& v) {
      auto& results = g.graph.stages[0].results;
      results.push_back({fmt::format("r{}", results.size()), GraphWorld::id_of(v)});
    };
    for (size_t i = 0; i < out.size(); ++i)
      if (!m.inner[i]) result(out[i]);
    if (m.stacks_for_others())
      for (const ops::Value& c : in) result(c);

    ops::LoopForm form;
    form.carries = static_cast<int64_t>(own);
    form.sequences = static_cast<int64_t>(g.sequences.size());
    form.length = count_;
    form.reverse = m.loop().form->reverse;
    ValueRow operands(carries.begin(), carries.begin() + static_cast<ptrdiff_t>(own));
    operands.append(g.given_sequences.begin(), g.given_sequences.end());
    operands.append(g.given_constants.begin(), g.given_constants.end());
    std::string name = m.loop().body->name + "_segment";
    Graph graph = g.finish(name);
    if (const DimensionNames unknown = unsettled(graph, graph.stages[0].inputs); !unknown.empty())
      throw graph_.error_at(m.node.where,
                            fmt::format("scan: checkpoint wants sizes that a segment's inputs say, "
                                        "and none says {}",
                                        *unknown.begin()));
    const auto found =
        world_->emit(ops::scan_operator(),
                     scan_of(std::move(form), std::move(name), std::move(graph)), operands);
    ValueRow all;
    size_t next = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (m.inner[i]) {
        all.push_back({});
        continue;
      }
      ops::Value v = found[next++];
      if (i >= own) {
        Dims dims{count_ * each_};
        dims.append(v.dims().begin() + 2, v.dims().end());
        v = ops::reshape(v, dims);
      }
      all.push_back(std::move(v));
    }
    for (; next < found.size(); ++next) m.checkpoints.push_back(GraphWorld::id_of(found[next]));
    return all;
  }

  // The steps behind the segments are fewer than a segment has, and treated as those in one.
  ValueRow steps_left(Member& m, std::span<const ops::Value> carries) {
    const ops::Loop loop = m.loop();
    ValueRow in(carries.begin(), carries.begin() + static_cast<ptrdiff_t>(loop.carries));
    for (size_t i = loop.carries; i < loop.first_constant(); ++i) {
      const auto [from, result] = m.producers[i - loop.carries];
      in.push_back(from == none ? cut(m.node.operands[i]).second
                                : world_->value(loops_[from].rest.at(result)));
    }
    for (size_t i = loop.first_constant(); i < m.node.operands.size(); ++i)
      in.push_back(world_->value(m.node.operands[i]));
    const auto found = world_->emit(ops::scan_operator(), inner(m, left_), in);
    for (size_t i = 0; i < found.size(); ++i)
      if (m.inner[i]) m.rest.emplace(i, GraphWorld::id_of(found[i]));
    return values_of(found);
  }

  // The values take the ids that the loop's had.
  void give(const Member& m, std::vector<Node>& nodes, const ValueRow& all, const ValueRow& last) {
    const bool reverse = m.loop().form->reverse;
    std::unordered_map<ValueId, ValueId> named;
    for (size_t i = 0; i < all.size(); ++i) {
      if (m.inner[i]) continue;
      ops::Value v = all[i];
      if (!last.empty() && i < m.loop().carries && !reverse) v = last[i];
      if (!last.empty() && i >= m.loop().carries) v = ops::cat(std::array{all[i], last[i]}, 0);
      named.emplace(GraphWorld::id_of(v), m.node.results[i]);
    }
    for (Node& node : nodes) {
      for (ValueId& v : node.results)
        if (auto it = named.find(v); it != named.end()) v = it->second;
      for (Operand& o : node.operands)
        if (auto it = named.find(value_in(o)); it != named.end()) o = it->second;
    }
  }

  Graph& graph_;
  std::vector<Member> loops_;                                        // in program order
  std::unordered_map<ValueId, size_t> member_of_;                    // by a loop's first result
  std::unordered_map<ValueId, std::pair<size_t, size_t>> stack_of_;  // by value: member and result
  // Of the loop that is rewritten.
  GraphWorld* world_ = nullptr;
  int64_t each_ = 1;  // steps in a segment
  Dim count_, left_;  // segments, and steps behind them
  std::map<ValueId, std::pair<ops::Value, ops::Value>> cuts_;
};

}  // namespace

void checkpoint_loops(Graph& graph) {
  while (Checkpoints(graph).run()) continue;  // the loops over what is left over have segments, too
}

}  // namespace gradus::ir
