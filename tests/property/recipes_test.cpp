// Every operator is in the property tests by being in the table.
#include "tests/property/recipes.h"

#include <set>

#include <gtest/gtest.h>

#include "gradus/registry.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

TEST(Recipes, FitEveryOperator) {
  std::set<std::string_view> apart;
  for (const ir::Operator* op : ops::all()) {
    if (op->traits.collective) continue;  // tests/ranks
    if (!runs_alone(*op))
      apart.insert(op->name);
    else
      EXPECT_FALSE(samples_of(*op).empty())
          << "no call fits " << op->name << "; give it a line in tests/property/recipes.cpp";
  }
  EXPECT_EQ(apart, (std::set<std::string_view>{"call", "constant", "cpp_op", "eval", "grad", "if",
                                               "linear_solve", "python_op", "root", "scan",
                                               "undefined", "while"}));
}

TEST(Recipes, NameOperators) {
  for (const Recipe& r : recipes) EXPECT_TRUE(r.op.empty() || ops::find(r.op)) << r.op;
}

}  // namespace
}  // namespace gradus::property
