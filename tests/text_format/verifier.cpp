#include <functional>

#include "gradus/registry.h"
#include "gradus/text.h"
#include "ops/structural.h"
#include "tests/functions.h"
#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

constexpr const char* program = R"(graph f {
  stage 0 (%a: f64[K]) {
    %b = square(%a)
    return %b
  }
}
graph g {
  stage 0 (%x: f64[N], %w: f64[M]) {
    %h = tanh(%x)
    %s = full() {shape = [N], value = 2.0, dtype = f64}
    %t = mul(%s, N)
    %c = call(%t) {graph = "f"}
    return %h, %c
  }
  stage 1 (%ct: f64[N]) {
    %d = add(%ct, %h)
    return %d, zero = none
  }
}
)";

ValueId id_of(const Graph& g, std::string_view name) {
  for (size_t v = 0; v < g.values.size(); ++v)
    if (g.values[v].name == name) return static_cast<ValueId>(v);
  return no_value;
}

// The message when `damage` has been done to a valid graph.
std::string broken(const std::function<void(Graph&)>& damage) {
  Module m = parse(program, "p.ir");
  Graph g = m.program();
  verify(g);
  damage(g);
  try {
    verify(g);
  } catch (const Error& e) {
    return e.message();
  }
  ADD_FAILURE() << "the verifier let it pass";
  return "";
}

void expect_broken(const std::string& part, const std::string& invariant,
                   const std::function<void(Graph&)>& damage) {
  std::string message = broken(damage);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(message.find("[" + invariant + "]"), std::string::npos) << message;
}

Node& node(Graph& g, size_t i, size_t stage = 0) { return g.stages[stage].nodes[i]; }

// SPEC P5
TEST(Verifier, V1Stages) {
  expect_broken("graph 'g': there is no stage", "V1", [](Graph& g) { g.stages.clear(); });
}

// SPEC P5
TEST(Verifier, V2Table) {
  auto far = static_cast<ValueId>(1000);
  expect_broken("operand 0 of 'tanh' is value number 1000", "V2",
                [&](Graph& g) { node(g, 0).operands[0] = far; });
  expect_broken("a result of 'tanh' is value number 1000", "V2",
                [&](Graph& g) { node(g, 0).results[0] = far; });
  expect_broken("input 1 is value number 1000", "V2",
                [&](Graph& g) { g.stages[0].inputs[1] = far; });
  expect_broken("result 'h' is value number 1000", "V2",
                [&](Graph& g) { g.stages[0].results[0].value = far; });
  expect_broken("is value number 4294967295", "V2",
                [&](Graph& g) { node(g, 0).results[0] = no_value; });
  expect_broken("is value number 0, and there are 0", "V2", [&](Graph& g) { g.values.clear(); });
}

// SPEC P1, P5
TEST(Verifier, V3OneDefinition) {
  expect_broken("stage 0: a result of 'full', '%h', is defined already", "V3",
                [](Graph& g) { node(g, 1).results[0] = node(g, 0).results[0]; });
  expect_broken("stage 0: input 1, '%x', is defined already", "V3",
                [](Graph& g) { g.stages[0].inputs[1] = g.stages[0].inputs[0]; });
}

// SPEC P1, P5
TEST(Verifier, V4DefinitionBeforeUse) {
  expect_broken("p.ir:9:10: error: stage 0: operand 0 of 'tanh', '%t', is not defined before", "V4",
                [](Graph& g) { node(g, 0).operands[0] = id_of(g, "t"); });
  expect_broken("operand 0 of 'tanh', '%d', is not defined", "V4",
                [](Graph& g) { node(g, 0).operands[0] = id_of(g, "d"); });
  expect_broken("result 'h', '%d', is not defined", "V4",
                [](Graph& g) { g.stages[0].results[0].value = id_of(g, "d"); });
  expect_broken("'%h', is not defined", "V4",
                [](Graph& g) { g.stages[0].nodes.erase(g.stages[0].nodes.begin()); });
}

// SPEC P5
TEST(Verifier, V5StageOfAValue) {
  expect_broken("stage 0: a result of 'tanh', '%h', is said to be of stage 1", "V5",
                [](Graph& g) { g[id_of(g, "h")].stage = 1; });
  expect_broken("stage 1: input 0, '%ct', is said to be of stage 0", "V5",
                [](Graph& g) { g[id_of(g, "ct")].stage = 0; });
}

