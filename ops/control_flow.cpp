#include "ops/control_flow.h"

#include <algorithm>

#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/collectives.h"
#include "ops/families.h"
#include "ops/solvers.h"
#include "ops/structural.h"

namespace gradus::ops {

const Operator& scan_operator() { return record<Scan>(); }

const Operator& while_operator() { return record<While>(); }

const Operator& if_operator() { return record<If>(); }

Attributes scan_attributes(LoopForm form, GraphName body) {
  return make_attributes(Scan::Attr{std::move(form), std::move(body)});
}
Attributes while_attributes(int64_t carries, GraphName condition, GraphName body,
                            std::optional<Dim> max_trips, Ints checkpoint,
                            std::optional<std::string> failure) {
  return make_attributes(While::Attr{std::move(condition), std::move(body), carries,
                                     std::move(max_trips), std::move(failure),
                                     std::move(checkpoint)});
}
Attributes if_attributes(GraphName then, GraphName otherwise) {
  return make_attributes(If::Attr{std::move(then), std::move(otherwise)});
}

std::optional<Loop> loop_in(const Operator& op, const Attributes& attributes, size_t operands) {
  if (&op != &record<Scan>()) return std::nullopt;
  const auto& a = attributes_as<Scan::Attr>(attributes);
  const auto carries = static_cast<size_t>(a.carries), sequences = static_cast<size_t>(a.sequences);
  return Loop{&a, a.body.graph.get(), carries, sequences, operands - carries - sequences};
}
std::optional<Loop> loop_in(const ir::Node& node) {
  return loop_in(*node.op, node.attributes, node.operands.size());
}

std::optional<DataLoop> data_loop_in(const Operator& op, const Attributes& attributes) {
  if (&op != &record<While>()) return std::nullopt;
  const auto& a = attributes_as<While::Attr>(attributes);
  return DataLoop{a.condition.graph.get(),
                  a.body.graph.get(),
                  static_cast<size_t>(a.carries),
                  &a.max_trips,
                  &a.failure,
                  &a.checkpoint};
}

void fail_after_most_trips(int64_t trips, const std::optional<std::string>& failure) {
  if (failure) throw Error("{}", *failure);
  throw Error(
      "while: its condition holds after {} steps, the most that `max_trips` allows; change the "
      "carries so that it ends, or raise `max_trips`",
      trips);
}

Dim steps_of(const LoopForm& form, std::span<const ir::OperandType> operands) {
  return form.length ? *form.length : operands[static_cast<size_t>(form.carries)].type->dims[0];
}

SmallVector<Type, 2> types_given(const InferCall& call, std::span<const ir::OperandType> in,
                                 const GraphName& named, std::string_view part) {
  if (!named.graph) call.fail("graph '{}' is not known here", named.name);
  const ir::Graph& graph = *named.graph;
  if (has_messages(graph))
    call.fail(
        "graph '{}' sends or receives, which a {} cannot: it may be run again; exchange by `shift` "
        "or another collective",
        named.name, part);
  const Substitution s =
      match_arguments(InferCall{call.op, in, call.attributes, {}, call.equalities}, graph);
  SmallVector<Type, 2> types;
  for (const ir::Result& r : graph.stages[0].results) {
    if (r.value == ir::no_value)
      call.fail("graph '{}' returns `none` as '{}', which a {} cannot", named.name, r.name, part);
    types.push_back(graph[r.value].type);
    for (Dim& d : types.back().dims) d = d.substitute(s);
  }
  return types;
}

namespace {

void check_checkpoint(const InferCall& call, const Ints& lengths) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1)
      call.fail("checkpoint says segments of {} steps; they have one at least", lengths[i]);
    if (i && lengths[i] >= lengths[i - 1])
      call.fail(
          "checkpoint says segments of {} steps within segments of {}; each length is less than "
          "the one before",
          lengths[i], lengths[i - 1]);
  }
}

void check_counts(const InferCall& call, const Scan::Attr& a) {
  if (!a.body.graph) call.fail("graph '{}' is not known here", a.body.name);
  const auto operands = static_cast<int64_t>(call.operands());
  if (a.carries < 0 || a.sequences < 0 || a.carries > operands ||
      a.sequences > operands - a.carries)
    call.fail("it has {} operands, and {} carries and {} sequences are said to be among them",
              operands, a.carries, a.sequences);
  const auto results = static_cast<int64_t>(a.body.graph->stages[0].results.size());
  if (results < a.carries)
    call.fail("graph '{}' returns {} values for {} carries", a.body.name, results, a.carries);
  if (!a.length && a.sequences == 0)
    call.fail(
        "it has no sequence that determines its number of steps; give `length` or `sequences`");
  if (a.length && a.length->is_constant() && a.length->value() < 0)
    call.fail("its length is {}, which is negative", a.length->value());
  for (int64_t i = a.carries; i < a.carries + a.sequences; ++i)
    if (const Type& t = call.tensor(static_cast<size_t>(i)); t.rank() == 0)
      call.fail("operand {} is {}; a sequence has a first dimension, along which it is read", i,
                to_string(t));
}

