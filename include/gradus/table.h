// Makes the record of an operator, ir::Operator, from its struct.
//
// A struct has the members `name`, `doc` (its equation), `inputs` (names; "b?" may be none, "x..."
// is any number of operands, "i...?" any number of which each may be none; default: {"x"}),
// `results` (default: {"y"}), `Attr` (attributes with `fields()`; default: none), and
//   a pointwise operator:  see gradus/pointwise.h (`scalar` gives the type rule and the kernel)
//   a composition:         static void compose(ComposeCall&)   (type rule: `infer`, or that of the
//                          composition)
//   another primitive:     static void infer(InferCall&), static void bind(BindCall&)
// A differentiable operator also has `static void vjp(VjpCall&)`, or, if only operand 0 has a
// gradient, `static Value dx(VjpCall&)`, which returns it. `zero_gradient = true` states that the
// derivative is zero everywhere. An operator with neither is an error where a derivative is
// requested. If data determine the size of a result: `data_sized` and `count`; see ops/selection.h.
//
// Each of these rules may have a second parameter, `const Attr&`, the attributes of the call. In
// it, dimensions are counted from the front. They are dimensions of operand 0, or of a tensor with
// `more_dimensions` more. Operand 0 must have at least `least_rank` dimensions.
//
// A struct also states facts that the rest of Gradus uses:
//   batch             the batch rule (gradus/batching.h). A primitive that is not pointwise has
//                     `batch` or `no_batch_rule = "the reason"`, which makes a batch an error.
//                     A composition is expanded before it is batched, unless it has a derivative
//                     of its own: then it has a rule, too, which keeps that derivative
//   recompute_cost    one of ir::again. Without it, the operator is never recomputed. Pointwise
//                     operators have it from their kind
//   may_be_view       `bind` calls set_view. Default: false
//   edge              for an operator that moves elements: where the elements come from
//                     (ops/edge.h). Without it, kernels read its result from memory
//   linear            one of ir::Linear. Default: `no`
//   is_function       see Function in gradus/pointwise.h
//   is_long_function  see LongFunction in gradus/pointwise.h
//   Fast              the struct of an operator with the same operands and attributes, which
//                     computes the same faster and less accurately
#pragma once

#include <array>
#include <tuple>

#include "gradus/batching.h"
#include "gradus/bind.h"
#include "gradus/dimension.h"
#include "gradus/pointwise.h"
#include "gradus/registry.h"
#include "gradus/rules.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

template <class Op>
struct AttributesOf {
  using type = NoAttributes;
};
template <class Op>
requires requires { typename Op::Attr; }
struct AttributesOf<Op> {
  using type = typename Op::Attr;
};
template <class Op>
using AttributesOfT = typename AttributesOf<Op>::type;

template <class Op>
constexpr auto inputs_of() {
  if constexpr (requires { Op::inputs; })
    return Op::inputs;
  else
    return std::array<std::string_view, 1>{"x"};
}
template <class Op>
constexpr auto operand_specs() {
  constexpr auto inputs = inputs_of<Op>();
  std::array<ir::OperandSpec, inputs.size()> specs{};
  for (size_t i = 0; i < specs.size(); ++i) {
    std::string_view n = inputs[i];
    specs[i].optional = n.ends_with("?");
    if (specs[i].optional) n.remove_suffix(1);
    specs[i].variadic = n.ends_with("...");
    if (specs[i].variadic) n.remove_suffix(3);
    specs[i].name = n;
  }
  return specs;
}
template <class Op>
inline constexpr auto operand_specs_of = operand_specs<Op>();
inline constexpr std::array<std::string_view, 1> one_result{"y"};

// Whether a struct states its batch rule. A primitive that is not pointwise has to, and so does a
// composition with a derivative of its own, which its parts may not have. Calls and loops are
// batched by their graphs.
template <class Op>
constexpr bool says_batch_rule() {
  constexpr bool rule = requires { Op::batch; };
  constexpr bool reason = requires { std::string_view(Op::no_batch_rule); };
  constexpr bool primitive = requires { Op::bind; };
  constexpr bool has_vjp = requires { Op::vjp; }
  || requires { Op::dx; };
  constexpr bool kept = has_vjp && requires { Op::compose; };
  constexpr bool by_graphs = requires { Op::structural; }
  || requires { Op::loop; };
  return is_pointwise<Op> || by_graphs || !(primitive || kept) || rule != reason;
}
template <class Op>
constexpr void check_facts() {
  static_assert(
      says_batch_rule<Op>(),
      "the operator Op (the compiler says which) lacks its batch rule: write `batch` as "
      "gradus/batching.h says, or `static constexpr auto no_batch_rule = \"the reason\";` "
      "for being refused; not both");
}

// The facts of an operator whose results are views of its operand, if the layout allows it.
struct View {
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
};

// The rank of the tensor whose dimensions the attributes of a call name.
template <class Op>
int named_rank_of(const auto& call) {
  const int rank = named_rank(call, operand_specs_of<Op>[0].variadic);
  if constexpr (requires { Op::more_dimensions; }) return rank + Op::more_dimensions;
  return rank;
}
template <class Op>
constexpr int least_rank_of() {
  if constexpr (requires { Op::least_rank; }) return Op::least_rank;
  return 0;
}

