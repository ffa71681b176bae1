// Derivatives of every operator: against differences, and the two ways of finding them against
// each other.
#include <cmath>

#include <gtest/gtest.h>

#include "gradus/gradcheck.h"
#include "gradus/passes.h"
#include "tests/corpus/eager.h"
#include "tests/corpus/fused.h"
#include "tests/corpus/on_device.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

constexpr int highest = 3;

bool any_floating(const ir::Graph& g, std::span<const ir::ValueId> values) {
  return std::any_of(values.begin(), values.end(),
                     [&](ir::ValueId v) { return g[v].type.is_floating(); });
}
bool floating_result(const ir::Graph& g) {
  for (const ir::Result& r : g.stages[0].results)
    if (g[r.value].type.is_floating()) return true;
  return false;
}

// Stages up to `order`, with inputs: the sample's, laid out so, and random cotangents.
corpus::Subject subject_of(const Sample& s, const ir::Graph& program, int order, Lie lie,
                           DType dtype = DType::f64) {
  corpus::Subject subject;
  subject.graph = ir::differentiate(program, {.order = order});
  subject.code = Code::compile(subject.graph);
  subject.inputs.emplace_back();
  for (const Tensor& t : s.inputs(dtype, 5)) subject.inputs[0].push_back(lay(t, lie));
  Context& context = *Context::default_context();
  State state(subject.code);
  for (size_t k = 1; k < subject.code->stages(); ++k) {
    state.run(subject.inputs.back());
    subject.inputs.emplace_back();
    for (size_t i = 0; i < subject.code->inputs(k); ++i) {
      const ir::Type& type = subject.code->input_type(k, i);
      Tensor ct = random_tensor(type.dtype, sizes_of(type, state), subject.code->input_name(k, i),
                                6, context);
      subject.inputs[k].push_back(lay(ct, lie));
    }
  }
  return subject;
}

corpus::Results run(const corpus::Subject& subject) {
  State state(subject.code);
  corpus::Results results;
  for (const auto& inputs : subject.inputs) results.push_back(state.run(inputs));
  return results;
}

// SPEC D3
TEST(Derivatives, AreSlopes) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!s.op->traits.differentiable || !any_floating(*program, program->stages[0].inputs))
      continue;
    if (!floating_result(*program)) continue;
    std::vector<Tensor> inputs = s.inputs(DType::f64, 7);
    InputSources sources;
    sources.find = [&](std::string_view name) -> std::optional<FoundTensor> {
      for (size_t i = 0; i < inputs.size(); ++i)
        if ((*program)[program->stages[0].inputs[i]].name == name)
          return FoundTensor{inputs[i], "the sample"};
      return std::nullopt;
    };
    GradcheckReport report = gradcheck(*program, sources, {.order = highest});
    for (const GradcheckEntry& e : report.entries)
      EXPECT_TRUE(e.passed || s.no_slope.find(e.input) != std::string_view::npos)
          << s.text(DType::f64) << " stage " << e.stage << ", " << e.input << ": " << e.why;
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

// Stages and engine give the same bits, the same absent gradients, however the operands lie.
TEST(Derivatives, AreTheSameByStagesAndByEngine) {
  for (const Sample& s : all_samples()) {
    if (!s.op->traits.differentiable && !s.op->traits.zero_gradient) continue;
    for (Lie lie : {Lie::contiguous, Lie::transposed, Lie::sliced}) {
      const int order = lie == Lie::contiguous ? highest : 2;
      corpus::Subject subject = subject_of(s, *s.program(DType::f64), order, lie);
      corpus::Results by_stages = run(subject);
      EXPECT_EQ(corpus::difference(subject, by_stages, corpus::evaluate_eagerly(subject)), "")
          << s.text(DType::f64) << ", layout " << static_cast<int>(lie);
    }
  }
}

class FusedDerivatives : public testing::TestWithParam<DType> {};

// However the operands lie, fused kernels give the bits of the interpreter.
// SPEC F6
TEST_P(FusedDerivatives, AreTheSame) {
  if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  for (const Sample& s : all_samples()) {
    auto program = s.program(GetParam());
    if (!program) continue;
    const bool derived = s.op->traits.differentiable || s.op->traits.zero_gradient;
    for (Lie lie : {Lie::contiguous, Lie::transposed}) {
      const int order = !derived ? 0 : lie == Lie::contiguous ? highest : 2;
      corpus::Subject subject = subject_of(s, *program, order, lie, GetParam());
      EXPECT_EQ(corpus::fused_difference(subject), "")
          << s.text(GetParam()) << ", layout " << static_cast<int>(lie);
    }
  }
}

