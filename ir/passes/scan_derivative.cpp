#include <algorithm>
#include <array>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ir/passes/loop_step.h"
#include "ops/reverse.h"

namespace gradus::ir {

namespace {

// The derivative of one scan.
class ScanDerivative {
 public:
  ScanDerivative(Graph& graph, GraphWorld& world, Node& node, const LoopCotangents& given)
      : graph_(graph),
        world_(world),
        node_(node),
        given_(given),
        loop_(*ops::loop_in(node)),
        body_(swept(*loop_.body)) {}

  std::vector<LoopGradient> run() {
    active_ = activity(body_, loop_.carries, Flags(given_.wanted.begin(), given_.wanted.end()),
                       takes_a_step(graph_, node_));
    const LoopStep step = settle();
    find_kept(step);
    const size_t own = body_.stages[0].results.size();
    keep(step);
    return emit_backward(step, own);
  }

 private:
  // `carried`: carries that have a cotangent. What reads the stacks stands behind all steps.
  LoopStep differentiate(const Flags& carried, const Flags& summed) const {
    std::vector<size_t> order;
    for (size_t i = loop_.carries; i < active_.results.size(); ++i)
      if (has_cotangent(i) && !comes_first_[i]) order.push_back(i);
    for (size_t i = 0; i < loop_.carries; ++i)
      if (carried[i]) order.push_back(i);
    return differentiate_step(body_, active_.inputs, order, summed);
  }

  bool has_cotangent(size_t result) const {
    return given_.results[result].defined() && active_.results[result];
  }

  // Which carries have cotangents is a fixed point: one that has some in a step has them in all
  // steps before.
  LoopStep settle() {
    Flags carried(loop_.carries), summed(body_.stages[0].inputs.size());
    summed_ = summed;
    comes_first_.assign(active_.results.size(), false);
    first_of_.assign(loop_.carries, {});
    for (size_t i = 0; i < loop_.carries; ++i) carried[i] = has_cotangent(i);
    for (;;) {
      const LoopStep s = differentiate(carried, {});
      bool grew = false;
      for (size_t i = 0; i < loop_.carries; ++i)
        if (s.gradients[i] != no_value && !carried[i]) carried[i] = grew = true;
      if (grew) continue;
      for (size_t i = loop_.carries; i < summed.size(); ++i)
        summed[i] = s.gradients[i] != no_value &&
                    (i >= loop_.first_constant() || given_.gradients[i].defined());
      summed_ = summed;
      for (size_t i = 0; i < loop_.carries; ++i)
        if (s.added[i] && find_first(i, summed)) summed[i] = summed_[i] = true;
      return differentiate(carried, summed);
    }
  }

  // What a carry becomes may be stacked, or be a slice of a sequence. Cotangents of those stand
  // behind all steps, as that of what the carry begins with does: the next step's terms are added
  // to them. Where that is one term, the order is nothing.
  // Result  whether there are such cotangents
  bool find_first(size_t carry, Flags& summed) {
    const Stage& stage = body_.stages[0];
    if (body_[stage.inputs[carry]].type.placement) return false;
    First& first = first_of_[carry];
    const ValueId v = stage.results[carry].value;
    for (size_t i = loop_.carries; i < loop_.first_constant(); ++i)
      if (summed[i] && stage.inputs[i] == v) {
        first.cotangents.push_back(given_.gradients[i]);
        summed[i] = false;
      }
    for (size_t r = loop_.carries; r < stage.results.size(); ++r)
      if (stage.results[r].value == v && has_cotangent(r) && !comes_first_[r]) {
        first.cotangents.push_back(given_.results[r]);
        comes_first_[r] = true;
      }
    first.begins = given_.gradients[carry];
    return !first.cotangents.empty() || first.begins.defined();
  }