Type slice_of(const Type& sequence) {
  Type slice = sequence;
  slice.dims.erase(slice.dims.begin());
  return slice;
}

// All ranks of a group go the same way: else their calls to each other would not meet.
void require_same_way(const InferCall& call, const Type& decides, std::string_view what) {
  if (decides.placement)
    call.fail(
        "{} is {}, and the ranks of a group may not go different ways; decide by a value "
        "that all of them have (all_reduce, broadcast), or select by `where`",
        what, to_string(decides));
}

// What a carry becomes has its type.
void check_carry(const InferCall& call, const ir::Graph& body, size_t i, const Type& next) {
  const Type& now = call.tensor(i);
  const ir::Stage& stage = body.stages[0];
  const std::string& carry = body[stage.inputs[i]].name;
  const std::string& following = stage.results[i].name;
  if (next.dtype != now.dtype || next.rank() != now.rank() || next.device != now.device ||
      !same_sharing(next, now))
    call.fail(
        "the carry '{}' of graph '{}' is {}, and its next value '{}' is {}; both must have one "
        "type",
        carry, body.name, to_string(now), following, to_string(next));
  for (size_t d = 0; d < now.dims.size(); ++d)
    call.require_equal(next.dims[d], now.dims[d],
                       fmt::format("dimension {} of '{}', the next value of the carry '{}' of "
                                   "graph '{}', and of the carry",
                                   d, following, carry, body.name));
}

}  // namespace

void Scan::infer(InferCall& call) {
  const auto& a = attributes_as<Attr>(call.attributes);
  check_counts(call, a);
  check_checkpoint(call, a.checkpoint);
  if (a.memory && *a.memory < 0) call.fail("memory is {} bytes, which is negative", *a.memory);
  if (a.memory && !a.checkpoint.empty())
    call.fail("memory says what checkpoint does, too; write one of them");
  const auto carries = static_cast<size_t>(a.carries), sequences = static_cast<size_t>(a.sequences);
  const Dim length = steps_of(a, call.in);
  std::vector<Type> slices(sequences);
  SmallVector<ir::OperandType, 4> in(call.in.begin(), call.in.end());
  for (size_t k = 0; k < sequences; ++k) {
    const Type& whole = call.tensor(carries + k);
    call.require_equal(whole.dims[0], length,
                       fmt::format("dimension 0 of operand {}, a sequence", carries + k));
    slices[k] = slice_of(whole);
    in[carries + k].type = &slices[k];
  }
  auto given = types_given(call, in, a.body, "step");
  for (size_t i = 0; i < given.size(); ++i) {
    Type& t = given[i];
    if (i < carries) {
      check_carry(call, *a.body.graph, i, t);
      t.dims = call.tensor(i).dims;
    } else {
      Dims dims{length};
      dims.append(t.dims.begin(), t.dims.end());
      t.dims = std::move(dims);
    }
    call.out.push_back(std::move(t));
  }
}

void Scan::compose(ComposeCall& c) {
  const auto& a = c.attr<Attr>();
  const auto carries = static_cast<size_t>(a.carries), sequences = static_cast<size_t>(a.sequences);
  SmallVector<ir::OperandType, 4> types;
  for (const Value& x : c.operands) types.push_back(x.operand_type());
  const auto given = ops::infer(c.op, types, c.attributes, nullptr);
  const Dim length = steps_of(a, types);
  if (!length.is_constant())
    c.fail("it takes {} steps, and is unrolled only where that is a number", length.to_string());
  const auto steps = static_cast<size_t>(length.value());
  SmallVector<Value, 4> in(c.operands.begin(), c.operands.end());
  std::vector<std::vector<Value>> stacks(given.size() - carries, std::vector<Value>(steps));
  for (size_t n = 0; n < steps; ++n) {
    const size_t t = a.reverse ? steps - 1 - n : n;
    for (size_t k = carries; k < carries + sequences; ++k)
      in[k] = select(c.operands[k], 0, static_cast<int64_t>(t));
    const auto within = c.world.enter_step(c.op.name, t);
    auto out = emit_graph(c.world, c.op, *a.body.graph, in);
    for (size_t i = 0; i < carries; ++i) in[i] = out[i];
    for (size_t i = carries; i < out.size(); ++i) stacks[i - carries][t] = out[i];
  }
  for (size_t i = 0; i < carries; ++i) c.give(in[i]);
  for (size_t k = 0; k < stacks.size(); ++k)
    c.give(steps ? emit_all<Stack>(c.world, stacks[k], {.dim = 0})[0]
                 : zeros_of(c.world, given[carries + k]));
}

