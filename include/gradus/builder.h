// Programs built from C++: what program text says, by calls.
#pragma once

#include <memory>

#include "gradus/internal.h"
#include "gradus/rules.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Stages are built in order. Values of earlier stages may be used in later ones; operators are
// emitted by gradus/rules.h and ops::emit, into the stage that is being built:
//
//   Builder b("swing");
//   ops::Value x = b.input("x", Type(DType::f64, {Dim::symbol("N")}));
//   b.result("y", ops::sum_all(ops::unary("tanh", x * 2.0)));
//   Graph swing = b.take();
//
// A builder outlives its values, and is for one thread. Types are inferred as operators are
// emitted, which throws Error as a type rule does.
class Builder {
 public:
  explicit Builder(std::string name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // An input of this stage.
  ops::Value input(std::string name, Type type);
  // The tensor is copied.
  ops::Value constant(const Tensor& value);
  // An operator without tensor operands, or with `results` of them (a function's handle counts).
  SmallVector<ops::Value, 2> emit(std::string_view op, std::initializer_list<ops::Value> operands,
                                  const LiteralList& attributes = {}, size_t results = any_results);
  // A call of a registered function; without its handle, which `differentiate` asks for itself.
  SmallVector<ops::Value, 2> call(std::string_view function,
                                  std::initializer_list<ops::Value> operands);
  // A result of this stage, in this order. An undefined value is a structural zero.
  void result(std::string name, const ops::Value& value);
  void next_stage();

  // The program, verified. Throws Error where an invariant does not hold (see gradus/text.h).
  // The builder is empty then.
  Graph take();

 private:
  class GRADUS_INTERNAL StageWorld;
  std::unique_ptr<StageWorld> world_;
};

}  // namespace gradus::ir

#pragma GCC visibility pop
