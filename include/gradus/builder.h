// Builds programs with C++ calls instead of program text.
#pragma once

#include <memory>

#include "gradus/internal.h"
#include "gradus/rules.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Builds a program stage by stage. Values of earlier stages may be used in later stages. The
// functions of gradus/rules.h and ops::emit add nodes to the current stage:
//
//   Builder b("swing");
//   ops::Value x = b.input("x", Type(DType::f64, {Dim::symbol("N")}));
//   b.result("y", ops::sum_all(ops::unary("tanh", x * 2.0)));
//   Graph swing = b.take();
//
// The builder must outlive its values. It serves one thread at a time. A node's types are inferred
// when it is added; a type rule that rejects the operands throws Error.
class Builder {
 public:
  explicit Builder(std::string name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Adds an input to the current stage. Throws Error for a type that no input can have.
  ops::Value input(std::string name, Type type);
  // Returns a constant with a copy of the tensor. Throws Error if the tensor is undefined.
  ops::Value constant(const Tensor& value);
  // Adds a node for an operator by its name, also for an operator without tensor operands.
  // `results` is the number of results, where the operator does not determine it; a function's
  // handle counts. Throws Error for an unknown name.
  SmallVector<ops::Value, 2> emit(std::string_view op, std::initializer_list<ops::Value> operands,
                                  const LiteralList& attributes = {}, size_t results = any_results);
  // Adds a call of a registered function, without its handle, which `differentiate` adds.
  SmallVector<ops::Value, 2> call(std::string_view function,
                                  std::initializer_list<ops::Value> operands);
  // Adds a result to the current stage. An undefined value is a structural zero. Throws Error for a
  // number, or for a value of another builder.
  void result(std::string name, const ops::Value& value);
  // Begins the next stage.
  void next_stage();

  // Returns the program. Throws Error if it violates an invariant of gradus/text.h. In both cases
  // the builder is empty afterwards.
  Graph take();

 private:
  class GRADUS_INTERNAL StageWorld;
  std::unique_ptr<StageWorld> world_;
};

}  // namespace gradus::ir

#pragma GCC visibility pop
