#include <bit>

#include "gradus/registry.h"
#include "gradus/text.h"
#include "ops/structural.h"
#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

constexpr const char* program = R"(graph double_backward {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %e = mean(%h)
    %y = sum(%h) {dim = [0]}
    return %y, e = %e
  }
  stage 1 (%ct1_y: f64[], %ct1_e: f64[]) {
    %u: f64[N] = undefined()
    %n = div(%ct1_e, N)
    %c = constant() {value = f64[2] [0.1, -0.0]}
    return d1_x = %n, d1_w = none
  }
  stage 2 () {
    return
  }
}
)";

// SPEC P3
TEST(Printer, PrintsWhatWasRead) {
  std::string text = program;
  std::string printed = print(parse(text).program());
  // A result with the value's name is printed without one.
  EXPECT_EQ(printed, text.replace(text.find("e = %e"), 6, "%e"));
  expect_round_trip(parse(program).program());
}

TEST(Printer, PrintsFilesWithTheirVersion) {
  std::string text = std::string("gradus 1\n\n") + print(parse(program).program());
  EXPECT_EQ(print(parse(text)), text);
}

// What an instruction runs stands in it, as it was written.
TEST(Printer, PrintsGraphsInInstructions) {
  const std::string text = R"(gradus 1

graph rollout {
  stage 0 (%h: f64[3], %xs: f64[8, 3]) {
    %last = scan(%h, %xs) {body = graph (%h: f64[3], %x: f64[3]) {
      %v = scan(%h, %x) {body = graph kick (%u: f64[3], %w: f64[3]) {
        %s = mul(%u, %w)
        return %s
      }, carries = 1, length = 2}
      %big = sum(%v)
      %p = gt(%big, 1.0)
      %n = if(%p, %v) {then = graph (%a: f64[3]) {
        return %a
      }, else = graph (%a: f64[3]) {
        %m = neg(%a)
        return %m
      }}
      return %n
    }, carries = 1, sequences = 1}
    return %last
  }
}
)";
  const Module module = parse(text);
  EXPECT_EQ(print(module), text);
  EXPECT_EQ("gradus 1\n\n" + print(module.program()), text);
  expect_round_trip(module.program());
  const Graph& g = module.program();
  EXPECT_EQ(print(g.stages[0].nodes[0], g, NameTable(g)),
            "%last = scan(%h, %xs) {body = \"body\", carries = 1, sequences = 1}");

  // What two instructions run stands for itself, and so does one of two of one name.
  Graph twice = g;
  Node again = twice.stages[0].nodes[0];
  again.results[0] = twice.add_value(twice[again.results[0]].type, "again", 0);
  twice.stages[0].nodes.push_back(again);
  const std::string printed = print(twice);
  EXPECT_EQ(printed.find("graph body {"), 0u) << printed;
  EXPECT_NE(printed.find("= graph kick ("), std::string::npos) << printed;
  expect_round_trip(twice);
}

// A graph as passes leave it: no names, the same name twice, names that look invented.
Graph awkward() {
  Graph g = parse(R"(graph g { stage 0 (%v0: f64[], %x: f64[]) {
    %a = tanh(%x) %b = tanh(%a) %c = tanh(%b) %d = tanh(%c) %e = tanh(%d) %f = tanh(%e)
    return %a, %b, %c, %d, %e, r = %f
  } })")
                .program();
  auto rename = [&](const char* from, const char* to) {
    for (Value& v : g.values)
      if (v.name == from) v.name = to;
  };
  rename("a", "");
  rename("b", "x");
  rename("c", "x_1");
  rename("d", "x");
  rename("e", "");
  rename("f", "none");
  return g;
}

// SPEC P3
TEST(Printer, FindsNamesForAll) {
  Graph g = awkward();
  NameTable names(g);
  EXPECT_EQ(print(g), R"(graph g {
  stage 0 (%v0: f64[], %x: f64[]) {
    %v1 = tanh(%x)
    %x_2 = tanh(%v1)
    %x_1 = tanh(%x_2)
    %x_3 = tanh(%x_1)
    %v2 = tanh(%x_3)
    %none = tanh(%v2)
    return a = %v1, b = %x_2, c = %x_1, d = %x_3, e = %v2, r = %none
  }
}
)");
  expect_round_trip(g);
  EXPECT_EQ(names.shown(no_value), "%\"no value 4294967295\"");
}

