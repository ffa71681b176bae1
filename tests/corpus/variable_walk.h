// Walking a program's nodes with variables.
#pragma once

#include <map>

#include "gradus/apply.h"
#include "gradus/opaque_function.h"
#include "interpreter/opaque_call.h"
#include "ops/opaque.h"
#include "tests/corpus/walk.h"

namespace gradus::corpus {

struct VariableValues {
  using Value = autograd::Variable;
  static bool defined(const Value& v) { return v.defined(); }
  static Value of(Tensor t) { return Value(std::move(t)); }
  static auto run(const ir::Operator& op, const ir::Attributes& attributes,
                  std::span<const autograd::VariableOperand> operands) {
    return autograd::apply(op, attributes, operands);
  }
};

class VariableWalk final : public Walk<VariableValues> {
 public:
  using Walk::Walk;

 private:
  void run_opaque(const ir::Node& node) override {
    interpreter::OpaqueVariables out = node.op->traits.acts ? call(node) : evaluate(node);
    for (size_t i = 0; i < out.results.size(); ++i) at(node.results[i]) = out.results[i];
    if (leaves_handle(node)) handles_.insert_or_assign(node.results.back(), std::move(out));
  }

  bool leaves_handle(const ir::Node& node) const {
    return !graph()[node.results.back()].type.is_tensor();
  }

  interpreter::OpaqueVariables call(const ir::Node& node) {
    auto function = std::dynamic_pointer_cast<const autograd::CppFunction>(
        ops::called_function(*node.op, node.attributes));
    autograd::Variables operands;
    SmallVector<bool, 4> marks;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      ir::ValueId v = value_in(node.operands[i]);
      operands.push_back(defined(v) ? at(v) : zeros(graph()[v].type));
      marks.push_back(ops::requires_grad(node.attributes, i, graph()[v].type));
    }
    return interpreter::call_opaque(std::move(function), operands, marks, leaves_handle(node));
  }

  interpreter::OpaqueVariables evaluate(const ir::Node& node) {
    autograd::Variables cotangents;
    for (size_t i = 0; i + 1 < node.operands.size(); ++i) {
      ir::ValueId v = value_in(node.operands[i]);
      cotangents.push_back(v != ir::no_value ? at(v) : autograd::Variable());
    }
    return interpreter::evaluate_opaque(handles_.at(value_in(node.operands.back())), cotangents,
                                        leaves_handle(node));
  }

  std::map<ir::ValueId, interpreter::OpaqueVariables> handles_;
};

}  // namespace gradus::corpus
