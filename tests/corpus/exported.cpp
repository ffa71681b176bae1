// The corpus as ONNX models: first stages, exported and imported again, give nearly the same.
#include "tests/corpus/exported.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gradus/build.h"
#include "gradus/onnx.h"

namespace gradus::corpus {

namespace {

// What ONNX has no word for. Whatever else is refused is missing here.
const std::set<std::string_view> unsayable = {
    // no such functions
    "lgamma",
    "digamma",
    "erfinv",
    "polygamma",
    "bits of numbers",
    // no such scans and factorisations
    "operator cumprod",
    "operator cummax",
    "operator logcumsumexp",
    "operator linear_recurrence",
    "operator cholesky",
    "operator inverse",
    "operator triangular_solve",
    "operator cofactor",
    "operator square_solve",
    "operator lu_factor",
    "operator tall_qr",
    "operator eigh",
    "operator tall_svd",
    "operator matrix_exp",
    // an error where a loop takes more steps
    "operator while: max_trips",
    // other random numbers, code of the user
    "operator random_bits",
    "operator uniform",
    "operator normal",
    "operator randperm",
    "operator cpp_op",
    "operator python_op",
    "operator eval",
    // a kernel that is an image of any size, as convolution_weight has: the importer refuses it
    "Conv with a kernel whose size has a name",
};

double allowed(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-11;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 2e-2;
    default:
      return 0;
  }
}

std::string compare(const std::string& name, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape()))
    return fmt::format("{} has another type", name);
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    if (!(std::fabs(x[i] - y[i]) <= allowed(a.dtype()) * std::max(1.0, std::fabs(x[i]))))
      return fmt::format("{}[{}] is {}, exported {}", name, i, x[i], y[i]);
  }
  return "";
}

void run_exported(const Subject& s) {
  onnx::Import back;
  try {
    back = onnx::import_bytes(onnx::export_stage(s.graph), "the exported model");
  } catch (const onnx::Unsupported& e) {
    EXPECT_TRUE(unsayable.contains(e.reason())) << e.reason() << ": " << e.what();
    return;
  }
  auto code = Code::compile(back.program);
  auto given = [&](const std::string& name) {
    for (const auto& [weight, tensor] : back.weights)
      if (weight == name) return tensor;
    for (size_t i = 0; i < s.inputs[0].size(); ++i)
      if (s.graph[s.graph.stages[0].inputs[i]].name == name) return s.inputs[0][i];
    ADD_FAILURE() << "there is no input " << name;
    return Tensor();
  };
  std::vector<Tensor> inputs;
  for (ir::ValueId v : back.program.stages[0].inputs) inputs.push_back(given(back.program[v].name));
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  std::vector<Tensor> results = state.run(inputs);
  const std::vector<Tensor> expected = run_all(s)[0];
  // In the same order, without those that are absent; names that are taken are others.
  size_t next = 0;
  for (size_t r = 0; r < expected.size(); ++r) {
    if (s.graph.stages[0].results[r].value == ir::no_value) continue;
    ASSERT_LT(next, results.size());
    if (expected[r].defined()) {
      EXPECT_EQ(compare(s.code->results(0)[r].name, expected[r], results[next]), "");
    }
    ++next;
  }
  EXPECT_EQ(next, results.size());
}

}  // namespace

void exported(const ir::Fixture& fixture) {
  if (!has_part(Part::onnx)) GTEST_SKIP() << why_missing(Part::onnx);
  for (const Subject& s : subjects(fixture)) run_exported(s);
}

}  // namespace gradus::corpus