  // What the backward pass reads of the step: inputs, what is computed again of those, and what is
  // kept. There is no stack of handles: a function that leaves one for it is called again. What a
  // carry becomes is its input of the step that the backward loop took before: that hands it on, so
  // that one stack is kept of a carry, and one sum of its gradients.
  void find_kept(const LoopStep& s) {
    const Graph& g = s.graph;
    maker_.assign(g.values.size(), nullptr);
    for (const Node& n : g.stages[0].nodes)
      for (ValueId v : n.results) maker_[index_of(v)] = &n;
    input_.assign(g.values.size(), SIZE_MAX);
    for (size_t i = 0; i < g.stages[0].inputs.size(); ++i)
      input_[index_of(g.stages[0].inputs[i])] = i;
    reads_.assign(g.stages[0].inputs.size(), false);
    all_again_ = settles_by_data(g);
    handed_on_.assign(loop_.carries, no_value);
    std::vector<ValueId> pending;
    auto read = [&](ValueId v) {
      if (v != no_value && g[v].stage == 0) pending.push_back(v);
    };
    for (const Node& n : g.stages[1].nodes)
      for (const Operand& o : n.operands) read(value_in(o));
    for (const Result& r : g.stages[1].results) read(r.value);
    for (const Node& n : g.stages[0].nodes)
      if (n.op->data_sized) std::ranges::for_each(n.results, read);  // says a size
    std::unordered_set<ValueId> seen;
    while (!pending.empty()) {
      const ValueId v = pending.back();
      pending.pop_back();
      if (!seen.insert(v).second) continue;
      if (const size_t i = input_[index_of(v)]; i != SIZE_MAX) {
        reads_[i] = true;
        if (i < loop_.carries) kept_.push_back(v);
      } else if (const size_t carry = carry_that_becomes(g, v); carry < loop_.carries) {
        handed_on_[carry] = v;
        read(g.stages[0].inputs[carry]);
      } else if (!g[v].type.is_tensor() || is_made_again(*maker_[index_of(v)])) {
        again_.insert(maker_[index_of(v)]);
        for (const Operand& o : maker_[index_of(v)]->operands) read(value_in(o));
      } else {
        kept_.push_back(v);
      }
    }
    std::erase_if(kept_, [&](ValueId v) { return again_.contains(maker_[index_of(v)]); });
    std::ranges::sort(kept_);
  }

  size_t carry_that_becomes(const Graph& g, ValueId v) const {
    const auto& results = g.stages[0].results;
    size_t i = 0;
    while (i < loop_.carries && results[i].value != v) ++i;
    return i;
  }

  // What depends on constants alone, and views of inputs. Everything where data decide sizes in a
  // step: stacks have one size in all steps.
  bool is_made_again(const Node& n) const {
    if (all_again_) return true;
    const OperatorTraits& traits = n.op->traits;
    if (traits.opaque || traits.loop || n.op->data_sized) return false;
    if (traits.collective && !traits.may_be_view) return false;
    return std::ranges::all_of(n.operands, [&](const Operand& o) {
      const ValueId v = value_in(o);
      if (v == no_value) return true;
      const size_t i = input_[index_of(v)];
      if (i != SIZE_MAX) return i >= loop_.first_constant() || traits.may_be_view;
      return is_made_again(*maker_[index_of(v)]);
    });
  }

  // The loop gives what is kept as further results.
  void keep(const LoopStep& s) {
    Graph forward = all_again_ ? body_ : s.graph;  // counts are of what is made again
    forward.stages.resize(1);
    auto& results = forward.stages[0].results;
    std::unordered_set<std::string> names;
    for (const Result& r : results) names.insert(r.name);
    size_t next = 0;
    for (ValueId v : kept_) {
      auto stacks = std::span(results).subspan(loop_.carries);
      auto same = std::ranges::find(stacks, v, &Result::value);
      stack_of_.push_back(loop_.carries + static_cast<size_t>(same - stacks.begin()));
      if (same != stacks.end()) continue;
      std::string name;
      do name = fmt::format("kept{}", next++);
      while (!names.insert(name).second);
      results.push_back({std::move(name), v});
    }
    compact(forward);
    length_ = ops::steps_of(*loop_.form, operand_types());
    node_.attributes = scan_of(*loop_.form, loop_.body->name, std::move(forward));
    loop_ = *ops::loop_in(node_);
    const size_t stage = graph_[node_.results[0]].stage;
    auto types = ops::infer(graph_, node_, nullptr);
    for (size_t i = node_.results.size(); i < types.size(); ++i)
      node_.results.push_back(graph_.add_value(std::move(types[i]), {}, stage));
  }

  SmallVector<OperandType, 4> operand_types() const {
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node_.operands) types.push_back(graph_.type_of(o));
    return types;
  }

  ops::Value operand(size_t i) const { return world_.value(node_.operands[i]); }

  // The backward loop while it is put together: inputs of its body, and operands.
  struct Builder {
    std::vector<ValueId> inputs;
    std::vector<ops::Value> operands;
    void add(ValueId input, ops::Value operand) {
      inputs.push_back(input);
      operands.push_back(std::move(operand));
    }
  };

