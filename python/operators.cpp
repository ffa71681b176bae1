// Operators by name, and their table.
#include "gradus/registry.h"
#include "python/bindings.h"

namespace gradus::python {

namespace {

Variables apply_named(std::string_view name, const nb::list& operands, const nb::dict& attributes) {
  const ir::Operator* op = ops::find(name);
  if (!op) throw Error("there is no operator '{}'{}", name, ops::advice(name));
  SmallVector<autograd::VariableOperand, 4> in;
  size_t i = 0;
  for (nb::handle o : operands) {
    const std::string what = fmt::format("{}: operand {}", name, i++);
    in.push_back(operand_from(o, what.c_str()));
  }
  ir::LiteralList literals = attributes_from(attributes);
  return unlocked([&] { return autograd::apply(*op, op->read(literals), in); });
}

nb::dict description(const ir::Operator& op) {
  nb::dict d;
  d["name"] = std::string(op.name);
  d["doc"] = std::string(op.traits.doc);
  d["signature"] = ir::signature(op);
  d["differentiable"] = op.traits.differentiable;
  // Not for calls by hand: what only programs say.
  d["structural"] = op.traits.structural || op.traits.opaque || op.traits.loop;
  nb::list operands, attributes, results;
  for (const ir::OperandSpec& o : op.operands)
    operands.append(nb::make_tuple(std::string(o.name), o.optional, o.variadic));
  for (const ir::NamedLiteral& a : op.describe())
    attributes.append(nb::make_tuple(a.name, a.where.known(), literal_to_python(a.value)));
  for (std::string_view r : op.results) results.append(std::string(r));
  d["operands"] = operands;
  d["attributes"] = attributes;
  d["results"] = results;
  return d;
}

}  // namespace

void bind_operators(nb::module_& m) {
  m.def(
      "apply",
      [](std::string_view name, const nb::list& operands, const nb::dict& attributes) {
        return to_python(apply_named(name, operands, attributes));
      },
      nb::sig(
          "def apply(name: str, operands: list[typing.Any], attributes: dict[str, typing.Any]) -> "
          "list[Tensor]"));
  m.def(
      "operators",
      [] {
        nb::list list;
        for (const ir::Operator* op : ops::all()) list.append(description(*op));
        return list;
      },
      nb::sig("def operators() -> list[dict[str, typing.Any]]"));
}

}  // namespace gradus::python
