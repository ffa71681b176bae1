// Nests as text, what they may not be, and the frames that fit them.
#include "fusion/nest.h"

#include <gtest/gtest.h>

#include "gradus/registry.h"

namespace gradus::fusion {
namespace {

constexpr const char* sample =
    "nest 2 {\n"
    "  %v0 = load f32 [strided, contiguous]\n"
    "  %v1 = load f16 [broadcast, contiguous]\n"
    "  %v2 = load bool [strided, broadcast]\n"
    "  %v3 = number 0.5\n"
    "  %v4 = number -3\n"
    "  %v5 = number true\n"
    "  %v6 = number -inf\n"
    "  %v7 = mul(%v0, %v1) : f32 in f32\n"
    "  %v8 = add(%v7, %v3) {alpha = 2} : f32 in f32\n"
    "  %v9 = lt(%v8, %v4) : bool in f32\n"
    "  %v10 = where(%v2, %v8, %v6) : f32 in f32\n"
    "  %v11 = clamp(%v10) {min = -1.0, max = 2.5} : f32 in f32\n"
    "  %v12 = convert(%v11) : bf16\n"
    "  store %v12, %v9, %v0\n"
    "}\n";

TEST(NestText, ReadsBackWhatItPrints) {
  Nest nest = parse_nest(sample);
  EXPECT_EQ(print(nest), sample);
  EXPECT_EQ(nest.rank, 2);
  ASSERT_EQ(nest.loads.size(), 3u);
  EXPECT_EQ(nest.loads[1].dtype, DType::f16);
  EXPECT_EQ(nest.loads[1].walks[0], Walk::broadcast);
  ASSERT_EQ(nest.numbers.size(), 4u);
  EXPECT_EQ(nest.numbers[1], ir::Number::of(int64_t{-3}));
  EXPECT_EQ(nest.numbers[2], ir::Number::of(true));
  ASSERT_EQ(nest.steps.size(), 6u);
  EXPECT_EQ(nest.steps[1].call.op, ops::find("add"));
  EXPECT_EQ(nest.steps[2].dtype, DType::boolean);
  EXPECT_EQ(nest.steps[2].compute, Compute::f32);
  EXPECT_EQ(nest.steps[5].call.op, nullptr);
  EXPECT_EQ(nest.dtype_of(12), DType::bf16);
  EXPECT_EQ(nest.stores.size(), 3u);
}

TEST(NestText, ReadsBackRegisters) {
  constexpr const char* narrow =
      "nest 1 in 256 {\n"
      "  %v0 = load f32 [contiguous]\n"
      "  %v1 = exp(%v0) : f32 in f32\n"
      "  store %v1\n"
      "}\n";
  Nest nest = parse_nest(narrow);
  EXPECT_EQ(nest.registers, 256);
  EXPECT_EQ(print(nest), narrow);
}

TEST(NestText, ReadsBackRowSizes) {
  constexpr const char* short_rows =
      "nest 2 in 256 rows 3 {\n"
      "  %v0 = load f32 [strided, contiguous]\n"
      "  %v1 = reduce sum(%v0) : f32 in f32\n"
      "  store_row %v1\n"
      "}\n";
  Nest nest = parse_nest(short_rows);
  EXPECT_EQ(nest.row_size, 3);
  EXPECT_EQ(print(nest), short_rows);
  EXPECT_NO_THROW(check_frame(nest, {{5, 3}, {{3, 1}}}));
  EXPECT_THROW(check_frame(nest, {{5, 4}, {{4, 1}}}), Error);
}

TEST(NestText, ReadsBackReductions) {
  constexpr const char* rows =
      "nest 2 {\n"
      "  %v0 = load f16 [strided, contiguous]\n"
      "  %v1 = reduce max(%v0) : f16 in f32\n"
      "  %v2 = sub(%v0, %v1) : f16 in f32\n"
      "  %v3 = reduce sum(%v2) : f16 in f32\n"
      "  %v4 = reduce all(%v2) : bool\n"
      "  %v5 = div(%v2, %v3) : f16 in f32\n"
      "  store %v5, %v1\n"
      "  store_row %v3, %v4\n"
      "}\n";
  Nest nest = parse_nest(rows);
  EXPECT_EQ(print(nest), rows);
  EXPECT_TRUE(nest.reduces());
  EXPECT_FALSE(parse_nest(sample).reduces());
  EXPECT_EQ(nest.row_stores, (std::vector<ValueNumber>{3, 4}));
  RowFacts facts = row_facts(nest);
  EXPECT_EQ(facts.of_row, (std::vector<bool>{false, true, false, true, true, false}));
  EXPECT_EQ(facts.level, (std::vector<int>{0, 1, 1, 2, 2, 2}));
}

TEST(NestText, ReadsBackReducedColumns) {
  constexpr const char* columns =
      "nest 2 {\n"
      "  %v0 = load f16 [strided, contiguous]\n"
      "  %v1 = load f16 [strided, broadcast]\n"
      "  %v2 = mul(%v0, %v1) : f16 in f32\n"
      "  %v3 = reduce_columns sum(%v2) : f16 in f32\n"
      "  %v4 = reduce max(%v2) : f16 in f32\n"
      "  %v5 = reduce_columns any(%v1) : bool\n"
      "  store %v2\n"
      "  store_row %v4\n"
      "  store_column %v3, %v5\n"
      "}\n";
  Nest nest = parse_nest(columns);
  EXPECT_EQ(print(nest), columns);
  EXPECT_TRUE(nest.reduces());
  EXPECT_EQ(nest.column_stores, (std::vector<ValueNumber>{3, 5}));
  RowFacts facts = row_facts(nest);
  EXPECT_EQ(facts.of_row, (std::vector<bool>{false, true, false, false, true, false}));
  EXPECT_EQ(facts.level, (std::vector<int>{0, 0, 0, 0, 1, 0}));
}

TEST(NestText, ReadsBackEdges) {
  constexpr const char* edges =
      "nest 2 {\n"
      "  %v0 = load f16 [strided, contiguous] of 3\n"
      "  %v1 = load i32 [strided, broadcast]\n"
      "  %v2 = load f16 [broadcast, contiguous] at %v1\n"
      "  %v3 = load i64 [strided, contiguous]\n"
      "  %v4 = load f16 [strided, broadcast] at %v3\n"
      "  %v5 = add(%v0, %v2) : f16 in f32\n"
      "  store %v5, %v4\n"
      "}\n";
  Nest nest = parse_nest(edges);
  EXPECT_EQ(print(nest), edges);
  EXPECT_TRUE(nest.has_edges());
  EXPECT_FALSE(parse_nest(sample).has_edges());
  EXPECT_EQ(nest.loads[0].operands, 3u);
  EXPECT_EQ(nest.operands(), 7u);
  EXPECT_EQ(nest.loads[2].index, 1u);
  // An index for each element makes a value of the element.
  EXPECT_EQ(row_facts(nest).of_row, (std::vector<bool>{false, true, false, false, false, false}));
}

TEST(NestFrames, OfPartsAreTheLoops) {
  const Nest nest = parse_nest("nest 2 { %v0 = load f32 [strided, contiguous] of 2 store %v0 }");
  using Part = Frame::Part;
  auto says = [&](std::vector<Part> parts) -> std::string {
    try {
      check_frame(nest, {{3, 4}, {{}}, {std::move(parts)}});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const Part top{{0, 0}, {1, 4}, {4, 1}}, rest{{1, 0}, {2, 4}, {9, 1}};
  EXPECT_EQ(says({top, rest}), "");
  EXPECT_NE(says({top}).find("each of the 2 operands"), std::string::npos);
  EXPECT_NE(says({top, {{1, 0}, {1, 4}, {9, 1}}}).find("not all of the loops"), std::string::npos);
  EXPECT_NE(says({top, {{0, 0}, {2, 4}, {9, 1}}}).find("overlap"), std::string::npos);
  EXPECT_NE(says({top, {{1, 0}, {3, 4}, {9, 1}}}).find("lie in the loops"), std::string::npos);
  EXPECT_NE(says({top, {{1, 0}, {2, 4}, {9, 2}}}).find("stride 2"), std::string::npos);
  const Nest rows = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] of 2 %v1 = reduce sum(%v0) : f32 in f32 "
      "store_row %v1 }");
  EXPECT_THROW(
      check_frame(rows, {{3, 4}, {{}}, {{{{0, 0}, {3, 1}, {1, 1}}, {{0, 1}, {3, 3}, {3, 1}}}}}),
      Error);
  Nest joined = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] of 2 %v1 = neg(%v0) : f32 in f32 store %v1 }");
  const Frame cut{{3, 4}, {{}}, {{{{0, 0}, {3, 1}, {1, 1}}, {{0, 1}, {3, 3}, {3, 1}}}}};
  EXPECT_NO_THROW(check_frame(joined, cut));
  joined.row_size = 4;
  EXPECT_THROW(check_frame(joined, cut), Error);
  const Nest picked = parse_nest(
      "nest 1 { %v0 = load i64 [contiguous] %v1 = load f32 [broadcast] at %v0 store %v1 }");
  EXPECT_THROW(check_frame(picked, {{3}, {{1}, {0}}}), Error);
  check_frame(picked, {{3}, {{1}, {0}}, {}, {0, 5}});
}

