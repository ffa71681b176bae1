// Equations over graphs of the same file. What solves one, and its derivative, are graphs that a
// pass makes of the equation (ir/passes/solvers.h).
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct SolverForm {
  std::optional<GraphName> steps, vjp;  // what the pass makes
  int64_t max_steps = 0;
  std::optional<double> tolerance;
};

// x with residual(x, constants…) = 0, by Newton's method from x0. It ends where no element of the
// residual is larger than the tolerance. The implicit function theorem gives the derivative: with
// J = d residual / d x at x, the constants get -(d residual / d constants)^T J^-T dx.
struct Root {
  static constexpr std::string_view name = "root",
                                    doc =
                                        "x where the graph `residual` gives zeros, by Newton's "
                                        "method from x0";
  static constexpr std::array inputs{"x0"sv, "constants..."sv};
  static constexpr std::array results{"x"sv};
  static constexpr bool structural = true;
  struct Attr : SolverForm {
    GraphName equation;
    Attr() { max_steps = 50; }
    static constexpr auto fields() {
      return std::tuple(required("residual", &Attr::equation), field("steps", &Attr::steps),
                        field("vjp", &Attr::vjp), field("max_steps", &Attr::max_steps),
                        field("tolerance", &Attr::tolerance));
    }
  };
  static void infer(InferCall&);
  static void compose(ComposeCall&);
  static void vjp(VjpCall&);
  static bool vjp_holds(const Attributes&);
};

// x with product(x, constants…) = b, where the product is linear in x, symmetric and positive
// definite, by conjugate gradients from zero. It ends where |b - product(x)| <= tolerance |b|, in
// Euclid's norm of the residual that the recurrence keeps. M. R. Hestenes and E. Stiefel, Methods
// of conjugate gradients for solving linear systems (1952).
struct LinearSolve {
  static constexpr std::string_view name = "linear_solve",
                                    doc =
                                        "x where the graph `product`, symmetric and positive "
                                        "definite, gives b, by conjugate gradients";
  static constexpr std::array inputs{"b"sv, "constants..."sv};
  static constexpr std::array results{"x"sv};
  static constexpr bool structural = true;
  struct Attr : SolverForm {
    GraphName equation;
    Attr() { max_steps = 1000; }
    static constexpr auto fields() {
      return std::tuple(required("product", &Attr::equation), field("steps", &Attr::steps),
                        field("vjp", &Attr::vjp), field("max_steps", &Attr::max_steps),
                        field("tolerance", &Attr::tolerance));
    }
  };
  static void infer(InferCall&);
  static void compose(ComposeCall&);
  static void vjp(VjpCall&);
  static bool vjp_holds(const Attributes&);
};

// Such a node in parts; nothing of any other node. Borrows the attributes.
struct Solver {
  const GraphName* equation;
  const SolverForm* form;
  bool linear;  // the equation is a product, which equals the first operand
  bool settled() const { return form->vjp.has_value(); }
};
std::optional<Solver> solver_in(const Operator& op, const Attributes& attributes);
// The attributes with what solves the equation, and with the gradients of constants: the first
// graph takes the operands, the second the result, the constants and a cotangent (of `root`), or
// what solves the product for it (of `linear_solve`).
Attributes settled_solver(const Operator& op, const Attributes& attributes, GraphName steps,
                          GraphName vjp);
// The graph takes x and the constants.
Attributes root_attributes(GraphName residual, std::optional<int64_t> max_steps,
                           std::optional<double> tolerance);
Attributes linear_solve_attributes(GraphName product, std::optional<int64_t> max_steps,
                                   std::optional<double> tolerance);
const Operator& root_operator();
const Operator& linear_solve_operator();
// a^-1 b, where b is a number or a vector.
Value quotient(const Value& b, const Value& a);
// Whether an element's magnitude is not within the bound, as a NaN's is not.
Value any_beyond(const Value& x, double bound);
// A power of two not far below the greatest |x|; 1 where that is 0, NaN, or of no element.
Value scale_of(const Value& x);
double tolerance_of(const SolverForm& form, DType dtype);

}  // namespace gradus::ops
