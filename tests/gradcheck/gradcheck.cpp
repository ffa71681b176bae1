// The judge of derivatives, judged: it finds what is wrong and is not misled by kinks.
#include "gradus/gradcheck.h"

#include <map>

#include <gtest/gtest.h>

#include "gradus/text.h"

namespace {

using namespace gradus;

GradcheckReport check(const std::string& text, std::map<std::string, Tensor> given = {},
                      GradcheckOptions options = {}) {
  InputSources sources;
  sources.find = [&](std::string_view name) -> std::optional<FoundTensor> {
    auto it = given.find(std::string(name));
    if (it == given.end()) return std::nullopt;
    return FoundTensor{it->second, "a test"};
  };
  return gradcheck(ir::parse(text, "p").program(), sources, options);
}

std::string one_line(const std::string& op) {
  return "graph p { stage 0 (%x: f64[3]) { %y = " + op + " return %y } }";
}

Tensor values(std::vector<double> v, DType dtype = DType::f64) {
  return Tensor::from(dtype, Sizes{static_cast<int64_t>(v.size())}, v);
}

TEST(Gradcheck, MeasuresEveryStage) {
  GradcheckOptions options;
  options.order = 3;
  GradcheckReport r = check(one_line("tanh(%x)"), {{"x", values({0.3, -0.7, 1.2})}}, options);
  EXPECT_TRUE(r.passed());
  std::vector<std::string> names;
  for (const GradcheckEntry& e : r.entries) {
    names.push_back(fmt::format("d{}_{}", e.stage, e.input));
    EXPECT_EQ(e.size, 3);
    EXPECT_EQ(e.checked, 3);
    EXPECT_LT(e.error, 1e-10);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"d1_x", "d2_x", "d2_ct1_y", "d3_x", "d3_ct1_y",
                                             "d3_ct2_d1_x"}));
}

// Derivatives that are wrong by a factor, in one element, where they ought to be zero, or missing.
TEST(Gradcheck, FindsWrongDerivatives) {
  auto by_hand = [](const std::string& body, const std::string& result) {
    return "graph p { stage 0 (%x: f64[3]) { %y = sin(%x) return %y } stage 1 (%ct1_y: f64[3]) {" +
           body + " return d1_x = " + result + " } }";
  };
  std::string right = "%c = cos(%x) %g = mul(%c, %ct1_y)";
  EXPECT_TRUE(check(by_hand(right, "%g")).passed());
  const std::pair<std::string, std::string> wrong[] = {
      {right + " %h = mul(%g, 1.00001)", "%h"},
      {right + " %k = constant() {value = f64[3] [0, 0, 1e-5]} %h = add(%g, %k)", "%h"},
      {"%c = sin(%x) %g = mul(%c, %ct1_y)", "%g"},
      {right + " %h = neg(%g)", "%h"},
      {right + " %h = div(%g, 0.0)", "%h"},
      {right, "none"},
  };
  for (const auto& [body, result] : wrong) {
    GradcheckReport r = check(by_hand(body, result));
    ASSERT_EQ(r.entries.size(), 1u);
    EXPECT_FALSE(r.passed()) << body;
    EXPECT_NE(r.entries[0].why.find("differences say"), std::string::npos) << r.entries[0].why;
  }
  EXPECT_EQ(check(by_hand(wrong[1].first, "%h")).entries[0].element, 2);
}

// A wrong second derivative of a right first one: stage 2 is written by hand.
TEST(Gradcheck, FindsWrongSecondDerivatives) {
  auto text = [](const char* factor) {
    return fmt::format(
        "graph p {{ stage 0 (%x: f64[]) {{ %y = square(%x) return %y }}"
        " stage 1 (%ct1_y: f64[]) {{ %t = mul(%x, 2.0) %g = mul(%t, %ct1_y) return d1_x = %g }}"
        " stage 2 (%ct2_d1_x: f64[]) {{ %a = mul(%ct2_d1_x, {}) %b = mul(%a, %ct1_y)"
        "   %c = mul(%ct2_d1_x, %t) return d2_x = %b, d2_ct1_y = %c }} }}",
        factor);
  };
  GradcheckOptions options;
  options.order = 2;
  EXPECT_TRUE(check(text("2.0"), {}, options).passed());
  GradcheckReport r = check(text("2.5"), {}, options);
  ASSERT_EQ(r.entries.size(), 3u);
  EXPECT_TRUE(r.entries[0].passed);
  EXPECT_FALSE(r.entries[1].passed);
  EXPECT_TRUE(r.entries[2].passed);
  options.order = 1;  // later stages are left out
  EXPECT_TRUE(check(text("2.5"), {}, options).passed());
}

