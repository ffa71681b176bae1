// Operators that passes take away before anything runs: constants, undefined values, `grad`,
// `call`.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Constant {  // y = value
  static constexpr std::string_view name = "constant", doc = "y = value, written in the program";
  static constexpr std::array<std::string_view, 0> inputs{};
  static constexpr bool structural = true, zero_gradient = true;
  struct Attr {
    Tensor value;
    static constexpr auto fields() { return std::tuple(required("value", &Attr::value)); }
  };
  static void infer(ir::InferCall&);
};

struct Undefined {  // y: a value that is absent, as a missing cotangent is
  static constexpr std::string_view name = "undefined",
                                    doc = "an absent value: as an operand of most operators, zeros";
  static constexpr std::array<std::string_view, 0> inputs{};
  static constexpr bool structural = true, zero_gradient = true;
  struct Attr {
    DType dtype = DType::f32;
    Dims shape;
    static constexpr auto fields() {
      return std::tuple(field("dtype", &Attr::dtype), field("shape", &Attr::shape));
    }
  };
  static void infer(ir::InferCall&);
};

ir::Node constant_node(Tensor value, ir::ValueId result, const SourceLocation& where);
Value emit_constant(World& world, Tensor value);
bool is_undefined(const ir::Node& node);

struct Grad {  // dy/dx0, dy/dx1, … = grad(y, x0, x1, …), total along every path of the program
  static constexpr std::string_view name = "grad",
                                    doc = "d y / d x of a 0-d y, or its product with a cotangent";
  static constexpr std::array inputs{"y"sv, "x..."sv};
  static constexpr std::array results{"dx..."sv};
  static constexpr bool structural = true;
  struct Attr {
    bool cotangent = false;  // the second operand is y's cotangent
    static constexpr auto fields() { return std::tuple(field("cotangent", &Attr::cotangent)); }
  };
  static void infer(ir::InferCall&);
};

bool is_gradient(const ir::Node& node);
// Of such a node: whether its second operand is y's cotangent.
bool has_cotangent(const ir::Node& node);

struct Call {  // y… = f(x…): a one-stage graph of the same file, inlined
  static constexpr std::string_view name = "call",
                                    doc = "the results of a one-stage graph of the same file";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool structural = true;
  struct Attr {
    GraphName graph;
    std::optional<GraphName> vjp;
    static constexpr auto fields() {
      return std::tuple(required("graph", &Attr::graph), field("vjp", &Attr::vjp));
    }
  };
  static void infer(ir::InferCall&);
  static void compose(ComposeCall&);
  // The graph named by `vjp` takes f's inputs, f's results, then a cotangent for each floating
  // result, and returns a gradient (or `none`) for each floating input of f.
  static void vjp(VjpCall&);
  static bool vjp_holds(const Attributes&);
};

// Whether passes put the graph that the node names in its place.
bool is_call(const ir::Node& node);
const Operator& call_operator();
Attributes call_attributes(GraphName graph);

// The graphs that a node's attributes name.
SmallVector<const GraphName*, 2> graphs_in(const ir::Node& node);
// The node's attributes as this list says them; the graphs are the same.
Attributes with_literals(const ir::Node& node, const LiteralList& list);
// The node's attributes with other graphs in the places of those, in their order.
Attributes with_graphs(const ir::Node& node,
                       std::span<const std::shared_ptr<const ir::Graph>> graphs);

// The callee's dimension names in terms of a call's operand types: what `call` and inlining agree
// on. Throws Error where an operand does not fit. `equalities` may be null.
struct Substitution {
  std::vector<std::pair<std::string, Dim>> dims;
  std::optional<Dim> operator()(std::string_view symbol) const;
};
Substitution match_arguments(const ir::InferCall& call, const ir::Graph& callee);

// Emits the only stage of `graph` with these inputs, on behalf of `op`; undefined values stand for
// `none` results.
SmallVector<Value, 2> emit_graph(World& world, const Operator& op, const ir::Graph& graph,
                                 std::span<const Value> inputs);

using StructuralOperators = std::tuple<Constant, Undefined, Grad, Call>;

}  // namespace gradus::ops
