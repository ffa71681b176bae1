// What operators say of themselves, and how rules find them.
#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/registry.h"
#include "ops/arithmetic.h"
#include "ops/declared.h"

namespace gradus::ops {

struct InNoFamily;

namespace {

TEST(Records, AreFoundByTypeAndByName) {
  EXPECT_EQ(&record<Add>(), find("add"));
  EXPECT_EQ(&record<Exp>(), find("exp"));
  for (const Operator* op : all()) {
    EXPECT_EQ(find_type(op->type), op) << op->name;
    EXPECT_EQ(find(op->name), op) << op->name;
  }
}

TEST(Records, OfTypesThatNoFamilyListsAreRefused) {
  EXPECT_EQ(find_type(&type_key<InNoFamily>), nullptr);
  try {
    record<InNoFamily>();
    FAIL() << "no error was thrown";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("InNoFamily"), std::string::npos) << e.what();
  }
}

struct Silent {
  static void bind(BindCall&);
};
struct Excused : Silent {
  static constexpr auto no_batch_rule = "it is a test";
};
struct Ruled : Silent {
  static constexpr auto batch = batch_last_dimensions;
};
struct Undecided : Ruled {
  static constexpr auto no_batch_rule = "it is a test";
};
struct Composed {
  static void compose(ComposeCall&);
};

// A struct that does not say it is refused where its record is made.
TEST(BatchRules, AreSaidOrExcused) {
  static_assert(!says_batch_rule<Silent>() && !says_batch_rule<Undecided>());
  static_assert(says_batch_rule<Excused>() && says_batch_rule<Ruled>());
  static_assert(says_batch_rule<Composed>() && says_batch_rule<Add>());
  EXPECT_EQ(record<Add>().batch, batch_pointwise);
}

}  // namespace
}  // namespace gradus::ops