// SPEC P5
TEST(Verifier, V6OperatorAndAttributes) {
  expect_broken("node 0 has no operator that is known", "V6",
                [](Graph& g) { node(g, 0).op = nullptr; });
  static const Operator foreign{};
  expect_broken("node 0 has no operator that is known", "V6",
                [](Graph& g) { node(g, 0).op = &foreign; });
  expect_broken("node 0, 'tanh', has no attributes", "V6",
                [](Graph& g) { node(g, 0).attributes = nullptr; });
}

// SPEC P5
TEST(Verifier, V7Operands) {
  expect_broken("'tanh' lacks its operand 'x'", "V7",
                [](Graph& g) { node(g, 0).operands.clear(); });
  expect_broken("'tanh' lacks its operand 'x'", "V7",
                [](Graph& g) { node(g, 0).operands[0] = std::monostate(); });
  expect_broken("'tanh' takes 1 operand, 2 are given", "V7",
                [](Graph& g) { node(g, 0).operands.push_back(id_of(g, "x")); });
}

// SPEC P5
TEST(Verifier, V8Handles) {
  expect_broken("input '%w' would be a handle", "V8",
                [](Graph& g) { g[id_of(g, "w")].type = Type::handle(); });
  Module m = parse(program);
  Graph g = m.program();
  // A value of a type that its node does not give, so that the handle comes to its use.
  g.stages[0].nodes.resize(1);
  g.stages[0].results = {{"h", id_of(g, "h")}};
  g.stages.resize(1);
  g[id_of(g, "h")].type = Type::handle();
  EXPECT_THROW(verify(g), Error);
  try {
    verify_but_types(g);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("result 'h', '%h', is a handle"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("[V8]"), std::string::npos);
  }
}

// SPEC P5
TEST(Verifier, V9Types) {
  expect_broken("'%h' is said to be f32[N], but 'tanh' gives f64[N]", "V9",
                [](Graph& g) { g[id_of(g, "h")].type.dtype = DType::f32; });
  expect_broken("'%h' is said to be f64[M]", "V9",
                [](Graph& g) { g[id_of(g, "h")].type.dims[0] = Dim::symbol("M"); });
  expect_broken("'tanh' gives 1 results, the node has 0", "V9", [](Graph& g) {
    node(g, 0).results.clear();
    g.stages[0].results.clear();
    g.stages.resize(1);
  });
  expect_broken("operands are numbers", "V9",
                [](Graph& g) { node(g, 2).operands[0] = Number::of(1.0); });
}

// SPEC P2, P5
TEST(Verifier, V10Names) {
  expect_broken("input 1 has no name", "V10", [](Graph& g) { g[id_of(g, "w")].name.clear(); });
  expect_broken("stage 1: input '%x' has the name of another input", "V10",
                [](Graph& g) { g[id_of(g, "ct")].name = "x"; });
  expect_broken("stage 0: two results have the name 'h'", "V10",
                [](Graph& g) { g.stages[0].results[1].name = "h"; });
  expect_broken("stage 1: two results have the name 'd'", "V10",
                [](Graph& g) { g.stages[1].results[1].name = "d"; });
  expect_broken("stage 0: result 1 has no name", "V10",
                [](Graph& g) { g.stages[0].results[1].name.clear(); });
}

// SPEC P5
TEST(Verifier, V11Sizes) {
  auto with = [](Dim d) { return [d](Graph& g) { g[id_of(g, "w")].type.dims[0] = d; }; };
  expect_broken("input '%w' has a negative size, -1", "V11", with(-1));
  expect_broken("has a size named 'batch size'", "V11", with(Dim::symbol("batch size")));
  expect_broken("has a size named 'f32'", "V11", with(Dim::symbol("f32")));
  expect_broken("has a size named ''", "V11", with(Dim::symbol("")));
  expect_broken("more elements than can be counted", "V11", with(INT64_MAX));
}

