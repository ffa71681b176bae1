#include <bit>
#include <cmath>
#include <limits>

#include "gradus/text.h"
#include "ops/structural.h"
#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

const Type& type_in(const Graph& g, std::string_view name) {
  for (const Value& v : g.values)
    if (v.name == name) return v.type;
  throw Error("no value {}", name);
}

Tensor constant(const std::string& literal) {
  Module m = parse(stage_text("%c = constant() {value = " + literal + "}"));
  return ops::attributes_as<ops::Constant::Attr>(m.program().stages[0].nodes[0].attributes).value;
}

TEST(Parser, ReadsTheWholeGrammar) {
  Module m = parse(R"(gradus 1   # the version
graph f {
  stage 0 (%x: f64[N, 2*M + 1], %m: f32[M], %u: i8[]@cpu, %"a b": bool[?]) {
    %h: f64[N, ?] = mul(%x, -2.5)
    %k = add(%h, N*(M - 1) // 2)
    %v, %i = max_dim(%k) {dim = -1, keepdim = true}
    return %v, again = %v, "odd name" = %i, zero = none, %"a b"
  }
  stage 1 (
  ) { return }
})");
  const Graph& g = m.program();
  EXPECT_EQ(g.name, "f");
  ASSERT_EQ(g.stages.size(), 2u);
  EXPECT_EQ(to_string(type_in(g, "x")), "f64[N, 2*M + 1]");
  EXPECT_EQ(to_string(type_in(g, "a b")), "bool[s0]");
  EXPECT_EQ(to_string(type_in(g, "i")), "i64[N, 1]");
  const Stage& s = g.stages[0];
  ASSERT_EQ(s.results.size(), 5u);
  EXPECT_EQ(s.results[0].name, "v");
  EXPECT_EQ(s.results[1].name, "again");
  EXPECT_EQ(s.results[2].name, "odd name");
  EXPECT_EQ(s.results[3].value, no_value);
  EXPECT_EQ(std::get<Number>(s.nodes[0].operands[1]), Number::of(-2.5));
  EXPECT_EQ(std::get<Dim>(s.nodes[1].operands[1]).to_string(), "(M*N - N) // 2");
  EXPECT_EQ(s.nodes[0].where, (SourceLocation{4, 21}));
}

TEST(Parser, ReadsNumbersByCategory) {
  Module m = parse(stage_text(
      "%a = add(%x, 2) %b = add(%x, 2.0) %c = add(%x, true) %d = add(%x, -inf) %e = add(%x, N) "
      "%f = add(%x, 3*4 - 2) %g = add(%x, -9223372036854775808) %h = add(%x, nan)"));
  const auto& nodes = m.program().stages[0].nodes;
  auto number = [&](size_t i) { return std::get<Number>(nodes[i].operands[1]); };
  EXPECT_EQ(number(0), Number::of(int64_t{2}));
  EXPECT_EQ(number(1), Number::of(2.0));
  EXPECT_EQ(number(2), Number::of(true));
  EXPECT_EQ(number(3), Number::of(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(std::get<Dim>(nodes[4].operands[1]), Dim::symbol("N"));
  EXPECT_EQ(number(5), Number::of(int64_t{10}));
  EXPECT_EQ(number(6), Number::of(INT64_MIN));
  EXPECT_TRUE(std::isnan(number(7).floating));
}

TEST(Parser, ReadsDimensionExpressions) {
  auto read = [](const std::string& dim) {
    Module m =
        parse("graph g { stage 0 (%a: f32[N], %b: f32[M], %x: f32[" + dim + "]) { return } }");
    return type_in(m.program(), "x").dims[0];
  };
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  EXPECT_EQ(read("M + N"), n + m);
  EXPECT_EQ(read("2*N - M*N"), 2 * n - m * n);
  EXPECT_EQ(read("N // 2 // 3"), floor_div(floor_div(n, 2), 3));
  EXPECT_EQ(read("7 // 2*2"), Dim(6));
  EXPECT_EQ(read("-7 // 2 + 10"), Dim(6));
  EXPECT_EQ(read("-N // 2 + N"), floor_div(Dim(-1) * n, 2) + n);
  EXPECT_EQ(read("max(N, M, 3)"), max(max(n, m), 3));
  EXPECT_EQ(read("min(N, (M))"), min(n, m));
  EXPECT_EQ(read("- -N"), n);
}

// A quotient with a sign must not read back as a quotient of a negative.
TEST(Parser, ReadsDimensionsAsTheyPrint) {
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  for (const Dim& d :
       {Dim(-1) * floor_div(n, 2), n - floor_div(n, 2), Dim(-3) * floor_div(n, 2) * m,
        floor_div(n * m, 3) * m, max(floor_div(n, 2), Dim(-1) * m), min(n, m) * max(n, m),
        Dim(INT64_MIN) * n + m, m + Dim(INT64_MIN) * n * n, floor_div(Dim(-5), n) - 1}) {
    Module r = parse("graph g { stage 0 (%x: f64[N], %m: f64[M]) { %y = add(%x, " + d.to_string() +
                     ") return } }");
    const Operand& o = r.program().stages[0].nodes[0].operands[1];
    EXPECT_EQ(std::get<Dim>(o), d) << d.to_string();
  }
}

TEST(Parser, NamesUnknownSizesAfresh) {
  Module m = parse("graph g { stage 0 (%s2: f32[s0, ?, ?], %b: f32[?]) { return } }");
  EXPECT_EQ(to_string(type_in(m.program(), "s2")), "f32[s0, s1, s3]");
  EXPECT_EQ(to_string(type_in(m.program(), "b")), "f32[s4]");
}

TEST(Parser, UndefinedTakesTheTypeWrittenOnIt) {
  Module m = parse(stage_text("%u: i64[N, 2] = undefined() %v = undefined() {dtype = f64}"));
  EXPECT_EQ(to_string(type_in(m.program(), "u")), "i64[N, 2]");
  EXPECT_EQ(to_string(type_in(m.program(), "v")), "f64[]");
  expect_round_trip(m.program());
  expect_error(stage_text("%u: f64[?] = undefined()"), "without '?'");
  expect_error(stage_text("%u: f64[2] = undefined() {dtype = f64}"),
               "'%u' is declared as f64[2], and its operator gives f64[];");
}

TEST(Parser, TensorLiteralsKeepEveryBit) {
  Tensor d = constant("f64[2, 3] [[0.1, -0.0, 1e-320], [inf, -inf, nan(0x7ff0000000000001)]]");
  auto bits = [](double v) { return std::bit_cast<uint64_t>(v); };
  EXPECT_EQ(bits(d.item(0)), bits(0.1));
  EXPECT_EQ(bits(d.item(1)), bits(-0.0));
  EXPECT_EQ(bits(d.item(2)), bits(1e-320));
  EXPECT_EQ(bits(d.data_as<double>()[5]), 0x7ff0000000000001u);
  // Halfway between two floats if rounded to double first.
  Tensor f = constant("f32[1] [1.00000005960464477539062500000000001]");
  EXPECT_EQ(f.data_as<float>()[0], std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(constant("f16[2] [65504, -nan]").data_as<uint16_t>()[1], 0xfe00);
  EXPECT_EQ(constant("bf16[] 3").item(), 3.0);
  EXPECT_EQ(constant("i64[2] [-9223372036854775808, 9223372036854775807]").to_int64s(),
            (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(constant("bool[2] [true, false]").item(0), 1.0);
  EXPECT_EQ(describe(constant("u8[2, 0] [[], []]")), "u8[2, 0]");
  EXPECT_EQ(describe(constant("u8[0, 1000000000000] []")), "u8[0, 1000000000000]");
}

TEST(Parser, TensorLiteralsAreHeldAgainstTheirType) {
  auto expect = [](const std::string& literal, const std::string& part) {
    expect_error(stage_text("%c = constant() {value = " + literal + "}"), part);
  };
  expect("i8[1] [300]", "300 does not fit i8, which holds -128 to 127");
  expect("u8[1] [-1]", "-1 does not fit u8");
  expect("i32[1] [2147483648]", "does not fit i32");
  expect("i16[1] [32768]", "32768 does not fit i16, which holds -32768 to 32767");
  expect("u16[1] [-1]", "-1 does not fit u16, which holds 0 to 65535");
  expect("u32[1] [4294967296]", "4294967296 does not fit u32");
  expect("u64[1] [-1]", "-1 does not fit u64, which holds 0 to 18446744073709551615");
  expect("u64[1] [18446744073709551616]", "does not fit 64 bits");
  expect("i64[1] [9223372036854775808]", "does not fit 64 bits");
  expect("i64[1] [1.5]", "expected an integer for a tensor of i64, found '1.5'");
  expect("f16[1] [65520]", "65520 does not fit f16");
  expect("f32[1] [1e39]", "does not fit f32");
  expect("f64[1] [1e999]", "does not fit f64");
  expect("bool[1] [1]", "expected true or false");
  expect("f32[2] [1]", "expected 2 elements in this list, as the tensor's type says, found 1");
  expect("f32[1] [1, 2]", "more than 1 elements");
  expect("f32[2] [[1], [2]]", "expected a number, found '['");
  expect("f32[2, 1] [1, 2]", "expected '[' and 1 elements");
  expect("f32[] [1]", "expected a number");
  expect("f32[N] [1]", "plain numbers as sizes");
  expect("f32[?] [1]", "plain numbers as sizes");
  expect("f32[1] [nan(0x3f800000)]", "not the bits of a NaN of f32");
  expect("f32[1] [nan(0x17fc00001)]", "not the bits of a NaN of f32");
}

// Nothing here may take memory in proportion to what the text claims.
TEST(Parser, BelievesNoSizesOfLiterals) {
  auto expect = [](const std::string& literal, const std::string& part) {
    expect_error(stage_text("%c = constant() {value = " + literal + "}"), part);
  };
  expect("f64[1000000000000] [1]", "expected 1000000000000 elements");
  expect("f64[4611686018427387904, 4] [1]", "more elements than can be counted");
  expect("f64[9223372036854775807] [1]", "more elements than can be counted");
  std::string dims = "1", open, close;
  for (int i = 0; i < 70; ++i) dims += ", 1", open += "[", close += "]";
  expect("f64[" + dims + "] " + open + "1" + close, "at most 64 dimensions");
}

// SPEC P8
TEST(Parser, FindsCalledGraphsWhereverTheyStand) {
  Module m = parse(R"(
graph helper { stage 0 (%a: f64[K]) { %b = square(%a) return %b } }
graph top {
  stage 0 (%x: f64[N]) { %y = call(%x) {graph = "later"}
      %z = call(%y) {graph = "helper"} return %z }
}
graph later { stage 0 (%a: f64[K]) { %b = call(%a) {graph = "helper"} return %b } }
)");
  EXPECT_EQ(m.main, 1u);
  ASSERT_EQ(m.graphs.size(), 3u);
  EXPECT_EQ(m.program().name, "top");
  const auto& call = ops::attributes_as<ops::Call::Attr>(m.program().stages[0].nodes[0].attributes);
  EXPECT_EQ(call.graph.graph, m.graphs[2]);
  EXPECT_EQ(to_string(type_in(m.program(), "z")), "f64[N]");
  for (const auto& g : m.graphs) verify(*g);
  EXPECT_EQ(print(parse(print(m))), print(m));
  // The program's text brings the graphs that it calls.
  expect_round_trip(m.program());
}

// SPEC P8
TEST(Parser, RefusesDeepCalls) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += fmt::format(
        "graph g{} {{ stage 0 (%x: f64[]) {{ %y = call(%x) {{graph = \"g{}\"}} return %y }} }}\n",
        i, i + 1);
  text += "graph g200 { stage 0 (%x: f64[]) { return %x } }";
  expect_error(text, "calls are nested more than 100 deep [V14]");
  // The same chain, callees first.
  std::string upwards = "graph g0 { stage 0 (%x: f64[]) { return %x } }";
  for (int i = 1; i <= 200; ++i)
    upwards += fmt::format(
        "graph g{} {{ stage 0 (%x: f64[]) {{ %y = call(%x) {{graph = \"g{}\"}} return %y }} }}\n",
        i, i - 1);
  expect_error(upwards, "calls are nested more than 100 deep [V14]");
}

// SPEC P10
TEST(Parser, RefusesNewerVersions) {
  EXPECT_EQ(parse("gradus 1 " + stage_text("")).version, 1);
  EXPECT_EQ(parse(stage_text("")).version, 1);
  expect_error("gradus 2 " + stage_text(""), "t.ir:1:8: error: this text is of version 2");
  expect_error("gradus 99999999999999999999 " + stage_text(""), "of at most");
  expect_error("gradus x", "expected the language's version, found 'x'");
  expect_error("gradus 0 graph", "counted from 1");
}

// SPEC P4
TEST(Parser, ShowsTheLineWithACaret) {
  EXPECT_EQ(error_of("graph g {\n  stage 0 (%x f64[N]) {\n    return\n  }\n}\n"),
            "t.ir:2:15: error: expected ':' and a type after the input '%x', found 'f64'\n"
            "    stage 0 (%x f64[N]) {\n"
            "                ^");
  EXPECT_EQ(
      error_of("graph g {\r\n\tstage 0 () {\r\n\t\treturn\r\n\t}\r\n"),
      "t.ir:5:1: error: expected 'stage' or '}' at the end of the graph, found the end of the "
      "text");
}

// SPEC P4
TEST(Parser, SaysWhatWasExpected) {
  expect_error("", "expected 'graph'; a program has at least one, found the end of the text");
  expect_error("graph", "expected the graph's name");
  expect_error("graph g {", "expected 'stage'");
  expect_error("graph \"\" { }", "is empty");
  expect_error("graph g { stage 1 () { return } }", "expected stage 0, found stage 1");
  expect_error("graph g { stage 0 { return } }", "expected '(' and inputs");
  auto looping = [](const std::string& body) {
    return "graph g { stage 0 (%c: f64[]) { %a = scan(%c) {body = " + body +
           ", carries = 1, length = 2} return %a } }";
  };
  expect_error(looping("graph step { return %c }"),
               "expected '(' and inputs after the graph's name");
  expect_error(looping("graph (%d: f64[]) { %e = neg(%d) }"), "expected a node or 'return'");
  expect_error(looping("grph (%d: f64[]) { return %d }"),
               "t.ir:1:55: error: expected a literal or a graph (graph (…) {…}), found 'grph'");
  expect_error(looping("graph (%d: f64[]) { return %d"), "expected a value (%name)");
  expect_error(looping("graph (%d: f32[]) { return %d }"),
               "input 'd' of graph 'body' is f32[], f64[] is given");
  expect_error(looping("7, carries = graph (%d: f64[]) { return %d }"), "'body' must be");
  std::string deep = "graph (%d: f64[]) { return %d }";
  for (int i = 0; i < 120; ++i)
    deep = "graph (%d: f64[]) { %e = scan(%d) {body = " + deep +
           ", carries = 1, length = 1} return %e }";
  expect_error(looping(deep), "calls are nested more than 100 deep");
  expect_error("graph g { stage 0 (x) { return } }", "expected a value (%name) for an input");
  expect_error("graph g { stage 0 (%x: f99[N]) { return } }", "expected a type, such as f32[N, 3]");
  expect_error("graph g { stage 0 (%x: f32) { return } }", "expected '[' and sizes after 'f32'");
  expect_error("graph g { stage 0 (%x: f32[N M]) { return } }", "expected ',' or ']' after a size");
  expect_error("graph g { stage 0 (%x: f32[1.5]) { return } }", "'1.5' is not an integer");
  expect_error("graph g { stage 0 (%x: f32[inf]) { return } }", "reserved word");
  expect_error("graph g { stage 0 (%x: f32[max]) { return } }", "expected '(' after 'max'");
  expect_error("graph g { stage 0 (%x: f32[2]@tpu) { return } }", "expected a device");
  expect_error("graph g { stage 0 () { } }", "expected a node or 'return', which ends every stage");
  expect_error("graph g { stage 0 () { return } } graph g { stage 0 () { return } }",
               "a graph 'g' is defined already, in line 1; give one another name");
  expect_error("graph g { stage 0 () { return } } hello", "'graph', 'case' or the end of the text");
  expect_error(stage_text("%y tanh(%x)"), "expected '=', ':' or ',' after a result's name");
  expect_error(stage_text("%y = %x"),
               "expected the name of an operator, as in %y = mul(%a, %b), found '%x'");
  expect_error(stage_text("%y = tanh %x"), "expected '(' after 'tanh'");
  expect_error(stage_text("%y = add(%x %x)"), "expected ',' or ')' after an operand");
  expect_error(stage_text("%y = add(%x, \"a\")"), "expected an operand");
  expect_error(stage_text("%y = sum(%x) {dim 0}"), "expected '=' after the attribute's name");
  expect_error(stage_text("%y = sum(%x) {dim = }"), "expected a literal");
  expect_error(stage_text("%y = sum(%x) {dim = [0 1]}"), "expected ',' or ']' after an item");
  expect_error(stage_text("%y = sum(%x) {dim = 0 keepdim = true}"), "expected ',' or '}' after an");
  expect_error(stage_text("", "return x"), "expected '=' after the result's name");
  expect_error(stage_text("", "return %x %x"), "expected ',' or '}' after a result");
}

TEST(Parser, SaysWhatMayHaveBeenMeant) {
  expect_error(stage_text("%y = tahn(%x)"), "there is no operator 'tahn'; did you mean 'tan");
  expect_error(stage_text("%hidden = tanh(%x) %y = tanh(%hiden)"), "did you mean '%hidden'?");
  expect_error(stage_text("%y = add(%x, M)"), "did you mean 'N'?");
  expect_error(stage_text("%y = tanh(%z)\n%z = tanh(%x)"), "is defined only later, in line 4");
  expect_error(stage_text("%y = add(%x, x)"), "expected an operand, found 'x'; a value is written");
  expect_error(stage_text("%y = sum(mul(%x, %x))"), "write the call as a node of its own");
  expect_error(stage_text("%y = sum(%x, dim = 0)"), "sum(…) {dim = …}");
  expect_error(stage_text("y = tanh(%x)"), "found 'y'; a value is written '%y'");
  expect_error(stage_text("%y = multiply(%x, %x)"), "`gradus ops` lists the operators");
  expect_error(
      "graph fine { stage 0 () { return } } graph g { stage 0 (%x: f32[]) { %y = call(%x) "
      "{graph = \"fin\"} return } }",
      "did you mean 'fine'?");
}

TEST(Parser, PutsAttributesErrorsAtTheAttribute) {
  expect_error(stage_text("%y = sum(%x) {dim = 0,\n  keepdims = true}"),
               "t.ir:4:3: error: sum: there is no attribute 'keepdims'");
  expect_error(stage_text("%y = sum(%x) {dim = 0, keepdim = 1}"), "t.ir:3:24: error: sum: ");
  expect_error(stage_text("%y = sum(%x) {dim = 0, dim = 0}"), "'dim' is given twice");
  expect_error(stage_text("  %c = constant()"), "t.ir:3:8: error: constant: attribute 'value' is");
}

TEST(Parser, RefusesWhatDoesNotFit) {
  expect_error("graph g { stage 0 (%x: f32[9223372036854775808]) { return } }",
               "does not fit 64 bits");
  expect_error("graph g { stage 0 (%x: f32[9223372036854775807 + 1]) { return } }",
               "a dimension does not fit 64 bits");
  expect_error("graph g { stage 0 (%x: f32[3 // 0]) { return } }", "divided by zero");
  expect_error("graph g { stage 0 (%x: f32[2]@cuda:65536) { return } }", "of at most 65535");
  expect_error(stage_text("%y = mul(%x, .5)"), "a number begins with a digit: 0.5");
  expect_error(stage_text("%y = mul(%x, 1e400)"), "1e400 does not fit f64");
  expect_error(stage_text("%y = mul(%x, 99999999999999999999)"), "does not fit 64 bits");
}

TEST(Parser, EndsRecursionBeforeTheStack) {
  std::string open(100'000, '['), round(100'000, '('), minus(100'000, '-');
  expect_error(stage_text("%y = sum(%x) {dim = " + open), "nested more than 200 deep");
  expect_error(stage_text("%y = add(%x, " + round), "nested more than 200 deep");
  expect_error(stage_text("%y = add(%x, " + minus), "nested more than 200 deep");
  std::string maxima;
  for (int i = 0; i < 50'000; ++i) maxima += "max(";
  expect_error(stage_text("%y = add(%x, " + maxima), "nested more than 200 deep");
  std::string fine(90, '('), closed(90, ')');
  parse(stage_text("%y = add(%x, " + fine + "N" + closed + ")"));
}

TEST(Parser, StripsOperandsThatAreLeftOut) {
  Module m = parse(
      "graph g { stage 0 (%x: f64[N, K], %w: f64[M, K]) { %y = linear(%x, %w, none) return %y } }");
  EXPECT_EQ(m.program().stages[0].nodes[0].operands.size(), 2u);
}

TEST(Parser, ReadsFiles) {
  Fixture f = parse_file(GRADUS_SOURCE_DIR "/examples/argon.ir");
  EXPECT_EQ(f.module.program().name, "argon");
  EXPECT_THROW(parse_file(GRADUS_SOURCE_DIR "/examples/no such file.ir"), Error);
  EXPECT_THROW(parse_file(GRADUS_SOURCE_DIR "/examples"), Error);
}

}  // namespace
}  // namespace gradus::ir
