// Products of matrices.
#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

void product(Call& c) { c.give(matmul(c.x(), c.x(1))); }

// alpha a' b' + beta c
void gemm(Call& c) {
  Value a = c.x(), b = c.x(1);
  if (a.rank() != 2 || b.rank() != 2) c.fail("it wants two matrices");
  if (c.attribute("transA", int64_t{0})) a = swap_last(a);
  if (c.attribute("transB", int64_t{0})) b = swap_last(b);
  Value y = mm(a, b) * c.attribute("alpha", 1.0);
  double beta = c.attribute("beta", 1.0);
  if (c.given(2)) y = y + c.x(2) * beta;
  c.give(cast(y, a.dtype()));
}

void einsum(Call& c) {
  std::vector<Value> operands;
  for (size_t i = 0; i < c.inputs(); ++i) operands.push_back(c.x(i));
  c.give(
      emit_all(c.world(), "einsum", operands, {{"equation", c.attribute("equation", ""), {}}})[0]);
}

void determinant(Call& c) { c.give(unary("det", c.x())); }

constexpr RuleEntry matrix_table[] = {
    {"MatMul", 1, product},
    {"Gemm", 1, gemm},
    {"Einsum", 12, einsum},
    {"Det", 11, determinant},
};

}  // namespace

std::span<const RuleEntry> matrix_rules() { return matrix_table; }

}  // namespace gradus::onnx