  // The step's nodes that the backward pass has, too. What that is handed on stays an input, though
  // one of them may make it.
  std::vector<Node> made_again(Graph& back, const LoopStep& s) const {
    std::vector<Node> nodes;
    for (const Node& n : s.graph.stages[0].nodes) {
      if (!again_.contains(&n)) continue;
      nodes.push_back(n);
      for (ValueId& v : nodes.back().results)
        if (std::ranges::find(handed_on_, v) != handed_on_.end())
          v = back.add_value(Type(back[v].type), {}, 0);
    }
    return nodes;
  }

  std::vector<LoopGradient> emit_backward(const LoopStep& s, size_t own_results) {
    Graph back = s.graph;
    const std::vector<ValueId> inputs = back.stages[0].inputs;
    std::vector<Node> nodes = made_again(back, s);
    for (Node& n : back.stages[1].nodes) nodes.push_back(std::move(n));
    back.stages.resize(1);
    for (Value& v : back.values) v.stage = 0;
    back.stages[0] = {};
    back.stages[0].nodes = std::move(nodes);

    const std::vector<size_t> sizes = say_sizes(back, s, inputs);
    Builder b;
    std::vector<Result> results;
    std::vector<size_t> gradient_of;  // by result: the operand whose gradient it is
    constexpr size_t none = SIZE_MAX;
    auto give = [&](size_t input, ValueId v) {
      if (v == no_value) {
        GraphWorld zeros(back, 0, back.stages[0].nodes);
        v = GraphWorld::id_of(ops::zeros_of(zeros, back[inputs[input]].type));
      }
      results.push_back({fmt::format("d{}", results.size()), v});
      gradient_of.push_back(input);
    };
    ops::LoopForm attributes;
    std::vector<ops::Value> firsts(loop_.carries);
    for (size_t i = 0; i < loop_.carries; ++i) {
      if (s.cotangents[i] == no_value) continue;
      ops::Value ct = given_.results[i];
      if (s.sums[i] != no_value) firsts[i] = put_first(i, ct);
      b.add(s.cotangents[i], ct.defined() ? ct : ops::zeros_of(world_, operand(i).type));
      give(i, s.gradients[i]);
    }
    for (size_t i = loop_.first_constant(); i < inputs.size(); ++i) {
      if (s.sums[i] == no_value) continue;
      // x + -0.0 is x, whatever x: the sum of none.
      const ops::Value& sum = given_.gradients[i];
      const Type type = operand(i).type;
      b.add(s.sums[i], sum.defined() ? sum : ops::full(world_, type.dims, -0.0, type.dtype));
      give(i, s.gradients[i]);
    }
    for (size_t i = 0; i < loop_.carries; ++i) {
      if (handed_on_[i] == no_value) continue;
      b.add(handed_on_[i], world_.value(node_.results[i]));
      results.push_back({fmt::format("d{}", results.size()), inputs[i]});
      gradient_of.push_back(none);
    }
    attributes.carries = static_cast<int64_t>(b.inputs.size());
    for (size_t i = loop_.carries; i < own_results; ++i)
      if (s.cotangents[i] != no_value) b.add(s.cotangents[i], given_.results[i]);
    for (size_t i = 0; i < loop_.carries; ++i)
      if (s.sums[i] != no_value) b.add(s.sums[i], firsts[i]);
    for (size_t i = loop_.carries; i < loop_.first_constant(); ++i) {
      if (s.sums[i] != no_value) b.add(s.sums[i], given_.gradients[i]);
      if (reads_[i]) b.add(inputs[i], operand(i));
    }
    for (size_t k = 0; k < kept_.size(); ++k)
      b.add(kept_[k], world_.value(node_.results[stack_of_[k]]));
    for (size_t i = loop_.carries; i < loop_.first_constant(); ++i)
      if (s.gradients[i] != no_value && given_.wanted[i]) give(i, s.gradients[i]);
    attributes.sequences = static_cast<int64_t>(b.inputs.size()) - attributes.carries;
    for (size_t i = loop_.first_constant(); i < inputs.size(); ++i)
      if (reads_[i]) b.add(inputs[i], operand(i));
    for (size_t i : sizes) b.add(inputs[i], operand(i));

    back.stages[0].inputs = b.inputs;
    back.stages[0].results = std::move(results);
    name_inputs(back);
    compact(back);
    attributes.length = length_;
    attributes.reverse = !loop_.form->reverse;
    attributes.checkpoint = loop_.form->checkpoint;
    attributes.memory = loop_.form->memory;
    world_.set_place(node_.where);
    auto found =
        world_.emit(ops::scan_operator(),
                    scan_of(std::move(attributes), loop_.body->name + "_backward", std::move(back)),
                    b.operands);
    std::vector<LoopGradient> gradients(inputs.size());
    for (size_t r = 0; r < gradient_of.size(); ++r) {
      const size_t i = gradient_of[r];
      if (i != none && given_.wanted[i])
        gradients[i] = {found[r], summed_[i] && given_.gradients[i].defined()};
    }
    return gradients;
  }

