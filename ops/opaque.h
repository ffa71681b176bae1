// The doors of opaque functions. A node of an opaque operator may have one result
// more than the function has outputs: the handle, which `eval` turns into gradients.
#pragma once

#include "gradus/function.h"
#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct CppOp {  // y…, handle = f(x…), f a registered C++ function
  static constexpr std::string_view name = "cpp_op", doc = "a registered C++ function";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool opaque = true, acts = true;
  struct Attr {
    std::string name;
    // One per operand: whether its gradient may be asked for. Absent: of all floating ones.
    std::optional<std::vector<bool>> requires_grad;
    // Where the scalars stand among the arguments, and they: see CallScalars.
    std::optional<std::string> convention;
    Literal scalars;
    static constexpr auto fields() {
      return std::tuple(required("name", &Attr::name), field("requires_grad", &Attr::requires_grad),
                        field("convention", &Attr::convention), field("scalars", &Attr::scalars));
    }
  };
  static void infer(ir::InferCall& call);
  static void vjp(VjpCall& d);
};

struct PythonOp {  // y…, handle = f(x…), f a registered Python function
  static constexpr std::string_view name = "python_op", doc = "a registered Python function";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool opaque = true, acts = true;
  using Attr = CppOp::Attr;
  static void infer(ir::InferCall& call);
  static void vjp(VjpCall& d);
};

struct Eval {  // dx…, handle = eval(ct…, handle)
  static constexpr std::string_view name = "eval", doc = "gradients from a handle, by the engine";
  static constexpr std::array inputs{"ct...?"sv};
  static constexpr std::array results{"dx..."sv};
  static constexpr bool opaque = true, takes_handle = true;
  static void infer(ir::InferCall& call);
  static void vjp(VjpCall& d);
};

using OpaqueOperators = std::tuple<CppOp, PythonOp, Eval>;

// The function that a node of `cpp_op` or `python_op` calls, with its scalars. Throws Error for one
// that is not registered, is called by the other operator, or does not take the scalars.
std::shared_ptr<const OpaqueFunction> called_function(const ir::Operator& op,
                                                      const Attributes& attributes);
// The operator that calls the function, and what its node says.
const ir::Operator& caller_of(const OpaqueFunction& function);
Attributes call_attributes(const OpaqueFunction& function, std::span<const bool> requires_grad);

// Emits an `eval`: its operands are cotangents, then the handle. `results`: the gradients, and one
// more where the eval leaves a handle; the gradients alone if it is left out.
SmallVector<Value, 2> emit_eval(World& world, std::span<const Value> operands,
                                size_t results = ir::any_results);

// Whether operand `i`, of this type, of a `cpp_op` or `python_op` is differentiable.
bool requires_grad(const Attributes& attributes, size_t i, const Type& type);
// "cpp_op 'swish'" or "eval of 'swish'", for messages.
std::string describe_opaque(const ir::Graph& graph, const ir::Node& node);

}  // namespace gradus::ops
