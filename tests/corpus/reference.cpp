#include "tests/corpus/reference.h"

#include <algorithm>

#include "interpreter/handle.h"
#include "ops/evaluate.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus::corpus {

namespace {

class Reference {
 public:
  explicit Reference(const Subject& subject) : subject_(subject), graph_(subject.graph) {
    bool calls = false;
    for (const ir::Stage& stage : graph_.stages)
      for (const ir::Node& node : stage.nodes) calls |= is<ops::Call>(node) || is<ops::Grad>(node);
    if (calls) {
      ir::expand_grad(graph_);
      ir::decompose(graph_, false);
    }
    values_.resize(graph_.values.size());
    handles_.resize(graph_.values.size());
  }

  Results run() {
    Results results;
    // Sizes are asked of a state, stage by stage.
    State state(subject_.code);
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      const ir::Stage& stage = graph_.stages[s];
      for (size_t i = 0; i < stage.inputs.size(); ++i) at(stage.inputs[i]) = subject_.inputs[s][i];
      state.run(subject_.inputs[s]);
      for (const ir::Node& node : stage.nodes) run_node(node, state);
      results.emplace_back();
      for (const ir::Result& r : stage.results)
        results.back().push_back(r.value == ir::no_value ? Tensor() : at(r.value));
    }
    return results;
  }

 private:
  template <class Op>
  static bool is(const ir::Node& node) {
    return node.op == &ops::operator_record<Op>;
  }
  Tensor& at(ir::ValueId v) { return values_[index_of(v)]; }

  ir::Dim known(const ir::Dim& d, const State& state) const {
    return d.substitute([&](std::string_view name) -> std::optional<ir::Dim> {
      if (auto n = state.dimension(name)) return ir::Dim(*n);
      return std::nullopt;
    });
  }

  void replace_names(ir::Literal& l, const State& state) const {
    if (auto* d = std::get_if<ir::Dim>(&l.value)) *d = known(*d, state);
    if (auto* list = std::get_if<std::vector<ir::Literal>>(&l.value))
      for (ir::Literal& item : *list) replace_names(item, state);
  }

  Sizes sizes(const ir::Type& type, const State& state) const {
    Sizes shape;
    for (const ir::Dim& d : type.dims) shape.push_back(known(d, state).value());
    return shape;
  }

  void run_node(const ir::Node& node, const State& state) {
    if (is<ops::Undefined>(node)) return;
    if (is<ops::Constant>(node)) {
      at(node.results[0]) = ops::attributes_as<ops::Constant::Attr>(node.attributes).value;
      return;
    }
    if (node.op->traits.opaque) return run_opaque(node, state);
    if (node.op->name == "add" && run_sum(node)) return;
    std::vector<ops::EagerOperand> operands;
    for (const ir::Operand& o : node.operands) {
      if (const auto* v = std::get_if<ir::ValueId>(&o)) {
        // An absent value is zeros of its type.
        if (!at(*v).defined())
          operands.emplace_back(
              Tensor::zeros(graph_[*v].type.dtype, sizes(graph_[*v].type, state)));
        else
          operands.emplace_back(at(*v));
      } else if (const auto* n = std::get_if<ir::Number>(&o)) {
        operands.emplace_back(*n);
      } else if (const auto* d = std::get_if<ir::Dim>(&o)) {
        operands.emplace_back(ir::Number::of(known(*d, state).value()));
      } else {
        operands.emplace_back();
      }
    }
    ir::LiteralList attributes = node.op->write(node.attributes);
    for (ir::NamedLiteral& a : attributes) replace_names(a.value, state);
    auto results =
        ops::evaluate(*node.op, attributes.empty() ? node.attributes : node.op->read(attributes),
                      operands, *Context::default_context());
    for (size_t i = 0; i < results.size(); ++i) at(node.results[i]) = results[i];
  }

  // Every handle is made and every gradient asked for, whether it is used or not.
  void run_opaque(const ir::Node& node, const State& state) {
    ir::ValueId last = node.results.back();
    bool leaves_handle = !graph_[last].type.is_tensor();
    SmallVector<Tensor, 4> operands;
    Ref<const interpreter::Handle> handle;
    for (const ir::Operand& o : node.operands) {
      const auto* v = std::get_if<ir::ValueId>(&o);
      if (v && !graph_[*v].type.is_tensor()) {
        handle = handles_[index_of(*v)];
        continue;
      }
      operands.push_back(v ? at(*v) : Tensor());
      if (v && !at(*v).defined() && (node.op->traits.acts || leaves_handle))
        operands.back() = Tensor::zeros(graph_[*v].type.dtype, sizes(graph_[*v].type, state));
    }
    interpreter::OpaqueResults results;
    auto context = Context::default_context();
    if (node.op->traits.acts) {
      const auto& name = ops::attributes_as<ops::CppOp::Attr>(node.attributes).name;
      auto function =
          std::dynamic_pointer_cast<const autograd::CppFunction>(ops::find_function(name));
      SmallVector<bool, 4> marks;
      for (size_t i = 0; i < node.operands.size(); ++i)
        marks.push_back(
            ops::requires_grad(node.attributes, i, graph_[value_in(node.operands[i])].type));
      results = interpreter::call_function(*function, operands, marks, leaves_handle, context);
    } else {
      SmallVector<bool, 4> wanted(node.results.size() - leaves_handle, true);
      results = interpreter::evaluate_handle(handle, operands, wanted, leaves_handle, context);
    }
    for (size_t i = 0; i < results.tensors.size(); ++i) at(node.results[i]) = results.tensors[i];
    if (leaves_handle) handles_[index_of(last)] = results.handle;
  }

  // An absent operand of a plain sum of equal types is left out.
  bool run_sum(const ir::Node& node) {
    if (!node.op->write(node.attributes).empty()) return false;
    const auto *x = std::get_if<ir::ValueId>(&node.operands[0]),
               *y = std::get_if<ir::ValueId>(&node.operands[1]);
    if (!x || !y || !(graph_[*x].type == graph_[*y].type)) return false;
    if (at(*x).defined() && at(*y).defined()) return false;
    at(node.results[0]) = at(*x).defined() ? at(*x) : at(*y);
    return true;
  }

  const Subject& subject_;
  ir::Graph graph_;
  std::vector<Tensor> values_;
  std::vector<Ref<const interpreter::Handle>> handles_;
};

}  // namespace

Results evaluate_node_by_node(const Subject& subject) { return Reference(subject).run(); }

}  // namespace gradus::corpus