class DeviceDerivatives : public testing::TestWithParam<DType> {};

// However the operands lie, a device gives what the CPU gives.
TEST_P(DeviceDerivatives, AreTheSame) {
  if (!corpus::why_no_device().empty()) GTEST_SKIP() << corpus::why_no_device();
  for (const Sample& s : all_samples()) {
    auto program = s.program(GetParam());
    if (!program) continue;
    const bool derived = s.op->traits.differentiable || s.op->traits.zero_gradient;
    for (Lie lie : {Lie::contiguous, Lie::transposed}) {
      corpus::Subject subject = subject_of(s, *program, derived ? 2 : 0, lie, GetParam());
      EXPECT_EQ(corpus::device_difference(subject, corpus::run_unfused(subject),
                                          corpus::run_on_device(subject)),
                "")
          << s.text(GetParam()) << ", layout " << static_cast<int>(lie);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceDerivatives, testing::Values(DType::f64, DType::f32),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name_of(info.param),
                                              corpus::device_test_name());
                         });
INSTANTIATE_TEST_SUITE_P(Dtypes, FusedDerivatives, testing::Values(DType::f64, DType::f32),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class FolderDerivatives : public testing::TestWithParam<corpus::FolderPart> {};

// SPEC F4
TEST_P(FolderDerivatives, AreTheSame) {
  const auto [bits, dtype, part] = GetParam();
  if (!corpus::has_kernels(bits)) GTEST_SKIP() << "no kernels here";
  std::vector<corpus::Subject> subjects;
  for (size_t i = part; i < all_samples().size(); i += std::size(corpus::folder_parts)) {
    const Sample& s = all_samples()[i];
    auto program = s.program(dtype);
    if (!program) continue;
    const bool derived = s.op->traits.differentiable || s.op->traits.zero_gradient;
    subjects.push_back(subject_of(s, *program, derived ? highest : 0, Lie::contiguous, dtype));
    subjects.back().graph.name = s.text(dtype);
  }
  EXPECT_GT(subjects.size(), 80u);
  EXPECT_EQ(corpus::through_a_folder(bits, subjects), "");
}
INSTANTIATE_TEST_SUITE_P(Ways, FolderDerivatives, testing::ValuesIn(corpus::folder_parts),
                         corpus::name_of_part);

// SPEC D2
TEST(Derivatives, ThatAreZeroByStructureAreUndefined) {
  int zero = 0, refused = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!any_floating(*program, program->stages[0].inputs) || !floating_result(*program)) continue;
    if (!s.op->traits.differentiable && !s.op->traits.zero_gradient) {
      try {
        ir::differentiate(*program, {});
        ADD_FAILURE() << s.text(DType::f64) << " has no derivative and is not refused";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(s.op->name), std::string::npos) << e.what();
        ++refused;
      }
      continue;
    }
    corpus::Subject subject = subject_of(s, *program, 1, Lie::contiguous);
    corpus::Results results = run(subject);
    for (size_t i = 0; i < results[1].size(); ++i) {
      bool none = subject.graph.stages[1].results[i].value == ir::no_value;
      EXPECT_EQ(results[1][i].defined(), !none) << s.text(DType::f64);
      EXPECT_TRUE(none || !s.op->traits.zero_gradient) << s.text(DType::f64);
      zero += none;
    }
  }
  EXPECT_GT(zero, 10);
  EXPECT_EQ(refused, 0);
}

// An absent cotangent is zeros, at every order.
TEST(Derivatives, OfAbsentCotangentsAreZero) {
  for (const Sample& s : all_samples()) {
    if (!s.op->traits.differentiable) continue;
    corpus::Subject subject = subject_of(s, *s.program(DType::f64), 2, Lie::contiguous);
    for (size_t k = 1; k < subject.inputs.size(); ++k)
      for (Tensor& t : subject.inputs[k]) t = Tensor();
    corpus::Results results = run(subject);
    for (size_t k = 1; k < results.size(); ++k)
      for (const Tensor& t : results[k]) {
        if (!t.defined()) continue;
        for (double v : t.to_doubles()) EXPECT_EQ(v, 0) << s.text(DType::f64) << ", stage " << k;
      }
  }
}

}  // namespace
}  // namespace gradus::property
