// Long programs: time and memory in proportion to the text.
#include <ctime>
#include <functional>

#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

std::string chain(int nodes) {
  std::string text = "graph g {\n  stage 0 (%x: f64[N, 3]) {\n    %t0 = tanh(%x)\n";
  for (int i = 1; i < nodes; ++i)
    text += i % 2 ? fmt::format("    %t{} = tanh(%t{})\n", i, i - 1)
                  : fmt::format("    %t{} = add(%t{}, %t{})\n", i, i - 1, i / 2);
  return text + fmt::format("    return %t{}\n  }}\n}}\n", nodes - 1);
}

// Of the processor, so that a busy machine counts less.
double seconds(const std::function<void()>& run) {
  std::clock_t start = std::clock();
  run();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Ten times the program takes about ten times as long, and never seventy times.
void expect_linear(const std::function<void(int)>& run) {
  run(1000);  // warm
  double small = 1e9, large = 1e9;
  for (int i = 0; i < 3; ++i) {
    small = std::min(small, seconds([&] { run(10'000); }));
    large = std::min(large, seconds([&] { run(100'000); }));
  }
  EXPECT_LT(large, 70 * small) << small << " s, " << large << " s";
}

TEST(Scale, ReadingPrintingAndVerifyingAreLinear) {
  expect_linear([](int n) {
    Module m = parse(chain(n));
    verify(m.program());
    EXPECT_EQ(print(m.program()).size(), chain(n).size());
  });
}

TEST(Scale, NamingIsLinear) {
  expect_linear([](int n) {
    Graph g = parse(chain(n)).program();
    for (size_t v = 1; v < g.values.size(); ++v) g.values[v].name = v % 2 ? "" : "same";
    g.stages[0].results[0].name = "r";
    expect_round_trip(g);
  });
}

TEST(Scale, UnknownSizesAreLinear) {
  expect_linear([](int n) {
    std::string text = "graph g { stage 0 (%x: f64[?";
    for (int i = 1; i < n / 10; ++i) text += fmt::format("], %x{}: f64[?", i);
    parse(text + "]) { return } }");
  });
}

TEST(Scale, SettlingSizesIsLinear) {
  // Each size follows from the one behind it.
  expect_linear([](int n) {
    n /= 10;
    std::string text = "graph g { stage 0 (";
    for (int i = 0; i < n; ++i) text += fmt::format("%x{}: f64[D{} + D{}], ", i, i, i + 1);
    parse(text + fmt::format("%last: f64[D{}]) {{ return }} }}", n));
  });
}

// A chain to be called.
std::string leaf(int nodes) {
  std::string text = "graph leaf {\n  stage 0 (%x: f64[]) {\n    %t0 = tanh(%x)\n";
  for (int i = 1; i < nodes; ++i) text += fmt::format("    %t{} = tanh(%t{})\n", i, i - 1);
  return text + fmt::format("    return %t{}\n  }}\n}}\n", nodes - 1);
}

TEST(Scale, GraphsAreReadOnce) {
  expect_linear([](int n) {
    n /= 10;
    std::string text = leaf(n);
    for (int i = 0; i < n; ++i)
      text += fmt::format(
          "graph g{} {{ stage 0 (%x: f64[]) {{ %y = call(%x) {{graph = \"leaf\"}} return %y }} "
          "}}\n",
          i);
    parse(text);
  });
}

// Many calls of a long graph take about as long as many calls of a short one and one of a long one:
// a look at each node for each call takes fifteen times as long.
TEST(Scale, CalledGraphsAreLookedAtOnce) {
  auto least = [](int nodes, int calls) {
    std::string text = leaf(nodes) + "graph g {\n  stage 0 (%x: f64[]) {\n";
    for (int i = 0; i < calls; ++i)
      text += fmt::format("    %y{} = call(%x) {{graph = \"leaf\"}}\n", i);
    text += "    return %y0\n  }\n}\n";
    double time = 1e9;
    for (int i = 0; i < 3; ++i)
      time = std::min(time, seconds([&] { verify(parse(text).program()); }));
    return time;
  };
  constexpr int many = 20'000;
  const double apart = least(many, 1) + least(1, many), both = least(many, many);
  EXPECT_LT(both, 3 * apart) << apart << " s, " << both << " s";
}

TEST(Scale, LongLinesOfErrorsAreCut) {
  std::string text = "graph g { stage 0 (%x: f64[]) { ";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("%t{} = tanh(%x) ", i);
  std::string message = error_of(text + "%y = tanh(%nothing) return } }");
  EXPECT_LT(message.size(), 1000u);
}

}  // namespace
}  // namespace gradus::ir
