#include "interpreter/trace_values.h"

#include <algorithm>

#include "autograd/operator_call.h"
#include "gradus/rules.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus::interpreter {

using autograd::Edge;
using autograd::Variable;
using autograd::Variables;

TraceValues* TraceValues::current() {
  return dynamic_cast<TraceValues*>(autograd::thread_state().recorder);
}

void TraceValues::refuse(std::string_view why) const {
  throw Error("'{}' cannot be traced: {}", graph_.name, why);
}

void TraceValues::meets(std::string_view what) {
  refuse(fmt::format("it meets {}, which a trace does not see into", what));
}

bool TraceValues::is_traced(const Tensor& t) const {
  auto [begin, end] = known_.equal_range(t.storage().get());
  for (auto it = begin; it != end; ++it)
    if (it->second.origin == Origin::input || it->second.origin == Origin::made) return true;
  return false;
}

bool TraceValues::is_traced_here_or_around(const Tensor& t) const {
  return is_traced(t) || (around_ && around_->is_traced_here_or_around(t));
}

void TraceValues::reads(const Tensor& t) const {
  if (t.defined() && is_traced_here_or_around(t))
    refuse(fmt::format(
        "it reads back the values of a {}; what they decide would hold for these inputs alone. "
        "Decide by operators ('where', comparisons), or before the trace",
        describe(t)));
}

void TraceValues::need_values(std::string_view what) {
  if (!shapes_only_) return;
  if (captures_ == Captures::all)
    refuse(fmt::format("it calls {}, which a graph of a loop or a branch cannot", what));
  needs_values_ = true;
  refuse(fmt::format("it calls {}, which needs values", what));
}

ir::GraphWorld TraceValues::world() {
  size_t stage = graph_.stages.size() - 1;
  return ir::GraphWorld(graph_, stage, graph_.stages[stage].nodes);
}

void TraceValues::know(const ops::Value& value, const Variable& v, Origin origin) {
  const Tensor& t = v.data();
  Edge edge = v.gradient_edge();
  auto [begin, end] = known_.equal_range(t.storage().get());
  for (auto it = begin; it != end; ++it)
    if (it->second.tensor.same_as(t) && it->second.edge == edge) return;  // the same value
  known_.emplace(t.storage().get(),
                 Known{ir::GraphWorld::id_of(value), t, std::move(edge), t.version(), origin});
}

void TraceValues::know_results(const OpaqueVariables& found, std::span<const ops::Value> values) {
  for (size_t i = 0; i < found.results.size(); ++i)
    if (found.results[i].defined()) know(values[i], found.results[i]);
  if (found.instruction)
    handles_[found.instruction.get()] = {ir::GraphWorld::id_of(values.back()), found.instruction};
}

void TraceValues::know_input(ir::ValueId id, const Variable& v) {
  ir::GraphWorld world = this->world();
  know(world.value(id), v, Origin::input);
}

void TraceValues::know_leaf(const Variable& v) { know(value_of(Variable(v.data())), v); }

void TraceValues::forget_from(size_t value) {
  std::erase_if(known_, [&](const auto& k) { return ir::index_of(k.second.value) >= value; });
  std::erase_if(handles_, [&](const auto& h) { return ir::index_of(h.second.first) >= value; });
}

ops::Value TraceValues::constant(const Tensor& t) {
  ir::GraphWorld world = this->world();
  return ops::emit_constant(world, t.copy());
}

void TraceValues::capture_from(TraceValues* around) {
  captures_ = Captures::all;
  around_ = around;
}

// `same` is what is known of its tensor. A scalar that nobody traces is a constant of the graph.
bool TraceValues::is_captured(const Variable& v, const Known* same) const {
  const Tensor& t = v.data();
  if (captures_ == Captures::nothing) return false;
  const bool leads = autograd::recording() && v.requires_grad();
  if (same) return leads;
  if (is_traced(t)) return false;
  if (captures_ == Captures::leading) return leads;
  return leads || t.layout().shape.size() != 0 || has_no_values(t) || is_traced_here_or_around(t);
}