// What is wrong, and where.
struct Fault {
  const char* text;
  const char* says;
};

TEST(NestText, RefusesWhatItCannotRead) {
  const Fault faults[] = {
      {"nest 1 { %v1 = load f32 [contiguous] store %v1 }", "expected %v0"},
      {"nest 1 { %v0 = load f32 [sideways] store %v0 }", "contiguous, strided or broadcast"},
      {"nest 1 { %v0 = load f99 [contiguous] store %v0 }", "f99"},
      {"nest 1 { %v0 = number 2 %v1 = load f32 [contiguous] store %v1 }", "loads stand before"},
      {"nest 1 { %v0 = number %v0 store %v0 }", "%v0"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exq(%v0) : f32 in f32 store %v1 }", "or 'exp'"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v1) : f32 in f32 store %v1 }",
       "not defined before"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0) : f32 in f16 store %v1 }",
       "f64, f32 or i64"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0) {n = 1} : f32 in f32 store %v1 }",
       "exp: "},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = polygamma(%v0) : f32 in f32 store %v1 }",
       "polygamma: "},
      {"nest 1 { %v0 = load f32 [contiguous] store %v0 } nest", "after the nest"},
      {"nest 1 { %v0 = load f32 [contiguous] store", ""},
      {"nest 99 { store %v0 }", ""},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce most(%v0) : f32 in f32 store_row %v1 }",
       "sum, prod, max, min, all or any"},
      {"nest 1 { %v0 = load f32 [contiguous] stow %v0 }", "store_row"},
      {"graph", "'nest'"},
  };
  for (const Fault& f : faults) {
    try {
      parse_nest(f.text, "a.nest");
      ADD_FAILURE() << f.text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(f.says), std::string::npos) << f.text << e.what();
      EXPECT_TRUE(e.where().known()) << e.what();
    }
  }
}