// Calls a rule, with the attributes if it takes them. Their dimensions are counted from the front.
// Type rules and compositions check the dimensions first.
template <class Op, auto rule, class Call>
auto call_rule(Call& call) {
  using A = AttributesOfT<Op>;
  constexpr bool alone = std::is_invocable_v<decltype(rule), Call&>;
  constexpr bool checks = std::is_same_v<Call, ir::InferCall> || std::is_same_v<Call, ComposeCall>;
  if constexpr (names_dimensions<A> && checks)
    check_dimensions<A>(call, named_rank_of<Op>(call), least_rank_of<Op>());
  if constexpr (alone)
    return rule(call);
  else if constexpr (names_dimensions<A>)
    return rule(call, *FromFront<A>(call.attributes, named_rank_of<Op>(call)));
  else
    return rule(call, attributes_as<A>(call.attributes));
}

// The type rule of a composition without `infer`: the types that the composition gives.
void infer_by_composing(ir::InferCall& call);

// Makes the record of an operator. A struct that lacks a required member does not compile.
template <class Op>
constexpr ir::Operator operator_of() {
  check_facts<Op>();
  using A = AttributesOfT<Op>;
  ir::Operator o{};
  o.name = Op::name;
  o.type = &type_key<Op>;
  o.operands = operand_specs_of<Op>;
  o.results = one_result;
  if constexpr (requires { Op::results; }) o.results = Op::results;
  o.read = read_attributes<A>;
  o.write = write_attributes<A>;
  o.describe = describe_attributes<A>;
  if constexpr (requires { Op::doc; }) o.traits.doc = Op::doc;
  if constexpr (requires { Op::structural; }) o.traits.structural = Op::structural;
  if constexpr (requires { Op::zero_gradient; }) o.traits.zero_gradient = Op::zero_gradient;
  if constexpr (requires { Op::accumulates; }) o.traits.accumulates = Op::accumulates;
  if constexpr (requires { Op::opaque; }) o.traits.opaque = Op::opaque;
  if constexpr (requires { Op::acts; }) o.traits.acts = Op::acts;
  if constexpr (requires { Op::takes_handle; }) o.traits.takes_handle = Op::takes_handle;
  if constexpr (requires { Op::loop; }) o.traits.loop = Op::loop;
  if constexpr (names_graphs<A>) o.graphs = graphs_of<A>;
  if constexpr (requires { Op::collective; }) o.traits.collective = Op::collective;
  if constexpr (requires { Op::linear; }) o.traits.linear = Op::linear;
  if constexpr (requires { Op::converts; }) o.traits.converts = Op::converts;
  if constexpr (requires { typename Op::Fast; }) o.traits.fast = Op::Fast::name;
  if constexpr (requires { Op::may_be_view; }) o.traits.may_be_view = Op::may_be_view;
  if constexpr (is_pointwise<Op>) {
    o.infer = PointwiseEntry<Op>::infer;
    o.bind = PointwiseEntry<Op>::bind;
    o.pointwise = PointwiseEntry<Op>::info;
    o.batch = batch_pointwise;
    o.traits.is_function = Op::is_function;
    o.traits.is_long_function = Op::is_long_function;
    o.recompute_cost = Op::is_function ? ir::again::calls_function : ir::again::moves;
  }
  if constexpr (requires { Op::recompute_cost; }) o.recompute_cost = Op::recompute_cost;
  if constexpr (requires { Op::batch; }) o.batch = call_rule<Op, Op::batch, const BatchedCall>;
  if constexpr (requires { Op::no_batch_rule; })
    o.batch = [](const BatchedCall& c) -> BatchedResults { refuse_batch(c, Op::no_batch_rule); };
  if constexpr (requires { Op::edge; }) o.edge = call_rule<Op, Op::edge, EdgeCall>;
  if constexpr (requires { Op::compose; }) {
    o.compose = call_rule<Op, Op::compose, ComposeCall>;
    o.infer = infer_by_composing;
  }
  if constexpr (requires { Op::infer; }) o.infer = call_rule<Op, Op::infer, ir::InferCall>;
  if constexpr (requires { Op::bind; }) o.bind = call_rule<Op, Op::bind, BindCall>;
  if constexpr (requires { Op::vjp; }) o.vjp = call_rule<Op, Op::vjp, VjpCall>;
  if constexpr (requires { Op::dx; })
    o.vjp = [](VjpCall& d) { d.give(0, [&] { return call_rule<Op, Op::dx>(d); }); };
  if constexpr (requires { Op::vjp_holds; }) o.vjp_holds = Op::vjp_holds;
  if constexpr (requires { Op::data_sized; }) {
    o.data_sized = Op::data_sized;
    o.count = Op::count;
  }
  // Tests the struct, not the pointers: with the undefined-behaviour sanitizer, g++ does not
  // compare the address of a function with null at compile time.
  constexpr bool has_vjp = requires { Op::vjp; }
  || requires { Op::dx; };
  constexpr bool has_composition = requires { Op::compose; };
  o.traits.differentiable = has_vjp || (has_composition && !o.traits.zero_gradient);
  return o;
}

// The record of an operator. It exists as long as the library that contains it.
template <class Op>
inline constexpr ir::Operator operator_record = operator_of<Op>();

// The table of a family: family.cpp defines one function that returns fold<ItsOperators>().
template <class List>
struct Fold;
template <class... Op>
struct Fold<std::tuple<Op...>> {
  static constexpr std::array<const ir::Operator*, sizeof...(Op)> table{&operator_record<Op>...};
};
template <class List>
std::span<const ir::Operator* const> fold() {
  return Fold<List>::table;
}

}  // namespace gradus::ops

#pragma GCC visibility pop