ops::Value TraceValues::capture(const Variable& v) {
  std::string name = fmt::format("captured{}", captured_.size());
  ir::Stage& stage = graph_.stages.back();
  while (std::ranges::any_of(stage.inputs, [&](ir::ValueId i) { return graph_[i].name == name; }))
    name += '_';
  const ir::ValueId id =
      graph_.add_value(autograd::type_of(v.data()), name, graph_.stages.size() - 1);
  stage.inputs.push_back(id);
  captured_.push_back(v);
  know(world().value(id), v, Origin::captured);
  return value_of(v);
}

ops::Value TraceValues::value_of(const Variable& v) {
  const Tensor& t = v.data();
  ir::GraphWorld world = this->world();
  Edge edge = autograd::recording() ? v.gradient_edge() : Edge();
  const Known* same = nullptr;
  auto [begin, end] = known_.equal_range(t.storage().get());
  for (auto it = begin; it != end; ++it) {
    const Known& k = it->second;
    if (k.version != t.version())
      refuse(fmt::format("a {} was changed in place after it was used", describe(t)));
    if (!k.tensor.same_as(t)) continue;
    if (k.edge == edge) return world.value(k.value);
    if (!same || k.value < same->value) same = &k;
  }
  if (same && !detaching_) return world.value(same->value);
  // A leaf made of a value here: its gradient is asked for here, and goes nowhere else.
  const bool new_leaf = edge.valid() && v.is_leaf() && same && same->origin == Origin::made;
  if (!new_leaf && is_captured(v, same)) return capture(v);
  if (edge.valid() && !new_leaf)
    refuse(fmt::format(
        "it uses a {} that requires gradients and is no input ({}); make it one, or detach it",
        describe(t),
        v.is_leaf() ? std::string("a leaf") : "made by '" + v.grad_fn()->name() + "'"));
  ops::Value value;
  if (same) {
    value = ops::detach(world.value(same->value));
  } else if (is_traced(t)) {
    refuse(fmt::format("a {} views a value's memory without an operator; use 'reshape', 'slice', …",
                       describe(t)));
  } else if (has_no_values(t)) {
    refuse(fmt::format("it uses a {} of another recording, which has no values", describe(t)));
  } else {
    value = constant(t);
  }
  know(value, new_leaf ? v : Variable(t), same ? Origin::made : Origin::constant);
  return value;
}

void TraceValues::called(const autograd::OperatorCall& call,
                         std::span<const Variable* const> operands, const Variables& results) {
  SmallVector<ops::Value, 4> in;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i])
      in.push_back(value_of(*operands[i]));
    else if (const auto& number = call.operands()[i].number)
      in.push_back(ops::Value{nullptr, *number, {}, {}});
    else
      in.emplace_back();
  }
  auto out = world().emit_results(call.op(), call.attributes(), in, results.size());
  for (size_t i = 0; i < results.size(); ++i) know(out[i], results[i]);
}

void TraceValues::function_called(const autograd::CppFunction& function,
                                  std::span<const bool> marks, std::span<const Variable> operands,
                                  const OpaqueVariables& found) {
  SmallVector<ops::Value, 4> in;
  for (const Variable& v : operands) in.push_back(value_of(v));
  auto out = world().emit_results(ops::caller_of(function), ops::call_attributes(function, marks),
                                  in, found.results.size() + !!found.instruction);
  know_results(found, out);
}

void TraceValues::evaluated(const HandleOrigin& of, std::span<const Variable> cotangents,
                            const OpaqueVariables& found) {
  auto handle = handles_.find(&of);
  if (handle == handles_.end())
    refuse("it evaluates the derivative of a function that was called before the trace");
  SmallVector<ops::Value, 4> in;
  for (const Variable& v : cotangents) in.push_back(v.defined() ? value_of(v) : ops::Value());
  ir::GraphWorld world = this->world();
  in.push_back(world.value(handle->second.first));
  auto out = ops::emit_eval(world, in, found.results.size() + !!found.instruction);
  know_results(found, out);
}

}  // namespace gradus::interpreter
