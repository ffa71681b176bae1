// The doors of opaque functions and fused groups: the names are kept, so that a program that uses
// them is told so instead of being taken for misspelt.
#pragma once

#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

void refuse_opaque(ir::InferCall&);

struct CppOp {  // y…, handle = f(x…), f a registered C++ function
  static constexpr std::string_view name = "cpp_op", doc = "a registered C++ function";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool structural = true;
  struct Attr {
    std::string name;
    std::vector<bool> requires_grad;
    static constexpr auto fields() {
      return std::tuple(required("name", &Attr::name),
                        field("requires_grad", &Attr::requires_grad));
    }
  };
  static void infer(ir::InferCall& call) { refuse_opaque(call); }
};

struct PythonOp {  // y…, handle = f(x…), f a Python function
  static constexpr std::string_view name = "python_op", doc = "a Python function";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool structural = true;
  using Attr = CppOp::Attr;
  static void infer(ir::InferCall& call) { refuse_opaque(call); }
};

struct Eval {  // dx…, handle = eval(ct…, handle)
  static constexpr std::string_view name = "eval", doc = "gradients from a handle, by the engine";
  static constexpr std::array inputs{"ct..."sv};
  static constexpr std::array results{"dx..."sv};
  static constexpr bool structural = true;
  static void infer(ir::InferCall& call) { refuse_opaque(call); }
};

struct FusionGroup {  // y… = group(x…)
  static constexpr std::string_view name = "fusion_group", doc = "nodes that run as one kernel";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool structural = true;
  static void infer(ir::InferCall& call) { refuse_opaque(call); }
};

using OpaqueOperators = std::tuple<CppOp, PythonOp, Eval, FusionGroup>;

}  // namespace gradus::ops
