#include "interpreter/opaque_call.h"

#include <algorithm>

#include "gradus/device_streams.h"
#include "gradus/messages.h"
#include "interpreter/trace_values.h"

namespace gradus {

using autograd::Edge;
using autograd::Node;
using autograd::SavedVariable;
using autograd::Variable;
using autograd::Variables;

namespace interpreter {

namespace {

const autograd::CppFunction& function_of(const HandleOrigin& instruction) {
  const HandleOrigin* i = &instruction;
  while (!i->function) i = i->evaluated.get();
  return *i->function;
}

// `instruction` lacks its handle and what it saves; both are there only where a node needs them.
OpaqueVariables attach(OpaqueResults found, Ref<HandleOrigin> instruction,
                       std::span<const Variable> operands, SmallVector<Edge, 2> edges,
                       bool record) {
  OpaqueVariables out;
  out.inputs = edges;
  if (found.handle) {
    instruction->handle = found.handle;
    instruction->results = found.tensors.size();
    for (const Variable& v : operands)
      instruction->operands.push_back(v.defined() ? SavedVariable::input(v) : SavedVariable());
    out.instruction = instruction;
  }
  if (!record) {
    for (Tensor& t : found.tensors)
      out.results.push_back(t.defined() ? Variable(std::move(t)) : Variable());
    return out;
  }
  auto node = make_ref<OpaqueNode>(out.instruction, std::move(edges));
  const bool function = instruction->function != nullptr;
  // As a custom function's node says how often it can be differentiated.
  if (function && instruction->function->order() != ops::OpaqueFunction::any_order)
    node->set_order_limit(make_ref<const autograd::OrderLimit>(instruction->function->order(),
                                                               instruction->function->name()));
  for (Tensor& t : found.tensors) {
    // Each gradient that an eval yields takes a cotangent, also one that is absent.
    bool takes = !function || (t.defined() && is_floating(t.dtype()));
    out.results.push_back(node->add_result(std::move(t), takes));
  }
  return out;
}

OpaqueVariables evaluate(const Ref<const HandleOrigin>& of, std::span<const Edge> edges,
                         std::span<const Variable> cotangents, std::span<const bool> wanted,
                         bool leaves_handle) {
  bool record = autograd::recording();
  SmallVector<Tensor, 4> given;
  SmallVector<Edge, 2> next;
  for (const Variable& ct : cotangents) {
    given.push_back(ct.defined() ? ct.data() : Tensor());
    next.push_back(ct.defined() ? ct.gradient_edge() : Edge());
  }
  auto found = evaluate_handle(of->handle, given, wanted, record || leaves_handle,
                               autograd::current_context());
  for (const Edge& edge : edges) next.push_back(edge);
  auto instruction = make_ref<HandleOrigin>();
  instruction->evaluated = of;
  auto out = attach(std::move(found), std::move(instruction), cotangents, std::move(next), record);
  if (TraceValues* trace = TraceValues::current()) trace->evaluated(*of, cotangents, out);
  return out;
}

}  // namespace

OpaqueNode::OpaqueNode(Ref<const HandleOrigin> instruction, SmallVector<Edge, 2> edges)
    : Node(std::move(edges)), instruction_(std::move(instruction)) {}

std::string OpaqueNode::name() const {
  Ref<const HandleOrigin> i;
  {
    Lock lock(*this);
    i = instruction_;
  }
  if (!i) return "an opaque function";
  std::string name = printable(function_of(*i).name());
  return i->function ? name : "eval of " + name;
}

void OpaqueNode::release_variables() {
  Ref<const HandleOrigin> gone;  // dies after the lock is let go
  Lock lock(*this);
  gone = std::move(instruction_);
  instruction_ = nullptr;
}

Ref<const HandleOrigin> OpaqueNode::instruction() const {
  Lock lock(*this);
  if (!instruction_)
    throw Error(
        "the graph of an opaque function was freed by an earlier backward; keep the graph "
        "(keep_graph) to run it again");
  return instruction_;
}

Variable OpaqueNode::add_result(Tensor t, bool takes) {
  takes_.push_back(takes);
  if (t.defined() && is_floating(t.dtype()))
    return autograd::create_gradient_edge(std::move(t), Ref<Node>(this));
  add_undefined_input();
  return t.defined() ? Variable(std::move(t)) : Variable();
}

Variables OpaqueNode::apply(Variables&& cotangents) {
  if (std::ranges::none_of(cotangents, &Variable::defined)) return Variables(outputs());
  SmallVector<Variable, 4> given;
  for (size_t i = 0; i < cotangents.size(); ++i) {
    if (!takes_[i]) continue;
    given.push_back(cotangents[i]);
    // The gradient with respect to an absent cotangent may be asked for, and is not zero.
    const autograd::InputMetadata& m = input_metadata(i);
    if (!given.back().defined() && autograd::recording() &&
        m.kind == autograd::InputMetadata::Kind::known)
      given.back() = autograd::move_to(Variable(Tensor::zeros(m.dtype, m.shape)), m.device);
  }
  SmallVector<bool, 4> wanted;
  for (size_t i = 0; i < outputs(); ++i) wanted.push_back(task_should_compute_output(i));
  return evaluate(instruction(), next_edges(), given, wanted, false).results;
}

OpaqueVariables call_opaque(std::shared_ptr<const autograd::CppFunction> function,
                            std::span<const Variable> operands, std::span<const bool> marks,
                            bool leaves_handle) {
  if (TraceValues* trace = TraceValues::current())
    trace->need_values(fmt::format("function '{}'", function->name()));
  SmallVector<Tensor, 4> tensors;
  SmallVector<Edge, 2> edges;
  bool leads = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    tensors.push_back(operands[i].data());
    if (!marks[i]) continue;
    edges.push_back(operands[i].gradient_edge());
    leads |= operands[i].requires_grad();
  }
  bool record = leads && autograd::recording();
  auto found = gradus::interpreter::call_function(
      *function, tensors, marks, record || leaves_handle, autograd::current_context());
  auto instruction = make_ref<HandleOrigin>();
  instruction->function = function;
  instruction->marks = SmallVector<bool, 4>(marks);
  auto out = attach(std::move(found), std::move(instruction), operands, std::move(edges), record);
  if (TraceValues* trace = TraceValues::current())
    trace->function_called(*function, marks, operands, out);
  return out;
}

OpaqueVariables evaluate_opaque(const OpaqueVariables& of, std::span<const Variable> cotangents,
                                bool leaves_handle) {
  SmallVector<bool, 4> wanted(of.inputs.size(), true);
  return evaluate(of.instruction, of.inputs, cotangents, wanted, leaves_handle);
}

}  // namespace interpreter

Variables call_function(std::string_view name, std::span<const Variable> operands) {
  auto function = ops::find_function(name);
  if (!function) throw Error(ops::no_function(name));
  return call_function(function, operands);
}

Variables call_function(const std::shared_ptr<const ops::OpaqueFunction>& function,
                        std::span<const Variable> operands) {
  auto callable = std::dynamic_pointer_cast<const autograd::CppFunction>(function);
  if (!callable) throw Error("{}: what is registered cannot be run", printable(function->name()));
  SmallVector<bool, 4> marks;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined())
      throw Error("{}: operand {} is undefined", printable(function->name()), i);
    marks.push_back(is_floating(operands[i].dtype()));
  }
  return interpreter::call_opaque(std::move(callable), operands, marks, false).results;
}

}  // namespace gradus
