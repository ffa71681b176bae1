#include <fstream>

#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

constexpr const char* programs = R"(
graph twice { stage 0 (%a: f64[K]) { %b = mul(%a, 2.0) return %b } }
graph main {
  stage 0 (%x: f64[N], %i: i64[N], %"a b": f32[]) {
    %y = call(%x) {graph = "twice"}
    %s = sum(%y)
    return %y, %s
  }
  stage 1 (%ct1_s: f64[]) { return y = none, %ct1_s }
}
)";

std::string with(std::string_view text) { return fmt::format("{}{}", programs, text); }

std::vector<Case> cases(const std::string& text) { return parse_fixture(with(text), "t.ir").cases; }

void expect_case_error(const std::string& body, const std::string& part) {
  expect_error(with(fmt::format("case c {{ {} }}", body)), part);
}

// SPEC P6
TEST(Cases, ReadEveryStatement) {
  std::vector<Case> list = cases(R"(
case small {
  set N = 3  set M = 0
  input x = f64[3] [1, 2, 3]
  input i = random(-4, 5, 17)
  input "a b" = random(0.5, 1e2)
  input ct1_s = undefined
  expect s = f64[] 12 tolerance 1e-9
  expect stage 0 y = f64[3] [2, 4, 6]
  expect stage 1 y = none
  expect ct1_s = undefined
  differentiate order 2 wrt x, "a b" total
  gradcheck order 3 wrt x seed 5 tolerance 1e-4
}
case "another one" { graph twice input a = f64[0] [] error "a \"quoted\" reason" }
)");
  ASSERT_EQ(list.size(), 2u);
  const Case& c = list[0];
  EXPECT_EQ(c.name, "small");
  EXPECT_EQ(c.graph, 1u);
  EXPECT_EQ(c.where, (SourceLocation{12, 1}));
  EXPECT_EQ(c.sizes, (std::vector<std::pair<std::string, int64_t>>{{"N", 3}, {"M", 0}}));
  ASSERT_EQ(c.inputs.size(), 4u);
  EXPECT_EQ(std::get<Tensor>(c.inputs[0].value).to_doubles(), (std::vector<double>{1, 2, 3}));
  const auto& r = std::get<RandomInput>(c.inputs[1].value);
  EXPECT_EQ(r.low, -4);
  EXPECT_EQ(r.high, 5);
  EXPECT_EQ(r.seed, 17u);
  EXPECT_EQ(c.inputs[2].name, "a b");
  EXPECT_FALSE(std::get<Tensor>(c.inputs[3].value).defined());
  ASSERT_EQ(c.expectations.size(), 4u);
  EXPECT_EQ(c.expectations[0].tolerance, 1e-9);
  EXPECT_EQ(c.expectations[0].stage, std::nullopt);
  EXPECT_EQ(c.expectations[1].tolerance, 1e-12);
  EXPECT_EQ(c.expectations[1].stage, 0u);
  EXPECT_EQ(c.expectations[2].kind, CaseExpectation::Kind::none);
  EXPECT_EQ(c.expectations[3].kind, CaseExpectation::Kind::undefined);
  EXPECT_EQ(c.differentiate->order, 2);
  EXPECT_EQ(*c.differentiate->wrt, (std::vector<std::string>{"x", "a b"}));
  EXPECT_TRUE(c.differentiate->total);
  EXPECT_EQ(c.gradcheck->order, 3);
  EXPECT_EQ(c.gradcheck->seed, 5u);
  EXPECT_EQ(c.gradcheck->tolerance, 1e-4);
  EXPECT_EQ(list[1].graph, 0u);
  EXPECT_EQ(*list[1].error, "a \"quoted\" reason");
}

// SPEC P6
TEST(Cases, SayWhatIsWrong) {
  expect_case_error("inputs x = f64[1] [1]", "expected set, input, expect");
  expect_case_error("input x f64[1] [1]", "expected '=' after the input's name");
  expect_case_error("input x = 3", "expected a tensor such as f32[2] [1, 2], random(-1, 1)");
  expect_case_error("input x = f64[2] [1]", "expected 2 elements");
  expect_case_error("input x = random(1, 0)", "the lower one first");
  expect_case_error("input x = random(0, inf)", "finite");
  expect_case_error("input x = random(nan, 1)", "finite");
  expect_case_error("input x = undefined input x = undefined", "the input 'x' is given twice");
  expect_case_error("input z = undefined", "the program has no input 'z'");
  expect_case_error("expect z = none", "the program has no result 'z'");
  expect_case_error("expect stage 1 s = none", "the program has no result 's' in that stage");
  expect_case_error("expect y = none", "several stages have a result 'y'; write expect stage N y");
  expect_case_error("expect s = f64[] 1 expect s = f64[] 2", "the result 's' is expected twice");
  expect_case_error("expect s = f64[] 1 tolerance -1", "a tolerance is a number, 0 or more");
  expect_case_error("expect s = f64[] 1 tolerance nan", "a tolerance is a number, 0 or more");
  expect_case_error("set N = -1", "expected a size");
  expect_case_error("set N = 1 set N = 2", "the size 'N' is set twice");
  expect_case_error("differentiate 2", "expected 'order' and a number");
  expect_case_error("differentiate order 2000", "of at most 1000");
  expect_case_error("differentiate order 1 wrt ct1_s", "stage 0 has no input 'ct1_s'");
  expect_case_error("gradcheck order 1 gradcheck order 1", "'gradcheck' stands twice");
  expect_case_error("engines fused", "gradcheck, error or '}' in the case");
  expect_case_error("error nothing", "expected a string in double quotes that the error contains");
  expect_case_error("graph nobody", "there is no graph 'nobody'");
  expect_error(with("case a { } case a { }"), "there is a case 'a' already");
  expect_error(with("case a { } graph g { stage 0 () { return } }"),
               "expected 'case' or the end of the text, found 'graph'");
  expect_error(with("case a {"), "found the end of the text");
}

// The page that explains the language shows a program and an error: both are real.
TEST(Cases, TheDocumentedFixtureIsRead) {
  std::ifstream in(GRADUS_SOURCE_DIR "/docs/program-text.md");
  std::string page(std::istreambuf_iterator<char>(in), {});
  const std::string_view fence = "```ir squares.ir\n";
  size_t first = page.find(fence) + fence.size(), end = page.find("```", first);
  std::string text = page.substr(first, end - first);
  Fixture f = parse_fixture(text, "squares.ir");
  EXPECT_EQ(f.cases.size(), 1u);
  text.replace(text.find("mean(%s)"), 8, "mean(%z)");
  try {
    parse(text, "squares.ir");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(page.find(fmt::format("```text output\n{}\n```", e.what())), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gradus::ir
