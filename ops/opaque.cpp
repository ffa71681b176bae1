#include "ops/opaque.h"

#include <unordered_set>

#include "gradus/messages.h"
#include "gradus/rules.h"
#include "ops/families.h"

namespace gradus::ops {

bool requires_grad(const Attributes& attributes, size_t i, const Type& type) {
  const auto& marks = attributes_as<CppOp::Attr>(attributes).requires_grad;
  return type.is_floating() && (!marks || (i < marks->size() && (*marks)[i]));
}

namespace {

std::vector<Literal> scalar_list(const Literal& scalars) {
  auto refuse = [&](const Literal& l) {
    throw Error("scalars must be a list of numbers and bools, not {}", to_string(l));
  };
  if (scalars.is_none()) return {};
  const auto* list = std::get_if<std::vector<Literal>>(&scalars.value);
  if (!list) refuse(scalars);
  for (const Literal& l : *list) {
    const Dim* d = std::get_if<Dim>(&l.value);
    bool constant = d && d->is_constant();
    if (!constant && !std::holds_alternative<bool>(l.value) &&
        !std::holds_alternative<double>(l.value))
      refuse(l);
  }
  return *list;
}

}  // namespace

std::shared_ptr<const OpaqueFunction> called_function(const ir::Operator& op,
                                                      const Attributes& attributes) {
  const auto& a = attributes_as<CppOp::Attr>(attributes);
  auto function = find_function(a.name);
  if (!function) throw Error(no_function(a.name, op.name));
  if (function->caller() != op.name)
    throw Error("function '{}' is called by '{}'", printable(a.name), function->caller());
  if (!a.convention && a.scalars.is_none()) return function;
  try {
    return function->with_scalars({a.convention.value_or(""), scalar_list(a.scalars)});
  } catch (const Error& e) {
    throw Error("function '{}': {}", printable(a.name), e.bare());
  }
}

const ir::Operator& caller_of(const OpaqueFunction& function) {
  return function.caller() == PythonOp::name ? record<PythonOp>() : record<CppOp>();
}

Attributes call_attributes(const OpaqueFunction& function, std::span<const bool> requires_grad) {
  CppOp::Attr a;
  a.name = function.name();
  a.requires_grad.emplace(requires_grad.begin(), requires_grad.end());
  if (CallScalars s = function.scalars(); !s.convention.empty()) {
    a.convention = s.convention;
    a.scalars = Literal(std::move(s.values));
  }
  return make_attributes(std::move(a));
}

namespace {

std::vector<Type> operand_types(const ir::InferCall& call) {
  std::vector<Type> types;
  for (size_t i = 0; i < call.operands(); ++i) types.push_back(call.tensor(i));
  return types;
}

void check_marks(const ir::InferCall& call, const CppOp::Attr& a, std::span<const Type> in) {
  if (!a.requires_grad) return;
  if (a.requires_grad->size() != in.size())
    call.fail("requires_grad has {} marks for {} operands; it has one each",
              a.requires_grad->size(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    if ((*a.requires_grad)[i] && !in[i].is_floating())
      call.fail("operand {} is {} and cannot require a gradient; only floating ones can", i,
                to_string(in[i]));
}

// What a function says of its results is not ours: it is looked at like any other input.
void check_results(const ir::InferCall& call, const std::string& function, std::span<const Type> in,
                   std::span<const Type> out) {
  std::unordered_set<std::string> known;
  for (const Type& t : in)
    for (const Dim& d : t.dims) d.for_each_symbol([&](std::string_view s) { known.emplace(s); });
  for (const Type& t : out) {
    if (!t.is_tensor()) call.fail("function '{}' says that a result is a handle", function);
    for (const Dim& d : t.dims)
      d.for_each_symbol([&](std::string_view s) {
        if (!known.contains(std::string(s)))
          call.fail("function '{}' gives a result {}, but no operand has the size '{}'", function,
                    to_string(t), printable(s));
      });
  }
}

std::vector<Type> floating(std::span<const Type> types) {
  std::vector<Type> list;
  for (const Type& t : types)
    if (t.is_floating()) list.push_back(t);
  return list;
}

std::shared_ptr<const OpaqueFunction> function_of(const ir::InferCall& call) {
  try {
    return called_function(call.op, call.attributes);
  } catch (const Error& e) {
    call.fail_with(e.bare());
  }
}

void infer_function(ir::InferCall& call) {
  auto function = function_of(call);
  const auto& a = attributes_as<CppOp::Attr>(call.attributes);
  std::vector<Type> in = operand_types(call);
  check_marks(call, a, in);
  std::vector<Type> out;
  try {
    out = function->infer(in);
  } catch (const Error& e) {
    call.fail("function '{}': {}", printable(a.name), e.bare());
  } catch (const Exception&) {
    throw;
  } catch (const std::exception& e) {
    call.fail("function '{}': {}", printable(a.name), printable(e.what()));
  }
  check_results(call, a.name, in, out);
  for (const Type& t : out) call.out.push_back(t);
  if (call.results != out.size() + 1) return;
  ir::HandleSignature s;
  s.outputs = floating(out);
  for (size_t i = 0; i < in.size(); ++i)
    if (requires_grad(call.attributes, i, in[i])) s.inputs.push_back(in[i]);
  s.order = s.declared = function->order();
  s.function = a.name;
  call.out.push_back(Type::handle(std::move(s)));
}

}  // namespace

SmallVector<Value, 2> emit_eval(World& world, std::span<const Value> operands, size_t results) {
  const Operator& eval = record<Eval>();
  return results == ir::any_results ? world.emit(eval, eval.read({}), operands)
                                    : world.emit_results(eval, eval.read({}), operands, results);
}

namespace {

// The function's results have been given; one `eval` of the node's handle gives the gradients of
// everything differentiable, in order.
SmallVector<Value, 2> eval_of(const VjpCall& d) {
  const Value& handle = d.results.back();
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i + 1 < d.results.size(); ++i)
    if (d.y_type(i).is_floating()) operands.push_back(d.cotangents[i]);
  operands.push_back(handle);
  return emit_eval(d.world, operands);
}

void vjp_of_function(VjpCall& d) {
  auto gradients = eval_of(d);
  size_t next = 0;
  for (size_t i = 0; i < d.operands.size(); ++i)
    if (requires_grad(d.attributes, i, d.x_type(i))) {
      const Value& g = gradients[next++];
      d.give(i, [&] { return g; });
    }
}

}  // namespace

void CppOp::infer(ir::InferCall& call) { infer_function(call); }
void CppOp::vjp(VjpCall& d) { vjp_of_function(d); }

void PythonOp::infer(ir::InferCall& call) { infer_function(call); }
void PythonOp::vjp(VjpCall& d) { vjp_of_function(d); }

void Eval::infer(ir::InferCall& call) {
  size_t n = call.operands();
  bool handle = n && call.given(n - 1) && !call.is_number(n - 1) &&
                !call.in[n - 1].type->is_tensor() && call.in[n - 1].type->signature;
  if (!handle) call.fail("the last operand must be a handle, which `cpp_op` or `eval` leaves");
  const ir::HandleSignature& s = *call.in[n - 1].type->signature;
  if (s.order < 1)
    call.fail(
        "there is no further derivative: '{}' can be differentiated {} time{}; take a lower order",
        printable(s.function), s.declared, s.declared == 1 ? "" : "s");
  if (n - 1 != s.outputs.size())
    call.fail("the handle of '{}' takes {} cotangent{}, {} {} given", printable(s.function),
              s.outputs.size(), s.outputs.size() == 1 ? "" : "s", n - 1, n == 2 ? "is" : "are");
  for (size_t i = 0; i + 1 < n; ++i) {
    if (!call.given(i)) continue;
    if (!call.is_number(i) && !call.in[i].type->is_tensor())
      call.fail("{} must be a tensor, not a handle; the handle is the last operand",
                call.name_of_operand(i));
    const Type &got = call.tensor(i), &want = s.outputs[i];
    if (got.dtype != want.dtype || got.rank() != want.rank() || got.device != want.device)
      call.fail("cotangent {} of '{}' must be {}, it is {}", i, printable(s.function),
                to_string(want), to_string(got));
    for (size_t d = 0; d < want.dims.size(); ++d)
      call.require_equal(
          want.dims[d], got.dims[d],
          fmt::format("dimension {} of cotangent {} of '{}'", d, i, printable(s.function)));
  }
  for (const Type& t : s.inputs) call.out.push_back(t);
  if (call.results != s.inputs.size() + 1) return;
  ir::HandleSignature next;
  next.outputs = s.inputs;
  next.inputs = s.outputs;  // the cotangents
  next.inputs.insert(next.inputs.end(), s.inputs.begin(), s.inputs.end());
  next.order = s.order == OpaqueFunction::any_order ? s.order : s.order - 1;
  next.declared = s.declared;
  next.function = s.function;
  call.out.push_back(Type::handle(std::move(next)));
}

// The operands are the cotangents, then the differentiable inputs that the handle stands for: all
// that the eval's own handle yields gradients of.
void Eval::vjp(VjpCall& d) {
  auto gradients = eval_of(d);
  GRADUS_CHECK(gradients.size() == d.operands.size());
  for (size_t i = 0; i < d.operands.size(); ++i) d.give(i, [&] { return gradients[i]; });
}

std::string describe_opaque(const ir::Graph& graph, const ir::Node& node) {
  if (!node.op->traits.takes_handle)
    return fmt::format("{} '{}'", node.op->name,
                       printable(attributes_as<CppOp::Attr>(node.attributes).name));
  const Type& handle = graph[value_in(node.operands.back())].type;
  return fmt::format("eval of '{}'", handle.signature ? printable(handle.signature->function) : "");
}

Family opaque_family() { return fold<OpaqueOperators>(); }

}  // namespace gradus::ops
