#include "tests/corpus/handle_node.h"

#include <algorithm>

namespace gradus::corpus {

namespace {

using autograd::Edge;
using autograd::Node;
using autograd::Variable;
using autograd::Variables;

// A result of an opaque instruction: whether it takes a cotangent, and what an absent one is where
// its own gradient may be asked for.
struct Root {
  bool takes = false;
  Tensor zeros;  // undefined for a gradient that is absent
};

OpaqueVariables evaluate(const Ref<const interpreter::Handle>& handle, std::span<const Edge> edges,
                         std::span<const Variable> cotangents, std::span<const Root> roots,
                         std::span<const bool> wanted, bool leaves_handle);

// An `eval`, when cotangents arrive: what it gives has such a node, too.
class HandleNode final : public Node {
 public:
  HandleNode(Ref<const interpreter::Handle> handle, SmallVector<Edge, 2> edges)
      : Node(std::move(edges)), handle_(std::move(handle)) {}
  std::string name() const override { return "an opaque instruction"; }
  std::vector<Root> roots;

 private:
  Variables apply(Variables&& cotangents) override {
    if (std::ranges::none_of(cotangents, &Variable::defined)) return Variables(outputs());
    SmallVector<bool, 4> wanted;
    for (size_t i = 0; i < outputs(); ++i) wanted.push_back(task_should_compute_output(i));
    return evaluate(handle_, next_edges(), cotangents, roots, wanted, false).results;
  }
  Ref<const interpreter::Handle> handle_;
};

OpaqueVariables attach(interpreter::OpaqueResults found, SmallVector<Edge, 2> edges, bool record,
                       bool function) {
  OpaqueVariables out{{}, found.handle, edges};
  if (!record) {
    for (Tensor& t : found.tensors)
      out.results.push_back(t.defined() ? Variable(std::move(t)) : Variable());
    return out;
  }
  auto node = make_ref<HandleNode>(std::move(found.handle), std::move(edges));
  for (Tensor& t : found.tensors) {
    bool floating = t.defined() && is_floating(t.dtype());
    node->roots.push_back({floating || !function, {}});
    if (floating) {
      node->roots.back().zeros = Tensor::zeros(t.dtype(), t.shape());
      out.results.push_back(autograd::create_gradient_edge(std::move(t), node));
      continue;
    }
    node->add_undefined_input();
    out.results.push_back(t.defined() ? Variable(std::move(t)) : Variable());
  }
  return out;
}

OpaqueVariables evaluate(const Ref<const interpreter::Handle>& handle, std::span<const Edge> edges,
                         std::span<const Variable> cotangents, std::span<const Root> roots,
                         std::span<const bool> wanted, bool leaves_handle) {
  bool record = autograd::recording();
  SmallVector<Tensor, 4> given;
  SmallVector<Edge, 2> next;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].takes) continue;
    const Variable& ct = cotangents[i];
    given.push_back(ct.defined() ? ct.data() : record ? roots[i].zeros : Tensor());
    next.push_back(ct.defined() ? ct.gradient_edge() : Edge());
  }
  auto found = interpreter::evaluate_handle(handle, given, wanted, record || leaves_handle,
                                            autograd::current_context());
  for (const Edge& edge : edges) next.push_back(edge);
  return attach(std::move(found), std::move(next), record, false);
}

}  // namespace

OpaqueVariables call_opaque(const autograd::CppFunction& function,
                            std::span<const Variable> operands, std::span<const bool> marks,
                            bool leaves_handle) {
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
  auto found = interpreter::call_function(function, tensors, marks, record || leaves_handle,
                                          autograd::current_context());
  return attach(std::move(found), std::move(edges), record, true);
}

OpaqueVariables evaluate_opaque(const OpaqueVariables& of, std::span<const Variable> cotangents,
                                bool leaves_handle) {
  std::vector<Root> roots(cotangents.size(), Root{true, {}});
  SmallVector<bool, 4> wanted(of.inputs.size(), true);
  return evaluate(of.handle, of.inputs, cotangents, roots, wanted, leaves_handle);
}

}  // namespace gradus::corpus
