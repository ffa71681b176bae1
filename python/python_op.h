// Python functions that programs call by `python_op`.
#pragma once

#include <atomic>

#include "gradus/custom_function.h"
#include "gradus/opaque_function.h"
#include "python/gil.h"

namespace gradus::python {

// What all calls of one function share. `object` has `forward(ctx, *arguments)`,
// `backward(ctx, *cotangents)` and `infer(*arguments)`, where a type stands for a tensor.
struct PythonDefinition {
  std::string name;
  Kept object;
  std::string convention;  // empty: any number of tensors
  std::atomic<int> order{0};
  bool thread_safe = false, replayable = false;
};

// What a forward run and its backward runs share, for Python. A Python object that may outlive
// both: it reaches the call only while one of them runs.
class OpContext {
 public:
  void save(const nb::args& values);
  nb::tuple saved() const;
  bool needs_gradient(size_t operand) const;
  void mark_not_differentiable(const nb::args& results);
  nb::tuple scalars() const;

 private:
  friend class PythonCustom;
  autograd::FunctionContext& context() const;  // Error outside of a run
  autograd::Variable variable(nb::handle value, DType dtype, const char* what);

  autograd::FunctionContext* context_ = nullptr;
  int running_ = 0;
  ops::CallScalars scalars_;
  autograd::Variables to_save_;
  // Arrays that became tensors in this run: one that is saved and returned is one tensor.
  std::vector<std::pair<nb::object, autograd::Variable>> converted_;
};

class PythonFunction final : public autograd::CppFunction {
 public:
  PythonFunction(std::shared_ptr<const PythonDefinition> definition, ops::CallScalars scalars)
      : definition_(std::move(definition)), scalars_(std::move(scalars)) {}
  std::string name() const override { return definition_->name; }
  std::string_view caller() const override { return ops::python_caller; }
  int order() const override { return definition_->order; }
  // A file of a state has no place for scalars.
  bool replayable() const override { return definition_->replayable && scalars_.values.empty(); }
  ops::CallScalars scalars() const override { return scalars_; }
  std::shared_ptr<const ops::OpaqueFunction> with_scalars(
      const ops::CallScalars& given) const override;
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override;
  autograd::Variables call(std::span<const autograd::Variable> operands) const override;

 private:
  void check_arguments(size_t tensors) const;

  std::shared_ptr<const PythonDefinition> definition_;
  ops::CallScalars scalars_;
};

}  // namespace gradus::python
