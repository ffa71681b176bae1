// Exported PyTorch programs: results and derivatives are eager PyTorch's, interpreted and fused.
// SPEC T1, T2, T3
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/corpus/fused.h"
#include "tests/pt2/fixture.h"

namespace gradus::test {
namespace {

// Programs with regions that are not supported, and what the refusal names.
const std::map<std::string, std::string> refused{{"hop_associative_scan", "predispatch"}};

class Archives : public testing::TestWithParam<std::string> {};

void expect_none(const std::vector<std::string>& differences) {
  for (const std::string& d : differences) ADD_FAILURE() << d;
}

void check(const ArchiveFixture& fixture, const std::string& prefix, bool along_v) {
  const corpus::Subject s = fixture.subject(prefix, along_v);
  expect_none(fixture.differences(s, corpus::run_all(s), prefix, along_v));
  expect_none(
      fixture.differences(s, corpus::run_fused(s, corpus::fusing_context(1)), prefix, along_v));
}

TEST_P(Archives, AgreeWithPyTorch) {
  if (auto it = refused.find(GetParam()); it != refused.end()) {
    try {
      import_program(archive_path(GetParam()));
      FAIL() << "it is imported";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(it->second), std::string::npos) << e.what();
    }
    return;
  }
  const ArchiveFixture fixture(GetParam());
  check(fixture, "", false);
  if (fixture.is_energy()) check(fixture, "", true);
  if (!fixture.has_other_sizes()) return;
  check(fixture, "alt.", false);
  if (fixture.is_energy()) check(fixture, "alt.", true);
}

// Each module as a graph that is called: the same program, once calls are inlined.
TEST_P(Archives, ModulesAreGraphs) {
  if (refused.contains(GetParam())) return;
  const ir::Graph program = import_program(archive_path(GetParam())).module.program();
  ir::Graph outlined = program;
  ir::outline_modules(outlined);
  ir::verify(outlined);
  auto operators = [](const ir::Graph& graph) {
    std::multiset<std::string_view> names;
    for (const ir::Node& node : graph.stages[0].nodes) names.insert(node.op->name);
    return names;
  };
  EXPECT_EQ(operators(ir::lower(outlined)), operators(ir::lower(program)));
  if (GetParam() == "resnet_eval") {
    EXPECT_LT(outlined.stages[0].nodes.size(), 15u) << ir::print(outlined);
    EXPECT_NE(ir::print(outlined).find("graph layer1.0"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Pt2, Archives, testing::ValuesIn(archive_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gradus::test
