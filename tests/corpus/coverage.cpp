// What the corpus as a whole must hold.
#include <filesystem>
#include <map>
#include <set>

#include "gradus/registry.h"
#include "tests/corpus/subject.h"

namespace {

using namespace gradus;

TEST(Corpus, HasFixtures) { EXPECT_GT(corpus::fixture_files().size(), 100u); }

// Every operator stands in a fixture; one that has a derivative, in a fixture that holds it against
// differences up to stage 3. Operators of several ranks have theirs in tests/ranks.
TEST(Corpus, CoversEveryOperator) {
  std::set<std::string_view> used, checked;
  for (const std::string& file : corpus::fixture_files()) {
    ir::Fixture fixture = corpus::load(file);
    int order = 0;
    for (const ir::Case& c : fixture.cases)
      if (c.gradcheck) order = std::max(order, c.gradcheck->order);
    for (const auto& graph : fixture.module.graphs)
      for (const ir::Stage& stage : graph->stages)
        for (const ir::Node& node : stage.nodes) {
          used.insert(node.op->name);
          if (order >= 3) checked.insert(node.op->name);
        }
  }
  for (const ir::Operator* op : ops::all()) {
    if (op->traits.collective) continue;
    EXPECT_TRUE(used.contains(op->name)) << "no fixture uses " << op->name;
    EXPECT_TRUE(!op->traits.differentiable || checked.contains(op->name))
        << "no fixture with `gradcheck order 3` uses " << op->name;
  }
}

// Every fixture holds its derivatives against differences up to stage 3, but for those whose
// derivative is not the slope by intention, whose later stages are not derivatives, and those that
// are wrong.
TEST(Corpus, ChecksEveryFixtureAtOrderThree) {
  const std::map<std::string, std::string_view> exceptions = {
      {"absent_cotangents", "its stage 1 is no derivative stage"},
      {"bad_values", "its runs fail"},
      {"detached", "leaves a path out on purpose"},
      {"embedding_padding", "has no gradient for the padding row"},
      {"empty", "its later stages are no derivative stages"},
      {"size_ranges", "its later stages are no derivative stages"},
      {"straight_through", "has a derivative of its own choice"},
      {"values_across", "its later stages are no derivative stages"},
      {"views_across", "its later stages are no derivative stages"},
      {"counted_sizes", "its later stages are no derivative stages"},
      {"wrong_interface", "cannot be differentiated"},
  };
  size_t excepted = 0;
  for (const std::string& file : corpus::fixture_files()) {
    ir::Fixture fixture = corpus::load(file);
    int order = 0;
    for (const ir::Case& c : fixture.cases)
      if (c.gradcheck) order = std::max(order, c.gradcheck->order);
    if (exceptions.contains(std::filesystem::path(file).stem().string()))
      ++excepted;
    else
      EXPECT_GE(order, 3) << file;
  }
  EXPECT_EQ(excepted, exceptions.size());
}

}  // namespace