// SPEC P3
TEST(Printer, QuotesNames) {
  Graph g = parse(
                "graph \"a graph\" { stage 0 (%\"onnx::Add_24\": f64[], %\"q\\\"\\\\\\n\\xff\": "
                "f64[], %\"1\": f64[]) { return %\"onnx::Add_24\", \"none\" = %\"1\", \"\\x00\" = "
                "none, %\"q\\\"\\\\\\n\\xff\" } }")
                .program();
  EXPECT_EQ(g.values[1].name, "q\"\\\n\xff");
  EXPECT_EQ(g.stages[0].results[2].name, std::string(1, '\0'));
  std::string text = print(g);
  EXPECT_NE(text.find("graph \"a graph\" {"), std::string::npos) << text;
  EXPECT_NE(text.find("%\"q\\\"\\\\\\n\\xff\": f64[]"), std::string::npos) << text;
  EXPECT_NE(text.find("\"none\" = %\"1\""), std::string::npos) << text;
  Graph again = parse(text).program();
  for (size_t v = 0; v < g.values.size(); ++v) EXPECT_EQ(again.values[v].name, g.values[v].name);
  for (size_t r = 0; r < 4; ++r)
    EXPECT_EQ(again.stages[0].results[r].name, g.stages[0].results[r].name);
}

// SPEC P3
TEST(Printer, KeepsEveryBitOfLiterals) {
  uint64_t state = 1;
  auto next = [&] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  for (int i = 0; i < 2000; ++i) {
    auto bits = next() ^ (next() >> 32);
    double d = std::bit_cast<double>(i % 10 ? bits : bits | 0x7ff0000000000000u);
    Literal operand(d);
    Tensor t = Tensor::empty(DType::f64, std::vector<int64_t>{1});
    std::memcpy(t.mutable_data(), &bits, 8);
    Module m = parse(stage_text("%a = mul(%x, " + float_text(d) +
                                ")\n%c = constant() {value = " + to_string(Literal(t)) + "}"));
    const auto& nodes = m.program().stages[0].nodes;
    EXPECT_EQ(std::bit_cast<uint64_t>(std::get<Number>(nodes[0].operands[1]).floating),
              std::bit_cast<uint64_t>(d))
        << float_text(d);
    EXPECT_TRUE(
        bitwise_equal(ops::attributes_as<ops::Constant::Attr>(nodes[1].attributes).value, t));
  }
}

// SPEC P3
TEST(Printer, KeepsEveryBitOfSmallFloats) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    constexpr int64_t n = 1 << 16;
    Tensor t = Tensor::empty(dtype, std::vector<int64_t>{n});
    auto* bits = t.mutable_data_as<uint16_t>();
    for (int i = 0; i < n; ++i) bits[i] = static_cast<uint16_t>(i);
    Module m = parse(stage_text("%c = constant() {value = " + to_string(Literal(t)) + "}"));
    Tensor again =
        ops::attributes_as<ops::Constant::Attr>(m.program().stages[0].nodes[0].attributes).value;
    for (int i = 0; i < n; ++i) {
      // A float on the way makes NaNs quiet on some machines; their text has all bits.
      ASSERT_EQ(again.data_as<uint16_t>()[i], i);
    }
  }
  uint32_t state = 1;
  Tensor t = Tensor::empty(DType::f32, std::vector<int64_t>{4096});
  auto* bits = t.mutable_data_as<uint32_t>();
  for (int i = 0; i < 4096; ++i) bits[i] = state = state * 1664525u + 1013904223u;
  for (int i = 0; i < 64; ++i) bits[i] |= 0x7f800000u;
  bits[7] = 0x7f800001u;
  Module m = parse(stage_text("%c = constant() {value = " + to_string(Literal(t)) + "}"));
  Tensor again =
      ops::attributes_as<ops::Constant::Attr>(m.program().stages[0].nodes[0].attributes).value;
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(again.data_as<uint32_t>()[i], bits[i]) << i;
}

TEST(Printer, BreaksLongLists) {
  std::string text = "graph g {\n  stage 0 (";
  for (int i = 0; i < 50; ++i) text += fmt::format("{}%input_{}: f64[N, {}]", i ? ", " : "", i, i);
  text += ") {\n    return ";
  for (int i = 0; i < 50; ++i) text += fmt::format("{}result_{} = %input_{}", i ? ", " : "", i, i);
  text += "\n  }\n}\n";
  std::string printed = print(parse(text).program());
  for (size_t at = 0; at < printed.size();) {
    size_t end = printed.find('\n', at);
    EXPECT_LE(end - at, 100u);
    at = end + 1;
  }
  expect_round_trip(parse(text).program());
}

TEST(Printer, PrintsGraphsThatAreBroken) {
  Graph g;
  EXPECT_EQ(print(g), "graph \"\" {\n}\n");
  g.stages.emplace_back();
  Node node;
  node.operands.push_back(static_cast<ValueId>(7));
  node.results.push_back(static_cast<ValueId>(9));
  g.stages[0].nodes.push_back(node);
  g.stages[0].results.push_back({"r", static_cast<ValueId>(3)});
  EXPECT_NE(print(g).find("%\"no value 9\" = no operator(%\"no value 7\")"), std::string::npos);
}

TEST(Printer, PrintsOneNode) {
  Graph g = parse(program).program();
  NameTable names(g);
  EXPECT_EQ(print(g.stages[0].nodes[2], g, names), "%y = sum(%h) {dim = [0]}");
}

}  // namespace
}  // namespace gradus::ir