// SPEC P5
TEST(Verifier, V12SettledSizes) {
  expect_broken(
      "stage 0: no input determines the size 'Q', which is needed for the size P*Q", "V12",
      [](Graph& g) { g[id_of(g, "w")].type.dims[0] = Dim::symbol("P") * Dim::symbol("Q"); });
  expect_broken("determines the size 'Z' in operand 1 of 'mul'", "V12",
                [](Graph& g) { node(g, 2).operands[1] = Dim::symbol("Z"); });
  expect_broken("determines the size 'Z' in attribute 'shape' of 'full'", "V12", [](Graph& g) {
    LiteralList list = node(g, 1).op->write(node(g, 1).attributes);
    for (NamedLiteral& a : list)
      if (a.name == "shape") a.value = std::vector<Literal>{Dim::symbol("Z")};
    node(g, 1).attributes = node(g, 1).op->read(list);
  });
}

TEST(Verifier, SolvesSizesOfInputs) {
  auto inputs = [](const std::string& types) {
    return "graph g { stage 0 (" + types + ") { return } }";
  };
  for (const char* fine : {"%a: f64[2*N + 1]",
                           "%a: f64[A + B + C], %b: f64[B + C], %c: "
                           "f64[C - 1]",
                           "%a: f64[max(N, 3)], %b: f64[N]", "%a: f64[N // 2 + M], %b: f64[N]"})
    verify(parse(inputs(fine)).program());
  expect_error(inputs("%a: f64[N + M], %b: f64[N + M]"), "[V12]");
  expect_error(inputs("%a: f64[N*N]"), "[V12]");
  expect_error(inputs("%a: f64[max(N, 3)]"), "[V12]");
  // A later stage's input comes too late for an earlier stage, not for its own.
  std::string two =
      "graph g { stage 0 (%x: f64[N]) { SLOT return } stage 1 (%m: f64[M]) { %t = "
      "full() {shape = [M], value = 1.0} return } }";
  parse(std::string(two).replace(two.find("SLOT"), 4, ""));
  expect_error(two.replace(two.find("SLOT"), 4, "%t0 = full() {shape = [M], value = 1.0}"),
               "[V12]");
}

// SPEC P5
TEST(Verifier, V13Devices) {
  expect_broken("input '%w' lies on other:1, which no program can name", "V13", [](Graph& g) {
    g[id_of(g, "w")].type.device = {DeviceKind::other, 1};
  });
}

// SPEC P5
TEST(Verifier, V14Calls) {
  auto call = [](Graph& g, const std::function<void(ops::Call::Attr&)>& change) {
    auto a = ops::attributes_as<ops::Call::Attr>(node(g, 3).attributes);
    change(a);
    node(g, 3).attributes = ops::make_attributes(std::move(a));
  };
  expect_broken("the graph 'f' of a call is not known", "V14",
                [&](Graph& g) { call(g, [](auto& a) { a.graph.graph = nullptr; }); });
  expect_broken("the graph 'b' of a call is not known", "V14", [&](Graph& g) {
    call(g, [](auto& a) { a.vjp = ops::GraphName{"b", nullptr}; });
  });
  expect_broken("has 0 stages", "V14", [&](Graph& g) {
    call(g, [](auto& a) { a.graph.graph = std::make_shared<Graph>(); });
  });
  expect_broken("has an input or result that is not in its table", "V14", [&](Graph& g) {
    call(g, [](auto& a) {
      auto copy = std::make_shared<Graph>(*a.graph.graph);
      copy->stages[0].results[0].value = static_cast<ValueId>(99);
      a.graph.graph = copy;
    });
  });
  // What is called is held to all invariants too.
  expect_broken("'%b' is said to be f32[K]", "V9", [&](Graph& g) {
    call(g, [](auto& a) {
      auto copy = std::make_shared<Graph>(*a.graph.graph);
      copy->values[1].type.dtype = DType::f32;
      a.graph.graph = copy;
      // The caller's type follows.
    });
    g[id_of(g, "c")].type.dtype = DType::f32;
  });
  // A cycle; broken up again, so that it can be freed.
  auto self = std::make_shared<Graph>(parse(program).program());
  self->stages.resize(1);
  call(*self, [&](auto& a) { a.graph.graph = self; });
  self->stages[0].results = {{"c", id_of(*self, "h")}};
  self->stages[0].inputs.pop_back();
  try {
    verify(*self);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("graph 'g' calls itself [V14]"), std::string::npos) << e.message();
  }
  self->stages.clear();
}

class Damage : public testing::TestWithParam<const char*> {};