TEST(NestVerifier, NamesTheInvariant) {
  const Fault faults[] = {
      {"nest 0 { %v0 = number 1 store %v0 }", "[N1]"},
      {"nest 2 { %v0 = load f32 [contiguous] store %v0 }", "[N2]"},
      {"nest 2 { %v0 = load f32 [contiguous, contiguous] store %v0 }", "[N2]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0, %v0) : f32 in f32 store %v1 }", "[N3]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = sum(%v0) : f32 in f32 store %v1 }", "[N4]"},
      {"nest 1 { %v0 = load i64 [contiguous] %v1 = exp(%v0) : i64 in i64 store %v1 }", "[N5]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0) : f64 in f32 store %v1 }", "[N6]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = isnan(%v0) : f32 in f32 store %v1 }", "[N6]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = convert(%v0, %v0) : f32 store %v1 }", "[N7]"},
      {"nest 1 { %v0 = load f32 [contiguous] }", "[N8]"},
      {"nest 1 in 128 { %v0 = load f32 [contiguous] store %v0 }", "[N14]"},
      {"nest 1 rows 3 { %v0 = load f32 [contiguous] %v1 = reduce sum(%v0) : f32 in f32 store %v1 }",
       "[N15]"},
      {"nest 2 rows 33 { %v0 = load f32 [strided, contiguous] store %v0 }",
       "the elements of a row"},
      {"nest 2 rows 3 { %v0 = load f32 [strided, contiguous] %v1 = reduce sum(%v0) : f32 in f32\n"
       "%v2 = reduce_columns sum(%v0) : f32 in f32 store_row %v1 store_column %v2 }",
       "[N15]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce sum(%v0, %v0) : f32 in f32 store %v1 }",
       "[N7]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce sum(%v0) : f32 in f64 store %v1 }",
       "[N9]"},
      {"nest 1 { %v0 = load i32 [contiguous] %v1 = reduce sum(%v0) : f32 in i64 store %v1 }",
       "[N6]"},
      {"nest 1 { %v0 = load i32 [contiguous] %v1 = reduce any(%v0) : i32 store %v1 }", "[N6]"},
      {"nest 1 { %v0 = load f32 [contiguous] store_row %v0 }", "[N10]"},
      {"nest 1 { %v0 = load f32 [contiguous] store_row %v7 }", ""},
      {"nest 1 { %v0 = load f32 [contiguous] of 0 store %v0 }", "[N12]"},
      {"nest 2 { %v0 = load f32 [strided, contiguous] of 2 %v1 = reduce_columns sum(%v0) : f32 in "
       "f32 store_column %v1 }",
       "[N12]"},
      {"nest 1 { %v0 = load i64 [contiguous] %v1 = load f32 [contiguous] of 2 at %v0 store %v1 }",
       "[N12]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = load f32 [contiguous] at %v0 store %v1 }",
       "[N13]"},
      {"nest 1 { %v0 = load i64 [contiguous] of 2 %v1 = load f32 [contiguous] at %v0 store %v1 }",
       "[N13]"},
      {"nest 1 { %v0 = load f32 [contiguous] store_column %v0 }", "[N11]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce sum(%v0) : f32 in f32 store_column %v1 }",
       "[N11]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce_columns sum(%v0) : f32 in f32 store %v1 "
       "}",
       "[N11]"},
      {"nest 1 { %v0 = load f32 [contiguous] %v1 = reduce_columns sum(%v0) : f32 in f32\n"
       "%v2 = exp(%v1) : f32 in f32 store %v2 }",
       "[N11]"},
  };
  for (const Fault& f : faults) {
    try {
      parse_nest(f.text);
      ADD_FAILURE() << f.text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(f.says), std::string::npos) << f.text << e.what();
    }
  }
  auto says = [](Nest nest) -> std::string {
    try {
      verify(nest);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  Nest nest = parse_nest(sample);
  Nest wrong = nest;
  wrong.steps[0].operands[1] = 7;  // itself
  EXPECT_NE(says(wrong).find("[N3]"), std::string::npos);
  wrong = nest;
  wrong.steps[1].call.attributes = nullptr;
  EXPECT_NE(says(wrong).find("[N7]"), std::string::npos);
  wrong = nest;
  wrong.stores[0] = 13;
  EXPECT_NE(says(wrong).find("[N8]"), std::string::npos);
  EXPECT_EQ(says(nest), "");
}

TEST(NestFrame, FitsTheWalks) {
  Nest nest = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = load f32 [broadcast, strided] "
      "store %v0, %v1 }");
  check_frame(nest, {{3, 4}, {{7, 1}, {0, 5}}});
  check_frame(nest, {{3, 1}, {{7, 9}, {0, 5}}});
  EXPECT_THROW(check_frame(nest, {{3}, {{1}, {5}}}), Error);
  EXPECT_THROW(check_frame(nest, {{3, 4}, {{7, 1}}}), Error);
  EXPECT_THROW(check_frame(nest, {{3, 4}, {{7, 1}, {0}}}), Error);
  EXPECT_THROW(check_frame(nest, {{3, 4}, {{7, 2}, {0, 5}}}), Error);
  EXPECT_THROW(check_frame(nest, {{3, 4}, {{7, 1}, {4, 5}}}), Error);
  Nest rows = parse_nest(
      "nest 1 { %v0 = load f32 [contiguous] %v1 = reduce sum(%v0) : f32 in f32 store_row %v1 }");
  check_frame(rows, {{1}, {{1}}});
  EXPECT_THROW(check_frame(rows, {{0}, {{1}}}), Error);
  Nest columns = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = reduce_columns sum(%v0) : f32 in f32\n"
      "store_column %v1 }");
  check_frame(columns, {{1, 3}, {{3, 1}}});
  EXPECT_THROW(check_frame(columns, {{0, 3}, {{3, 1}}}), Error);
}

}  // namespace
}  // namespace gradus::fusion