TEST(Gradcheck, StepsAwayFromKinks) {
  for (const char* op : {"relu(%x)", "leaky_relu(%x)", "floor(%x)", "frac(%x)"}) {
    GradcheckReport r = check(one_line(op), {{"x", values({0, 1e-5, 1})}});
    EXPECT_TRUE(r.passed()) << op;
    EXPECT_GT(r.resampled, 0) << op;
    EXPECT_EQ(r.entries[0].kinks, 0) << op;
  }
  // The caller's tensor is not the one that is nudged.
  Tensor x = values({0, 0, 0});
  check(one_line("abs(%x)"), {{"x", x}});
  EXPECT_EQ(x.to_doubles(), std::vector<double>(3, 0.0));
}

TEST(Gradcheck, SaysWhereItCannotJudge) {
  GradcheckReport r = check(one_line("log(%x)"), {{"x", values({-1, -2, -3})}});
  EXPECT_FALSE(r.passed());
  EXPECT_EQ(r.entries[0].edges, 3);
  EXPECT_NE(r.entries[0].why.find("inside the domain"), std::string::npos);
  // Steps so small that the differences see a slope.
  r = check("graph p { stage 0 (%x: f64[]) { %t = mul(%x, 1e12) %y = floor(%t) return %y } }");
  EXPECT_FALSE(r.passed());
  // Next to the edge it steps inside.
  EXPECT_TRUE(check(one_line("log(%x)"), {{"x", values({1e-9, 2, 3})}}).passed());
}

TEST(Gradcheck, TakesF32ProgramsInF64) {
  std::string text =
      "graph p { stage 0 (%x: f32[3], %i: i64[3]) { %c = constant() {value = f32[3] [0.1, 0.2, "
      "0.3]}"
      " %h = cast(%i) {dtype = f32} %m = mul(%x, %c) %n = mul(%m, %h) %y = exp(%n) return %y } }";
  GradcheckReport r = check(text, {{"x", values({0.3, -0.7, 1.2}, DType::f32)}});
  EXPECT_TRUE(r.passed());
  EXPECT_EQ(r.entries.size(), 1u);
  EXPECT_LT(r.entries[0].error, 1e-9);
}

TEST(Gradcheck, SamplesLargeInputs) {
  std::string text =
      "graph p { stage 0 (%x: f64[40, 50], %w: f64[50, 20]) { %h = matmul(%x, %w) %t = tanh(%h)"
      " %y = sum(%t) return %y } stage 1 (%ct1_y: f64[]) {"
      " %q = square(%t) %o = sub(1.0, %q) %g = mul(%o, %ct1_y) %wt = transpose(%w) {dim0 = 0, dim1 "
      "= 1}"
      " %xt = transpose(%x) {dim0 = 0, dim1 = 1} %dx = matmul(%g, %wt) %dw = matmul(%xt, %g)"
      " %z = mul(%dw, WRONG) return d1_x = %dx, d1_w = %z } }";
  auto with = [&](const char* factor) {
    std::string t = text;
    return t.replace(t.find("WRONG"), 5, factor);
  };
  GradcheckReport r = check(with("1.0"));
  EXPECT_TRUE(r.passed());
  EXPECT_EQ(r.entries[0].size, 2000);
  EXPECT_LT(r.entries[0].checked, 100);
  EXPECT_GT(r.entries[0].checked, 60);
  EXPECT_FALSE(check(with("1.001")).passed());
}

TEST(Gradcheck, RefusesWhatHasNoSense) {
  GradcheckOptions options;
  options.order = 0;
  EXPECT_THROW(check(one_line("exp(%x)"), {}, options), Error);
  options.order = 1;
  options.wrt = {"z"};
  EXPECT_THROW(check(one_line("exp(%x)"), {}, options), Error);
}

}  // namespace