// SPEC P5
TEST_P(Damage, IsSurvived) {
  test::register_test_functions();
  Module m = parse(GetParam(), "p.ir");
  uint64_t state = 7;
  auto random = [&](size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % n);
  };
  auto some_id = [&](const Graph& g) {
    return random(8) ? static_cast<ValueId>(random(g.values.size() + 1)) : no_value;
  };
  int passed = 0;
  for (int round = 0; round < 20'000; ++round) {
    Graph g = m.program();
    for (size_t damages = 1 + random(3); damages--;) {
      Stage& stage = g.stages[random(g.stages.size())];
      Node* n = stage.nodes.empty() ? nullptr : &stage.nodes[random(stage.nodes.size())];
      switch (random(12)) {
        case 0:
          if (n) n->operands.push_back(some_id(g));
          break;
        case 1:
          if (n && !n->operands.empty()) n->operands[random(n->operands.size())] = some_id(g);
          break;
        case 2:
          if (n) n->results.push_back(some_id(g));
          break;
        case 3:
          if (n && !n->results.empty()) n->results[random(n->results.size())] = some_id(g);
          break;
        case 4:
          stage.inputs.push_back(some_id(g));
          break;
        case 5:
          stage.results.push_back({random(2) ? "r" : "", some_id(g)});
          break;
        case 6:
          if (!g.values.empty())
            g.values[random(g.values.size())].stage = static_cast<uint32_t>(random(4));
          break;
        case 7:
          if (!g.values.empty())
            g.values[random(g.values.size())].type.dims.push_back(static_cast<int64_t>(random(3)) -
                                                                  1);
          break;
        case 8:
          g.values.resize(random(g.values.size() + 1));
          break;
        case 9:
          if (n) n->operands.push_back(Number::of(2.0));
          break;
        case 10:
          if (n && !n->operands.empty()) n->operands[0] = Dim::symbol("Q");
          break;
        default:
          if (!g.values.empty()) g.values[random(g.values.size())].type.kind = TypeKind::handle;
      }
    }
    print(g);
    try {
      verify(g);
      ++passed;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(passed, 5'000);  // it does find damage
}

constexpr const char* program_with_handles = R"(graph f {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %s, %k0 = cpp_op(%a, %w) {name = "t.wave"}
    return %s
  }
  stage 1 (%c: f64[N]) {
    %da, %dw, %k1 = eval(%c, %k0)
    return %da, %dw
  }
  stage 2 (%t: f64[N]) {
    %gc, %ga, %gw = eval(%t, none, %k1)
    return %gc, %ga, %gw
  }
})";

INSTANTIATE_TEST_SUITE_P(Verifier, Damage, testing::Values(program, program_with_handles),
                         [](const auto& p) { return p.index ? "handles" : "operators"; });

// An attribute that takes a text takes a graph's name, and nothing holds the graph then. One that
// is read into the same memory is looked at anew.
TEST(Verifier, GraphsThatNothingHolds) {
  std::string text =
      "graph c { stage 0 (%x: f32[3]) { %s = sum(%x) %y = lt(%s, 3) return %y } }\n"
      "graph b { stage 0 (%x: f32[3]) { %y = mul(%x, 2) return %y } }\n"
      "graph g { stage 0 (%x0: f32[3]) {\n";
  for (int i = 0; i < 30; ++i)
    text += fmt::format(
        "%y{0} = while(%x{0}) {{condition = \"c\", body = \"b\", carries = 1, max_trips = 9,\n"
        "  failure = graph bad (%x: f32[3], %p: bool[]) {{\n"
        "    %z = if(%p, %x) {{\n"
        "      then = graph t (%x: f32[3]) {{\n"
        "        %n = nonzero(%x) {{count = N}} %m = sum(%n) return %m }},\n"
        "      else = graph e (%x: f32[3]) {{\n"
        "        %n = nonzero(%x) {{count = M}} %m = sum(%n) return %m }}}}\n"
        "    return %z }}}}\n"
        "%x{1} = call(%y{0}) {{graph = graph u (%x: f32[3]) {{ %y = add(%x, 1) return %y }}}}\n",
        i, i + 1);
  EXPECT_NO_THROW(verify(parse(text + "return %x30 } }").program()));
}

}  // namespace
}  // namespace gradus::ir
