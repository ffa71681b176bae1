// No operator's derivative falls to one call for each cotangent of a batch: it would be as many
// instructions as the batch has elements.
// SPEC D8
#include <set>

#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/operator.h"
#include "gradus/passes.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

// Operators that are still called once for each cotangent. Nothing may come in; what has got a
// rule goes out.
const std::set<std::string> one_by_one = {"as_strided",
                                          "as_strided_sum",
                                          "convolution_input",
                                          "convolution_weight",
                                          "fold_col2im",
                                          "gather",
                                          "index",
                                          "index_put",
                                          "roll",
                                          "scatter_add",
                                          "unfold_im2col"};

// The operator that a program needs one call of for each cotangent, empty if it needs none. With a
// batch whose size only a run knows there can be no such calls.
std::string one_by_one_in(const ir::Graph& stages) {
  try {
    ir::batch_cotangents(stages, ir::Dim::symbol("Cotangents"));
    return "";
  } catch (const Error& e) {
    const std::string what = e.what();
    const size_t end = what.find(": cannot be run for a batch of ");
    if (end == std::string::npos) throw;
    const size_t space = what.rfind(' ', end);
    return what.substr(space == std::string::npos ? 0 : space + 1,
                       end - (space == std::string::npos ? 0 : space + 1));
  }
}

TEST(BatchCalls, OfEveryOperatorAreOne) {
  std::set<std::string> found;
  int checked = 0;
  for (const Sample& s : all_samples()) {
    if (!s.op->traits.differentiable || s.op->traits.opaque) continue;
    auto program = s.program(DType::f64);
    bool in = false, out = false;
    for (ir::ValueId v : program->stages[0].inputs) in |= (*program)[v].type.is_floating();
    for (const ir::Result& r : program->stages[0].results)
      out |= (*program)[r.value].type.is_floating();
    if (!in || !out) continue;
    for (int order : {1, 2}) {
      const std::string name = one_by_one_in(ir::differentiate(*program, {.order = order}));
      if (name.empty()) continue;
      found.insert(name);
      EXPECT_TRUE(one_by_one.contains(name))
          << name << " is called once for each cotangent, in derivative " << order << " of "
          << s.text(DType::f64);
    }
    ++checked;
  }
  for (const std::string& name : one_by_one)
    EXPECT_TRUE(found.contains(name)) << name << " has a rule now, and need not be listed";
  EXPECT_GT(checked, 300);
}

}  // namespace
}  // namespace gradus::property
