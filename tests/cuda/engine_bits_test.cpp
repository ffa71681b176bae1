// Derivatives by the autograd engine on devices have the CPU's bits: graphs, and every operator.
#include <thread>

#include "tests/autograd/support.h"
#include "tests/cuda/engine.h"
#include "tests/cuda/needs.h"
#include "tests/property/samples.h"

namespace gradus::fusion::test {
namespace {

using autograd::StreamGuard;
using autograd::Variable;
using autograd::Variables;
using autograd::testing::op;

// Functions of x, w [M, N] and an index [M] below N.
struct Case {
  const char* name;
  Function f;
};
Variables one(Variable v) { return {std::move(v)}; }
const std::vector<Case>& cases() {
  static const std::vector<Case> list{
      {"Pointwise",
       [](auto x) {
         return one(op("mul", {op("tanh", {x[0]}), op("exp", {x[1]})}));
       }},
      {"Rows",
       [](auto x) {
         Variable s = op("softmax", {op("mul", {x[0], x[1]})}, {{"dim", 1, {}}});
         return Variables{op("log", {s}), op("sum", {s}, {{"dim", 0, {}}})};
       }},
      {"Products",
       [](auto x) {
         Variable p =
             op("matmul", {x[0], op("transpose", {x[1]}, {{"dim0", 0, {}}, {"dim1", 1, {}}})});
         return one(op("sigmoid", {p}));
       }},
      {"Indices",
       [](auto x) {
         Variable g = op("index_select", {op("mul", {x[0], x[0]}), x[2]}, {{"dim", 1, {}}});
         return one(op("sin", {g}));
       }},
      {"HostDetours",
       [](auto x) {
         Variables s = autograd::apply("sort", {op("mul", {x[0], x[1]})});
         return one(op("mul", {s[0], op("cumsum", {x[0]}, {{"dim", 1, {}}})}));
       }},
      {"Sums",
       [](auto x) {
         Variable a = op("add", {x[0], x[1]}), b = op("mul", {a, x[0]});
         return one(op("add", {op("add", {b, a}), op("mul", {b, x[1]})}));
       }},
  };
  return list;
}

struct Size {
  int64_t m, n;
};
class CudaDerivatives : public testing::TestWithParam<std::tuple<size_t, DType, Size>> {};

// SPEC E6, E7
TEST_P(CudaDerivatives, HaveTheBitsOfTheCpu) {
  GRADUS_NEEDS_NVRTC();
  EngineDevices::get();
  const auto [number, dtype, size] = GetParam();
  const auto [m, n] = size;
  Tensor index = Tensor::empty(DType::i64, Sizes{m});
  for (int64_t i = 0; i < m; ++i) index.mutable_data_as<int64_t>()[i] = i * 7 % n;
  const std::vector inputs{random(dtype, {m, n}, "x", 1), random(dtype, {m, n}, "w", 2), index};
  const Case& c = cases()[number];
  const auto cpu = derivatives(c.f, inputs, 2, Device());
  EXPECT_GE(cpu.size(), 3u);
  EXPECT_EQ(difference(cpu, derivatives(c.f, inputs, 2, cuda0)), "") << c.name;
  EXPECT_EQ(difference(cpu, derivatives(c.f, inputs, 2, cuda1)), "") << c.name;
}
INSTANTIATE_TEST_SUITE_P(All, CudaDerivatives,
                         testing::Combine(testing::Range(size_t{0}, cases().size()),
                                          testing::Values(DType::f64, DType::f32),
                                          testing::Values(Size{1, 1}, Size{3, 5}, Size{7, 33})),
                         [](const auto& info) {
                           const Size size = std::get<2>(info.param);
                           return fmt::format("{}_{}_{}x{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)), size.m, size.n);
                         });

// Every operator, as the property tests call it.
class CudaEngineOperators : public testing::TestWithParam<std::tuple<DType, size_t>> {};
constexpr size_t parts = 8;

TEST_P(CudaEngineOperators, HaveTheBitsOfTheCpu) {
  GRADUS_NEEDS_NVRTC();
  EngineDevices::get();
  const auto [dtype, part] = GetParam();
  size_t n = 0, checked = 0;
  for (const property::Sample& s : property::all_samples()) {
    if (n++ % parts != part) continue;
    const auto program = s.program(dtype);
    if (!program || program->stages[0].nodes.size() != 1) continue;
    const std::vector<Tensor> inputs = s.inputs(dtype, 5);
    const ir::Node& node = program->stages[0].nodes[0];
    const Function f = [&](std::span<const Variable> x) {
      SmallVector<autograd::VariableOperand, 4> operands;
      for (const ir::Operand& o : node.operands) {
        if (const ir::ValueId v = ir::value_in(o); v != ir::no_value) {
          const auto& names = program->stages[0].inputs;
          operands.emplace_back(
              x[static_cast<size_t>(std::ranges::find(names, v) - names.begin())]);
        } else if (const auto* number = std::get_if<ir::Number>(&o)) {
          operands.emplace_back(*number);
        } else {
          operands.emplace_back();
        }
      }
      // Sizes that data decides have names in a program, and are found here.
      ir::LiteralList attributes = node.op->write(node.attributes);
      std::erase_if(attributes, [](const ir::NamedLiteral& a) { return a.name == "count"; });
      return autograd::apply(*node.op, node.op->read(attributes), operands);
    };
    bool tensors = false;
    for (const Tensor& t : inputs) tensors |= t.defined();
    if (!tensors) continue;
    const bool rule = node.op->traits.differentiable;
    try {
      EXPECT_EQ(difference(derivatives(f, inputs, rule ? 2 : 0, Device()),
                           derivatives(f, inputs, rule ? 2 : 0, cuda0)),
                "")
          << s.text(dtype);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what() << '\n' << s.text(dtype);
    }
    ++checked;
  }
  EXPECT_GT(checked, 9u);
}
INSTANTIATE_TEST_SUITE_P(All, CudaEngineOperators,
                         testing::Combine(testing::Values(DType::f64, DType::f32),
                                          testing::Range(size_t{0}, parts)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name_of(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

TEST(CudaEngineThreads, TwoBackwardsAtOnce) {
  GRADUS_NEEDS_NVRTC();
  EngineDevices::get();
  const std::vector inputs{random(DType::f32, {5, 9}, "x", 3), random(DType::f32, {5, 9}, "w", 4),
                           Tensor::from(DType::i64, Sizes{5}, std::vector<double>{0, 8, 3, 3, 1})};
  std::vector<std::vector<Tensor>> expected;
  for (const Case& c : cases()) expected.push_back(derivatives(c.f, inputs, 2, Device()));
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t)
    callers.emplace_back([&, t] {
      StreamGuard guard(cuda0, t ? new_stream(cuda0) : 0);
      for (size_t i = 0; i < cases().size(); ++i)
        EXPECT_EQ(difference(expected[i], derivatives(cases()[i].f, inputs, 2, cuda0)), "")
            << cases()[i].name;
    });
  for (std::thread& t : callers) t.join();
}

}  // namespace
}  // namespace gradus::fusion::test
