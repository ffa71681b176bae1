// Derivatives along directions, and whole matrices of them. Each takes a program of one stage and
// gives a program of one stage, which computes what the given one does and the derivatives beside:
// it can be run, printed and differentiated like any other.
//
// All throw Error for a program of several stages, for operators without a derivative, and for
// names that are taken. A function's forward derivative is its second one, run at a cotangent of
// zeros, so that one that has fewer is refused; whatever wants a batch refuses functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

struct DirectionOptions {
  // Inputs to differentiate with respect to; absent: all floating ones.
  std::optional<std::vector<std::string>> wrt;
};

// Given   y.. = f(x..)
// Result  further inputs t_<x>, a tangent of each x; further results t_<y> = the sum over x of
//         dy/dx t_<x>, `none` where y depends on no x
// Forward mode: the work is that of f and of one linear program beside it. What is emitted is the
// transpose of the backward pass, so that the operators' rules are those of `differentiate`.
Graph jvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further inputs t_<x>; further results hvp_<x>, the Hessian of y times all t_<x>, by
//         forward mode over the gradient
Graph hvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results laplacian_<x> = the sum over i of d2y/dx_i2, 0-d
Graph laplacian(const Graph& graph, const DirectionOptions& options = {});

// Given   y.. = f(x..)
// Result  further results jacobian_<y>_<x>, of y's sizes, then x's. All rows come out of one
//         backward pass with a batch of cotangents, or all columns out of one forward pass with a
//         batch of tangents, where there are fewer of those.
Graph jacobian(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results hessian_<x>_<w> = d2y/dx dw, of x's sizes, then w's
Graph hessian(const Graph& graph, const DirectionOptions& options = {});

// Given   a program whose last stage is the backward pass of the one before
// Result  that stage takes cotangents with a dimension `size` in front, for each of which it gives
//         the gradients: those that depend on a cotangent have that dimension too
// Throws Error where an operator on the way can only be run once for each cotangent and `size` is
// no constant.
Graph batch_cotangents(const Graph& graph, const Dim& size);

}  // namespace gradus::ir

#pragma GCC visibility pop
