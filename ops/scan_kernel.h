// Kernels that run along one dimension, element after element.
#pragma once

#include "ir/operator.h"

namespace gradus::ops {

enum class Scan : uint8_t {
  sum,          // s = s + x
  prod,         // s = s * x
  recurrence,   // s = a * s + b, product and sum rounded each; two operands of one shape
  log_sum_exp,  // s = log(exp(s) + exp(x))
};

struct ScanOptions {
  bool exclusive = false;  // y[i] is the state before x[i], else after it
  bool reverse = false;    // from the last element to the first
};

// Sets call's kernel: result 0 = the states along `dim` of the operands, which have its shape. The
// state is f64 for floats and a wrapping i64 for integers; it starts from 0 (prod: 1, log_sum_exp:
// -inf).
void bind_scan(ir::BindCall& call, Scan scan, int dim, ScanOptions options);
// values, indices = the greatest so far along `dim`, ties and NaN to the later one.
void bind_cummax(ir::BindCall& call, int dim);

}  // namespace gradus::ops