void While::infer(InferCall& call) {
  const auto& a = attributes_as<Attr>(call.attributes);
  if (a.carries <= 0 || a.carries > static_cast<int64_t>(call.operands()))
    call.fail("it has {} operands, and {} carries are said to be among them; it needs one at least",
              call.operands(), a.carries);
  if (a.max_trips && a.max_trips->is_constant() && a.max_trips->value() < 0)
    call.fail("max_trips is {}, which is negative", a.max_trips->value());
  check_checkpoint(call, a.checkpoint);
  const auto condition = types_given(call, call.in, a.condition, "condition");
  if (condition.size() != 1 || condition[0].dtype != DType::boolean || condition[0].rank() != 0)
    call.fail("graph '{}', its condition, returns {}; it has to return one bool[]",
              a.condition.name,
              condition.size() == 1 ? to_string(condition[0])
                                    : fmt::format("{} values", condition.size()));
  require_same_way(call, condition[0], "the condition");
  const auto given = types_given(call, call.in, a.body, "step");
  if (given.size() != static_cast<size_t>(a.carries))
    call.fail("graph '{}' returns {} values for {} carries", a.body.name, given.size(), a.carries);
  for (size_t i = 0; i < given.size(); ++i) {
    check_carry(call, *a.body.graph, i, given[i]);
    call.out.push_back(call.tensor(i));
  }
}

void While::compose(ComposeCall& c) {
  const auto& a = c.attr<Attr>();
  SmallVector<Value, 4> in(c.operands.begin(), c.operands.end());
  if (a.max_trips && !a.max_trips->is_constant())
    c.fail("max_trips is {}, of which only a run knows what it is", a.max_trips->to_string());
  for (int64_t n = 0;; ++n) {
    const auto within = c.world.enter_step(c.op.name, static_cast<size_t>(n));
    const auto more = emit_graph(c.world, c.op, *a.condition.graph, in);
    const std::optional<bool> holds = c.world.truth(more[0]);
    if (!holds) c.fail("whether its condition holds, only a run knows");
    if (!*holds) break;
    if (a.max_trips && n == a.max_trips->value()) fail_after_most_trips(n, a.failure);
    const auto out = emit_graph(c.world, c.op, *a.body.graph, in);
    std::ranges::copy(out, in.begin());
  }
  for (size_t i = 0; i < static_cast<size_t>(a.carries); ++i) c.give(in[i]);
}

void If::infer(InferCall& call) {
  const auto& a = attributes_as<Attr>(call.attributes);
  if (const Type& p = call.tensor(0); p.dtype != DType::boolean || p.rank() != 0)
    call.fail("the predicate is {}; it has to be bool[]", to_string(p));
  require_same_way(call, call.tensor(0), "the predicate");
  const auto in = call.in.subspan(1);
  const auto types = types_given(call, in, a.then, "branch");
  const auto others = types_given(call, in, a.otherwise, "branch");
  if (types.size() != others.size())
    call.fail("graph '{}' returns {} values, graph '{}' {}", a.then.name, types.size(),
              a.otherwise.name, others.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const Type &t = types[i], &o = others[i];
    if (t.dtype != o.dtype || t.rank() != o.rank() || t.device != o.device || !same_sharing(t, o))
      call.fail("result {} is {} in graph '{}' and {} in graph '{}'; both must have one type", i,
                to_string(t), a.then.name, to_string(o), a.otherwise.name);
    for (size_t d = 0; d < t.dims.size(); ++d)
      call.require_equal(t.dims[d], o.dims[d],
                         fmt::format("dimension {} of result {} of the graphs '{}' and '{}'", d, i,
                                     a.then.name, a.otherwise.name));
    call.out.push_back(t);
  }
}

void If::compose(ComposeCall& c) {
  const auto& a = c.attr<Attr>();
  const std::optional<bool> holds = c.world.truth(c.x(0));
  if (!holds) c.fail("what the predicate is, only a run knows");
  c.results =
      emit_graph(c.world, c.op, *(*holds ? a.then : a.otherwise).graph, c.operands.subspan(1));
}

std::span<const ir::Operator* const> control_flow_family() { return fold<ControlFlowOperators>(); }

}  // namespace gradus::ops