  // Result  by step, the cotangents that its terms of the carry are added to. Those of what the
  //         last step gives are added to `ct`. A loop may take no step.
  ops::Value put_first(size_t carry, ops::Value& ct) {
    const First& first = first_of_[carry];
    const Type type = operand(carry).type;
    Dims all{length_};
    all.append(type.dims.begin(), type.dims.end());
    // x + -0.0 is x, whatever x.
    auto none = [&](const Dims& dims) { return ops::full(world_, dims, -0.0, type.dtype); };
    ops::Value rows, begins = first.begins.defined() ? first.begins : none(type.dims);
    for (const ops::Value& more : first.cotangents)
      if (rows.defined())
        ops::accumulate(rows, more);
      else
        rows = more;
    if (!rows.defined()) rows = none(all);
    begins = ops::unsqueeze(begins, 0);
    const bool reverse = loop_.form->reverse;
    const std::array<ops::Value, 2> parts{reverse ? rows : begins, reverse ? begins : rows};
    const ops::Value both = ops::cat(parts, 0);
    const ops::Value last = ops::select(both, 0, reverse ? Dim(0) : length_);
    if (ct.defined())
      ops::accumulate(ct, last);
    else
      ct = last;
    return ops::slice(both, 0, Dim(reverse ? 1 : 0), reverse ? length_ + Dim(1) : length_);
  }

  // A body knows sizes by its inputs: those that say what others do not stay, read or not. Carries
  // of them are constants, which are returned.
  std::vector<size_t> say_sizes(Graph& back, const LoopStep& s,
                                const std::vector<ValueId>& inputs) {
    std::vector<ValueId>& known = back.stages[0].inputs;
    for (const auto* list : {&s.cotangents, &s.sums})
      for (ValueId v : *list)
        if (v != no_value) known.push_back(v);
    known.insert(known.end(), kept_.begin(), kept_.end());
    for (ValueId v : handed_on_)
      if (v != no_value) known.push_back(v);
    for (size_t i = loop_.carries; i < inputs.size(); ++i)
      if (reads_[i]) known.push_back(inputs[i]);
    std::vector<size_t> carries;
    for (size_t i = inputs.size(); i-- > 0;) {
      const DimensionNames missing = unsettled(back, known);
      if (missing.empty()) break;
      if ((i >= loop_.carries && reads_[i]) || !names_one(back[inputs[i]].type, missing)) continue;
      known.push_back(inputs[i]);
      if (i < loop_.carries)
        carries.push_back(i);
      else
        reads_[i] = true;
    }
    return carries;
  }

  Graph& graph_;
  GraphWorld& world_;
  Node& node_;
  const LoopCotangents& given_;
  ops::Loop loop_;
  Graph body_;
  Activity active_;
  Flags summed_;  // by input: the gradient is added to what later nodes give it
  // Cotangents that a step's terms are added to: by step, of what a carry becomes; of what it
  // begins with.
  struct First {
    SmallVector<ops::Value, 1> cotangents;
    ops::Value begins;
  };
  std::vector<First> first_of_;  // by carry
  Flags comes_first_;            // by result: its cotangent is among those
  Dim length_;
  std::vector<const Node*> maker_;         // of the step's values
  std::vector<size_t> input_;              // by value: which input of the step it is
  bool all_again_ = false;                 // the backward pass has all nodes of the step, too
  Flags reads_;                            // by input: the backward pass reads it
  std::unordered_set<const Node*> again_;  // nodes that the backward pass has, too
  std::vector<ValueId> kept_;              // the step's values that are stacked
  std::vector<ValueId> handed_on_;         // by carry: what it becomes, where that is read
  std::vector<size_t> stack_of_;           // by kept value: the loop's result
};

}  // namespace

std::vector<LoopGradient> differentiate_scan(Graph& graph, GraphWorld& world, Node& node,
                                             const LoopCotangents& given) {
  return ScanDerivative(graph, world, node, given).run();
}

}  // namespace gradus::ir
