// The reference cases through the ways of differentiating, in f64 and f32.
// SPEC D1, D3, D4, D6
#include <functional>

#include <gtest/gtest.h>

#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/corpus/eager.h"
#include "tests/corpus/fused.h"
#include "tests/corpus/hidden.h"
#include "tests/corpus/on_device.h"
#include "tests/golden/case.h"

namespace gradus::golden {
namespace {

struct Way {
  const char* group;
  DType dtype;
  enum class By { differentiate, grad, engine, opaque, fused, device } by;
};

std::vector<std::string> failures_of(const Case& c,
                                     const std::function<void(std::vector<std::string>&)>& run) {
  std::vector<std::string> failures;
  try {
    run(failures);
  } catch (const std::exception& e) {
    failures.push_back(e.what());
  }
  for (std::string& f : failures) f = c.id() + ": " + f;
  return failures;
}

std::vector<Tensor> values_of(const Case& c) {
  std::vector<Tensor> values;
  for (const Input& i : c.inputs()) values.push_back(i.value);
  return values;
}

void note(std::vector<std::string>& failures, std::string failure) {
  if (!failure.empty()) failures.push_back(std::move(failure));
}

// The case's program with its stages, and what each takes: values, cotangents, vectors.
corpus::Subject staged(const Case& c) {
  corpus::Subject s;
  ir::Module module = ir::parse(c.forward_text(), c.id());
  s.options = {.order = c.order(), .wrt = c.differentiated()};
  s.graph = ir::differentiate(module.program(), s.options);
  s.code = Code::compile(s.graph);
  s.inputs.push_back(values_of(c));
  for (size_t k = 1; k < s.code->stages(); ++k) {
    s.inputs.emplace_back();
    for (size_t i = 0; i < s.code->inputs(k); ++i) {
      const std::string& name = s.code->input_name(k, i);  // ct1_o<i>, ct2_d1_<x>
      std::string key = k == 1 ? "ct." + name.substr(5) : "v." + name.substr(7);
      // In the result's dtype, which a cast may have made another than the run's.
      DType dtype = s.code->input_type(k, i).dtype;
      s.inputs.back().push_back(c.has(key) ? c.operand(key).to(dtype) : Tensor());
    }
  }
  return s;
}

void compare_stages(const Case& c, const corpus::Subject& s, const corpus::Results& results,
                    std::vector<std::string>& failures) {
  for (size_t i = 0; i < results[0].size(); ++i)
    note(failures, c.compare(fmt::format("out.{}", i), results[0][i]));
  for (size_t k = 1; k < results.size(); ++k)
    for (size_t i = 0; i < results[k].size(); ++i) {
      std::string name = s.code->results(k)[i].name.substr(3);  // <x> or ct1_o<i>
      std::string key = k == 1                      ? "g." + name
                        : name.starts_with("ct1_o") ? "ggct." + name.substr(5)
                                                    : "gg." + name;
      note(failures, c.compare(key, results[k][i]));
    }
}

// Stages appended by `differentiate`, run one by one, twice over: a state may be restarted.
void check_stages(const Case& c, std::vector<std::string>& failures) {
  corpus::Subject s = staged(c);
  State state(s.code);
  for (int round = 0; round < 2; ++round) {
    corpus::Results results;
    for (const auto& inputs : s.inputs) results.push_back(state.run(inputs));
    compare_stages(c, s, results, failures);
    state.restart();
  }
}

// As variables, the derivatives by the engine.
void check_engine(const Case& c, std::vector<std::string>& failures) {
  corpus::Subject s = staged(c);
  compare_stages(c, s, corpus::evaluate_eagerly(s), failures);
}

// The stages by fused kernels: the same bits.
void check_fused(const Case& c, std::vector<std::string>& failures) {
  corpus::Subject s = staged(c);
  compare_stages(c, s, corpus::run_fused(s, corpus::fusing_context(1)), failures);
  note(failures, corpus::fused_difference(s));
}

// The stages on a device: as near to the reference, and to the CPU's.
void check_device(const Case& c, std::vector<std::string>& failures) {
  corpus::Subject s = staged(c);
  const corpus::Results results = corpus::run_on_device(s);
  compare_stages(c, s, results, failures);
  note(failures, corpus::device_difference(s, corpus::run_unfused(s), results));
}

// Hidden behind functions, the derivatives by `eval`.
void check_opaque(const Case& c, std::vector<std::string>& failures) {
  corpus::Subject s = staged(c);
  auto list = corpus::with_functions(s);
  if (list.empty() && c.id().starts_with("engine/")) failures.push_back("nothing can be hidden");
  for (const corpus::Opaque& o : list) {
    std::vector<std::string> found;
    compare_stages(c, s, corpus::run_all(o.subject), found);
    for (const std::string& f : found) failures.push_back(fmt::format("{}: {}", o.way, f));
  }
}

// One stage, derivatives by nested `grad` nodes.
void check_grad(const Case& c, std::vector<std::string>& failures) {
  ir::Module module = ir::parse(c.grad_text(), c.id());
  State state(Code::compile(module.program()));
  std::vector<Tensor> inputs = values_of(c);
  const auto& code = *state.code();
  for (size_t i = inputs.size(); i < code.inputs(0); ++i)
    inputs.push_back(c.operand(code.input_name(0, i)));
  auto out = state.run(inputs);
  for (size_t i = 0; i < out.size(); ++i) {
    std::string name = code.results(0)[i].name;
    std::string key = name.starts_with("ggct_") ? "ggct." + name.substr(5)
                      : name.starts_with("gg_") ? "gg." + name.substr(3)
                      : name.starts_with("g_")  ? "g." + name.substr(2)
                                                : "out." + name.substr(1);
    note(failures, c.compare(key, out[i]));
  }
}

// Cases that this build answers otherwise, each with the reason; they are checked on their own.
const std::set<std::string> answered_otherwise = {
    // PyTorch returns no second derivative of a product with two zeros. It is not zero.
    "edge/prod/2",
};

class Golden : public testing::TestWithParam<Way> {};

TEST_P(Golden, Agrees) {
  auto [group, dtype, by] = GetParam();
  if (by == Way::By::fused && !corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  if (by == Way::By::device && !corpus::why_no_device().empty())
    GTEST_SKIP() << corpus::why_no_device();
  size_t ran = 0, failed = 0;
  std::set<std::string> missing;
  std::string report;
  for (const Json& json : all_cases()) {
    if (json["group"] != group) continue;
    Case c(json, dtype);
    if (!c.has_reference() || answered_otherwise.contains(c.id())) continue;
    auto absent = c.missing_operators();
    if (!absent.empty()) {
      missing.insert(absent.begin(), absent.end());
      continue;
    }
    ++ran;
    auto failures = failures_of(c, [&](std::vector<std::string>& f) {
      if (by == Way::By::grad)
        check_grad(c, f);
      else if (by == Way::By::engine)
        check_engine(c, f);
      else if (by == Way::By::opaque)
        check_opaque(c, f);
      else if (by == Way::By::fused)
        check_fused(c, f);
      else if (by == Way::By::device)
        check_device(c, f);
      else
        check_stages(c, f);
    });
    failed += !failures.empty();
    for (const std::string& f : failures) report += "  " + f + "\n";
  }
  std::string absent;
  for (const std::string& op : missing) absent += " " + op;
  RecordProperty("ran", static_cast<int>(ran));
  EXPECT_EQ(failed, 0u) << failed << " of " << ran << " cases differ:\n" << report;
  EXPECT_GT(ran, 0u);
  std::cout << "ran " << ran << " cases; not in this build:" << absent << "\n";
}

std::string name_of_way(const testing::TestParamInfo<Way>& info) {
  return fmt::format("{}_{}_{}", info.param.group, name_of(info.param.dtype),
                     info.param.by == Way::By::grad     ? "grad"
                     : info.param.by == Way::By::engine ? "engine"
                     : info.param.by == Way::By::opaque ? "opaque"
                     : info.param.by == Way::By::fused  ? "fused"
                     : info.param.by == Way::By::device ? corpus::device_test_name()
                                                        : "differentiate");
}

std::vector<Way> ways() {
  std::vector<Way> list;
  for (const char* group : {"op", "edge", "program", "engine", "fuzz"})
    for (DType dtype : {DType::f64, DType::f32})
      for (Way::By by : {Way::By::differentiate, Way::By::grad, Way::By::engine, Way::By::opaque,
                         Way::By::fused, Way::By::device})
        if (std::string(group) != "edge" || dtype == DType::f64) list.push_back({group, dtype, by});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(ways()), name_of_way);

class GoldenFolder : public testing::TestWithParam<corpus::FolderPart> {};

// SPEC F4
TEST_P(GoldenFolder, Agrees) {
  const auto [bits, dtype, part] = GetParam();
  if (!corpus::has_kernels(bits)) GTEST_SKIP() << "no kernels here";
  std::vector<corpus::Subject> subjects;
  size_t at = 0;
  for (const Json& json : all_cases()) {
    if (at++ % std::size(corpus::folder_parts) != part) continue;
    const Case c(json, dtype);
    if (!c.has_reference() || !c.missing_operators().empty()) continue;
    subjects.push_back(staged(c));
    subjects.back().graph.name = c.id();
  }
  EXPECT_GT(subjects.size(), 150u);
  EXPECT_EQ(corpus::through_a_folder(bits, subjects), "");
}
INSTANTIATE_TEST_SUITE_P(Ways, GoldenFolder, testing::ValuesIn(corpus::folder_parts),
                         corpus::name_of_part);

const Json& case_named(std::string_view id) {
  for (const Json& json : all_cases())
    if (json["id"] == id) return json;
  throw Error("there is no case {}", id);
}

// d2/dx2 of ct * x0 x1 x2 at (0, 0, 3), times v: ct (x2 v1 + x1 v2, x2 v0 + x0 v2, x1 v0 + x0 v1).
TEST(Golden, ProductOfTwoZerosHasASecondDerivative) {
  Case c(case_named("edge/prod/2"), DType::f64);
  ir::Module module = ir::parse(c.forward_text());
  State state(Code::compile(ir::differentiate(module.program(), {.order = 2})));
  state.run(values_of(c));
  double ct = c.operand("ct.0").item();
  std::vector<double> v = c.operand("v.x0").to_doubles();
  auto g = state.run(std::vector<Tensor>{c.operand("ct.0")});
  EXPECT_EQ(c.compare("g.x0", g[0]), "");
  auto gg = state.run(std::vector<Tensor>{c.operand("v.x0")});
  EXPECT_EQ(gg[0].to_doubles(), (std::vector<double>{ct * 3 * v[1], ct * 3 * v[0], 0}));
  EXPECT_EQ(gg[1].item(), 0);
}

// The operators delivered so far cover at least this many cases: they cannot quietly shrink.
TEST(Golden, CoversWhatIsDelivered) {
  size_t covered = 0;
  for (const Json& json : all_cases())
    covered += Case(json, DType::f64).missing_operators().empty() &&
               !answered_otherwise.contains(json["id"]);
  EXPECT_GE(covered, 788u);
}

}  // namespace
}  // namespace gradus::golden
