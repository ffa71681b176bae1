#include "ops/structural.h"

#include <algorithm>

namespace gradus::ops {

void Constant::infer(ir::InferCall& call) {
  const Tensor& t = attributes_as<Attr>(call.attributes).value;
  if (!t.defined()) call.fail("attribute 'value' is missing");
  Dims dims;
  for (int64_t n : t.shape()) dims.push_back(n);
  call.out.emplace_back(t.dtype(), std::move(dims));
}

void Undefined::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  call.out.emplace_back(a.dtype, a.shape);
}

void Grad::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const ir::Type& y = call.tensor(0);
  size_t first = a.cotangent ? 2 : 1;
  if (!y.is_floating()) call.fail("only a floating value has a derivative; 'y' is {}", to_string(y));
  if (call.operands() <= first)
    call.fail("there is nothing to differentiate with respect to; write grad(%y, {}%x, ...)",
              a.cotangent ? "%ct, " : "");
  if (a.cotangent) {
    const ir::Type& ct = call.tensor(1);
    if (!(ct == y))
      call.fail("the cotangent is {}, it must have the type of 'y', {}", to_string(ct), to_string(y));
  } else if (y.rank() != 0) {
    call.fail("'y' is {}; a gradient is taken of a 0-d value, or of a value with a cotangent: "
              "grad(%y, %ct, %x, ...) {{cotangent = true}}",
              to_string(y));
  }
  for (size_t i = first; i < call.operands(); ++i) {
    const ir::Type& x = call.tensor(i);
    if (!x.is_floating())
      call.fail("operand {} is {}; only floating values can be differentiated with respect to",
                i, to_string(x));
    call.out.push_back(x);
  }
}

std::optional<Dim> Substitution::operator()(std::string_view symbol) const {
  for (const auto& [name, dim] : dims)
    if (name == symbol) return dim;
  return std::nullopt;
}

Substitution match_arguments(const ir::InferCall& call, const ir::Graph& callee) {
  const auto& inputs = callee.stages[0].inputs;
  if (call.operands() != inputs.size())
    call.fail("graph '{}' takes {} inputs, {} are given", callee.name, inputs.size(),
              call.operands());
  Substitution s;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type &want = callee[inputs[i]].type, &got = call.tensor(i);
    if (want.dtype != got.dtype || want.rank() != got.rank() || want.device != got.device)
      call.fail("input '{}' of graph '{}' is {}, {} is given", callee[inputs[i]].name, callee.name,
                to_string(want), to_string(got));
    for (size_t d = 0; d < want.dims.size(); ++d) {
      std::string_view symbol = want.dims[d].symbol_name();
      if (!symbol.empty() && !s(symbol)) s.dims.emplace_back(symbol, got.dims[d]);
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type &want = callee[inputs[i]].type, &got = call.tensor(i);
    for (size_t d = 0; d < want.dims.size(); ++d)
      call.require_equal(want.dims[d].substitute(s), got.dims[d],
                         fmt::format("dimension {} of input '{}' of graph '{}'", d,
                                     callee[inputs[i]].name, callee.name));
  }
  return s;
}

void Call::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  if (!a.target) call.fail("graph '{}' is not known here", a.graph);
  Substitution s = match_arguments(call, *a.target);
  for (const ir::Result& r : a.target->stages[0].results) {
    if (r.value == ir::no_value)
      call.fail("graph '{}' returns `none` as '{}', which a call cannot", a.graph, r.name);
    ir::Type t = (*a.target)[r.value].type;
    for (Dim& d : t.dims) d = d.substitute(s);
    call.out.push_back(std::move(t));
  }
}

std::span<const ir::Operator* const> structural_family() { return fold<StructuralOperators>(); }

}  // namespace gradus::ops
