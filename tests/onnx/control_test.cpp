// If, Loop and Scan that data decide: branches and loops of the program.
#include "gradus/passes.h"
#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

pb::GraphProto graph_of(const std::string& name, std::vector<std::pair<std::string, int>> inputs,
                        const std::vector<std::string>& outputs) {
  pb::GraphProto g;
  g.set_name(name);
  for (const auto& [input, dtype] : inputs) {
    auto* info = g.add_input();
    info->set_name(input);
    info->mutable_type()->mutable_tensor_type()->set_elem_type(dtype);
  }
  for (const std::string& output : outputs) g.add_output()->set_name(output);
  return g;
}

size_t count_nodes(const ir::Graph& g, std::string_view op) {
  size_t n = 0;
  for (const ir::Node& node : g.stages[0].nodes) n += node.op->name == op;
  return n;
}

Tensor scalar_of(DType dtype, double v) { return Tensor::from(dtype, Sizes{}, std::vector{v}); }

// y = s * w + i, of which each round's is stacked.
pb::GraphProto growing(const std::string& go_on) {
  pb::GraphProto body =
      graph_of("growing", {{"i", i64}, {"go", boolean}, {"s", f32}}, {go_on, "t", "t"});
  add_node(body, "Cast", {"i"}, {"number"}).set("to", f32);
  add_node(body, "Mul", {"s", "w"}, {"scaled"});
  add_node(body, "Add", {"scaled", "number"}, {"t"});
  if (go_on == "below") {
    add_node(body, "ReduceSum", {"t"}, {"sum"}).set("keepdims", 0);
    add_node(body, "Less", {"sum", "most"}, {"below"});
  }
  return body;
}

Model looping(const std::string& trips, const std::string& go_on = "go", bool stacked = true) {
  Model m;
  m.input("x", f32, {2});
  if (trips == "trips") m.input("trips", i64, {});
  if (trips == "many") m.weight(integers("many", {}, {20}));
  m.weight(tensor("w", {}, {1.5f}));
  m.weight(tensor("most", {}, {60}));
  std::vector<std::string> outputs{"y"};
  if (stacked) outputs.push_back("all");
  m.node("Loop", {trips, "", "x"}, outputs).set("body", growing(go_on));
  for (const std::string& name : outputs) m.output(name);
  return m;
}

// The same in doubles.
std::pair<std::vector<double>, std::vector<double>> rounds(std::vector<double> x, int64_t trips,
                                                           double most = INFINITY) {
  std::vector<double> all;
  double sum = 0;
  for (int64_t i = 0; i < trips && sum < most; ++i) {
    sum = 0;
    for (double& v : x) {
      v = v * 1.5 + static_cast<double>(i);
      sum += v;
      all.push_back(v);
    }
  }
  return {x, all};
}

TEST(OnnxControl, ManyRoundsAreAScan) {
  const onnx::Import model = looping("many").import();
  EXPECT_EQ(count_nodes(model.program, "scan"), 1u);
  EXPECT_LT(model.program.stages[0].nodes.size(), 6u);
  const Values in{{"x", floats({2}, {0.01, -0.02})}};
  const Values out = run(model, in);
  const auto [last, all] = rounds({0.01, -0.02}, 20);
  expect_near(out.at("y"), last, 1e-2);
  expect_near(out.at("all"), all, 1e-2);
}

TEST(OnnxControl, RoundsThatDataCount) {
  for (const bool stacked : {true, false}) {
    const onnx::Import model = looping("trips", "go", stacked).import();
    for (const int64_t trips : {0, 1, 5, -3}) {
      const Values in{{"x", floats({2}, {1, -2})}, {"trips", scalar_of(DType::i64, trips)}};
      const Values out = run(model, in);
      const auto [last, all] = rounds({1, -2}, trips);
      expect_near(out.at("y"), last);
      if (!stacked) continue;
      EXPECT_EQ(Sizes(out.at("all").shape()), (Sizes{std::max<int64_t>(trips, 0), 2}));
      expect_near(out.at("all"), all);
    }
    expect_gradients(model, {{"x", floats({2}, {1, -2})}, {"trips", scalar_of(DType::i64, 3)}}, 2);
  }
}

TEST(OnnxControl, RoundsUntilAConditionFails) {
  for (const std::string trips : {"", "trips"})
    for (const bool stacked : {true, false}) {
      const onnx::Import model = looping(trips, "below", stacked).import();
      for (const int64_t most : {2, 100}) {
        Values in{{"x", floats({2}, {1, 2})}};
        if (!trips.empty()) in.emplace("trips", scalar_of(DType::i64, static_cast<double>(most)));
        const auto [last, all] = rounds({1, 2}, trips.empty() ? 1000 : most, 60);
        const Values out = run(model, in);
        expect_near(out.at("y"), last, 1e-4);
        if (stacked) expect_near(out.at("all"), all, 1e-4);
      }
    }
}

// A size with a name is a trip count.
TEST(OnnxControl, RoundsThatASizeCounts) {
  Model m;
  m.input("x", f32, {2});
  m.input("rows", f32, {"N", 3});
  m.weight(tensor("w", {}, {0.5f}));
  m.node("Shape", {"rows"}, {"shape"}).set("start", 0).set("end", 1);
  m.node("Squeeze", {"shape"}, {"n"});
  m.node("Loop", {"n", "", "x"}, {"y", "all"}).set("body", growing("go"));
  m.node("ReduceSum", {"rows"}, {"sum"}).set("keepdims", 0);
  m.output("y");
  m.output("all");
  m.output("sum");
  const onnx::Import model = m.import();
  EXPECT_EQ(count_nodes(model.program, "scan"), 1u);
  const Values out = run(
      model, {{"x", floats({2}, {1, 2})}, {"rows", floats({4, 3}, std::vector<double>(12, 1))}});
  EXPECT_EQ(Sizes(out.at("all").shape()), (Sizes{4, 2}));
}

Model branching() {
  Model m;
  m.input("x", f32, {3});
  m.input("c", boolean, {1});
  m.weight(tensor("w", {3}, {1, 2, 3}));
  pb::GraphProto then = graph_of("then", {}, {"a", "x"}),
                 otherwise = graph_of("else", {}, {"b", "z"});
  *then.add_initializer() = tensor("k", {}, {2});
  add_node(then, "Mul", {"x", "k"}, {"twice"});
  add_node(then, "Mul", {"twice", "w"}, {"a"});
  add_node(otherwise, "Sin", {"x"}, {"b"});
  add_node(otherwise, "Neg", {"w"}, {"z"});
  m.node("If", {"c"}, {"p", "q"}).set("then_branch", then).set("else_branch", otherwise);
  m.node("Mul", {"p", "q"}, {"y"});
  m.output("y");
  return m;
}

TEST(OnnxControl, BranchesByData) {
  const onnx::Import model = branching().import();
  EXPECT_EQ(count_nodes(model.program, "if"), 1u);
  const std::string text = ir::print(model.program);  // with the graphs that it runs
  EXPECT_EQ(ir::print(ir::parse(text).program()), text);
  for (const bool holds : {true, false}) {
    const Values in{
        {"x", floats({3}, {0.5, -1, 2})},
        {"c", Tensor::from(DType::boolean, Sizes{1}, std::vector<double>{double(holds)})}};
    std::vector<double> expected;
    for (int i = 0; i < 3; ++i) {
      const double x = std::vector{0.5, -1.0, 2.0}[static_cast<size_t>(i)], w = i + 1;
      expected.push_back(holds ? 2 * x * w * x : -std::sin(x) * w);
    }
    expect_near(run(model, in)["y"], expected);
    expect_gradients(model, in);
  }
}

// Sequences along any axis, in any direction.
TEST(OnnxControl, ScansAlongAxesAndDirections) {
  for (const int64_t first : {0, 1})
    for (const int64_t second : {0, 1})
      for (const int64_t result : {0, 1}) {
        Model m;
        m.input("h", f32, {2});
        m.input("a", f32, {"T", 2});
        m.input("b", f32, {2, "T"});
        pb::GraphProto body = graph_of("step", {{"s", f32}, {"p", f32}, {"q", f32}}, {"t", "u"});
        add_node(body, "Mul", {"s", "p"}, {"sp"});
        add_node(body, "Add", {"sp", "q"}, {"t"});
        add_node(body, "Sub", {"t", "p"}, {"u"});
        m.node("Scan", {"h", "a", "b"}, {"last", "all"})
            .set("body", body)
            .set("num_scan_inputs", 2)
            .set("scan_input_axes", std::vector<int64_t>{0, 1})
            .set("scan_input_directions", std::vector<int64_t>{first, second})
            .set("scan_output_axes", std::vector<int64_t>{-1})
            .set("scan_output_directions", std::vector<int64_t>{result});
        m.output("last");
        m.output("all");
        const onnx::Import model = m.import();
        EXPECT_EQ(count_nodes(model.program, "scan"), 1u);
        for (const int64_t steps : {0, 1, 4}) {
          std::vector<double> a, b(static_cast<size_t>(2 * steps)), h{0.3, -0.7},
              all(static_cast<size_t>(2 * steps));
          for (int64_t i = 0; i < 2 * steps; ++i)
            a.push_back(std::sin(1.0 + static_cast<double>(i)));
          for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(2.0 * static_cast<double>(i));
          const Values in{
              {"h", floats({2}, h)}, {"a", floats({steps, 2}, a)}, {"b", floats({2, steps}, b)}};
          for (int64_t n = 0; n < steps; ++n) {
            const int64_t i = first ? steps - 1 - n : n, j = second ? steps - 1 - n : n,
                          k = result ? steps - 1 - n : n;
            for (int64_t d = 0; d < 2; ++d) {
              const double p = a[static_cast<size_t>(2 * i + d)];
              double& s = h[static_cast<size_t>(d)];
              s = s * p + b[static_cast<size_t>(d * steps + j)];
              all[static_cast<size_t>(d * steps + k)] = s - p;
            }
          }
          const Values out = run(model, in);
          expect_near(out.at("last"), h);
          EXPECT_EQ(Sizes(out.at("all").shape()), (Sizes{2, steps}));
          expect_near(out.at("all"), all);
          if (steps == 4) expect_gradients(model, in);
        }
      }
}

// A loop in a branch in a loop, which reads values of all graphs around it.
TEST(OnnxControl, GraphsWithinGraphs) {
  pb::GraphProto inner = graph_of("inner", {{"k", i64}, {"on", boolean}, {"v", f32}}, {"on", "n"});
  add_node(inner, "Mul", {"v", "w"}, {"vw"});
  add_node(inner, "Add", {"vw", "s"}, {"n"});
  pb::GraphProto then = graph_of("then", {}, {"r"}), otherwise = graph_of("else", {}, {"s"});
  add_node(then, "Loop", {"i", "", "s"}, {"r"}).set("body", inner);
  pb::GraphProto body = graph_of("outer", {{"i", i64}, {"go", boolean}, {"s", f32}}, {"go", "t"});
  add_node(body, "Greater", {"i", "one"}, {"later"});
  add_node(body, "If", {"later"}, {"t"}).set("then_branch", then).set("else_branch", otherwise);
  Model m;
  m.input("x", f32, {2});
  m.input("trips", i64, {});
  m.weight(tensor("w", {}, {0.5f}));
  m.weight(integers("one", {}, {1}));
  m.node("Loop", {"trips", "", "x"}, {"y"}).set("body", body);
  m.output("y");
  const onnx::Import model = m.import();
  const Values out = run(model, {{"x", floats({2}, {1, -2})}, {"trips", scalar_of(DType::i64, 4)}});
  std::vector<double> x{1, -2};
  for (int64_t i = 0; i < 4; ++i)
    for (double& s : x) {
      double v = s;
      for (int64_t k = 0; i > 1 && k < i; ++k) v = v * 0.5 + s;
      s = v;
    }
  expect_near(out.at("y"), x);
}

// Exporters write the greatest integer where a condition alone ends a loop.
TEST(OnnxControl, TheGreatestTripCountIsNoBound) {
  for (const bool stacked : {true, false}) {
    Model m = looping("many", "below", stacked);
    *m.graph().mutable_initializer(0) = integers("many", {}, {INT64_MAX});
    const auto [last, all] = rounds({1, 2}, 1000, 60);
    const Values out = run(m.import(), {{"x", floats({2}, {1, 2})}});
    expect_near(out.at("y"), last, 1e-4);
    if (stacked) expect_near(out.at("all"), all, 1e-4);
  }
  Model endless = looping("many");
  *endless.graph().mutable_initializer(0) = integers("many", {}, {INT64_MAX});
  expect_refused(endless, {"Loop of more than"});
}

// Sizes less numbers may be negative, and then there is no round.
TEST(OnnxControl, RoundsThatASizeLessANumberCounts) {
  Model m;
  m.input("x", f32, {2});
  m.input("rows", f32, {"N"});
  m.weight(tensor("w", {}, {0.5f}));
  m.weight(integers("three", {}, {3}));
  m.node("Size", {"rows"}, {"n"});
  m.node("Sub", {"n", "three"}, {"trips"});
  m.node("Loop", {"trips", "", "x"}, {"y", "all"}).set("body", growing("go"));
  m.node("ReduceSum", {"rows"}, {"sum"}).set("keepdims", 0);
  for (const char* name : {"y", "all", "sum"}) m.output(name);
  const onnx::Import model = m.import();
  for (const int64_t n : {1, 3, 5}) {
    const auto size = static_cast<size_t>(n);
    const Values out = run(
        model, {{"x", floats({2}, {1, 2})}, {"rows", floats({n}, std::vector<double>(size, 1))}});
    EXPECT_EQ(Sizes(out.at("all").shape()), (Sizes{std::max<int64_t>(n - 3, 0), 2}));
  }
}

// Each round keeps other places, and so has a size of its own.
Model selecting(const std::string& trips) {
  pb::GraphProto body = graph_of("body", {{"i", i64}, {"go", boolean}, {"s", f32}}, {"go", "t"});
  add_node(body, "NonZero", {"s"}, {"places"});
  add_node(body, "Cast", {"places"}, {"numbers"}).set("to", f32);
  add_node(body, "ReduceSum", {"numbers"}, {"sum"}).set("keepdims", 0);
  add_node(body, "Add", {"s", "sum"}, {"t"});
  Model m;
  m.input("x", f32, {2});
  if (trips == "trips") m.input("trips", i64, {});
  if (trips == "many") m.weight(integers("many", {}, {20}));
  m.node("Loop", {trips, "", "x"}, {"y"}).set("body", body);
  m.output("y");
  return m;
}

// Within a round sizes may be whatever data say; results have one size in all rounds.
TEST(OnnxControl, SizesThatDataDecideInARound) {
  expect_near(run(selecting("many").import(), {{"x", floats({2}, {1, 2})}})["y"], {21, 22});
  expect_near(run(selecting("trips").import(),
                  {{"x", floats({2}, {1, 2})}, {"trips", scalar_of(DType::i64, 20)}})["y"],
              {21, 22});

  // A loop that is counted first, in the body of another one.
  pb::GraphProto inner =
      graph_of("inner", {{"k", i64}, {"on", boolean}, {"v", f32}}, {"on", "v", "v"});
  pb::GraphProto body = graph_of("outer", {{"i", i64}, {"go", boolean}, {"s", f32}}, {"go", "t"});
  add_node(body, "Loop", {"i", "", "s"}, {"last", "stack"}).set("body", inner);
  add_node(body, "ReduceSum", {"stack"}, {"sum"}).set("keepdims", 0);
  add_node(body, "Add", {"last", "sum"}, {"t"});
  Model m;
  m.input("x", f32, {2});
  m.input("trips", i64, {});
  m.node("Loop", {"trips", "", "x"}, {"y"}).set("body", body);
  m.output("y");
  std::vector<double> x{1, -3};
  const Values out = run(m.import(), {{"x", floats({2}, x)}, {"trips", scalar_of(DType::i64, 4)}});
  for (int i = 0; i < 4; ++i) {
    const double sum = i * (x[0] + x[1]);
    for (double& v : x) v += sum;
  }
  expect_near(out.at("y"), x);

  body.mutable_node()->RemoveLast();
  body.mutable_node(1)->set_op_type("Identity");
  body.mutable_node(1)->clear_attribute();
  body.mutable_node(1)->set_output(0, "t");
  *m.graph().mutable_node(0)->mutable_attribute(0)->mutable_g() = body;
  expect_refused(m, {"Loop", "'outer'", "size that data decides"});
}

void expect_round_trip(const Model& m, const Values& in) {
  const onnx::Import model = m.import();
  const Values expected = run(model, in);
  for (const int opset : {18, 23}) {
    const std::string bytes = onnx::export_stage(model.program, model.weights, {.opset = opset});
    const Values out = run(onnx::import_bytes(bytes, "exported.onnx"), in);
    ASSERT_EQ(out.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_EQ(Sizes(out.at(name).shape()), Sizes(tensor.shape())) << name;
      expect_near(out.at(name), tensor.to_doubles());
    }
  }
}

TEST(OnnxControl, ExportsReadBack) {
  const Tensor x = floats({2}, {0.25, -0.5});
  expect_round_trip(looping("many"), {{"x", floats({2}, {0.01, -0.02})}});
  for (const int64_t trips : {0, 4})
    for (const char* go_on : {"go", "below"})
      for (const bool stacked : {true, false})
        expect_round_trip(looping("trips", go_on, stacked),
                          {{"x", x}, {"trips", scalar_of(DType::i64, static_cast<double>(trips))}});
  for (const double holds : {0.0, 1.0})
    expect_round_trip(branching(),
                      {{"x", floats({3}, {0.5, -1, 2})},
                       {"c", Tensor::from(DType::boolean, Sizes{1}, std::vector{holds})}});
}

TEST(OnnxControl, GraphsThatAreDamaged) {
  auto change = [](Model m, auto&& what) {
    what(*m.graph().mutable_node(0));
    return m;
  };
  auto body = [](pb::NodeProto& node) -> pb::GraphProto& {
    return *node.mutable_attribute(0)->mutable_g();
  };
  expect_refused(change(looping("trips"), [](auto& n) { n.clear_attribute(); }),
                 {"Loop", "attribute 'body' is missing"});
  expect_refused(change(looping("trips"), [](auto& n) { n.mutable_attribute(0)->clear_g(); }),
                 {"Loop", "attribute 'body' is missing"});
  expect_refused(change(looping("trips"), [&](auto& n) { body(n).Clear(); }), {"Loop"});
  expect_refused(change(looping("trips"), [&](auto& n) { body(n).mutable_input()->RemoveLast(); }),
                 {"Loop", "takes 2 inputs, 3 are given"});
  expect_refused(change(looping("trips"), [&](auto& n) { body(n).clear_node(); }),
                 {"Loop", "output 't'"});
  expect_refused(change(looping("trips"), [&](auto& n) { n.add_output("more"); }),
                 {"Loop", "its result 2"});
  expect_refused(change(branching(), [&](auto& n) { body(n).clear_output(); }),
                 {"If", "0 and 2 results"});
  expect_refused(change(branching(), [&](auto& n) { body(n).mutable_output(0)->set_name("p"); }),
                 {"If", "output 'p'"});

  for (const int opset : {8, 9, 23}) {
    Model m(opset);
    m.input("a", f32, {"T", 2});
    const std::vector<std::string> inputs{"", "a"};  // version 8 has lengths in front
    m.node("Scan", opset == 8 ? inputs : std::vector<std::string>{"a"}, {"all"})
        .set("body", graph_of("step", {{"p", f32}}, {"p"}))
        .set("num_scan_inputs", -1);
    m.output("all");
    expect_refused(m, {"Scan", "num_scan_inputs"});
  }
}

TEST(OnnxControl, WhatCannotBeALoopIsSaid) {
  Model shapes;  // a state grows
  shapes.input("x", f32, {2});
  shapes.input("trips", i64, {});
  pb::GraphProto body = graph_of("body", {{"i", i64}, {"go", boolean}, {"s", f32}}, {"go", "t"});
  add_node(body, "Concat", {"s", "s"}, {"t"}).set("axis", 0);
  shapes.node("Loop", {"trips", "", "x"}, {"y"}).set("body", body);
  shapes.output("y");
  expect_refused(shapes,
                 {"Loop", "trip count", "depends on data", "sizes 4 and 2 differ", "carry 's'"});

  Model few = looping("trips");
  few.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_output()->RemoveLast();
  few.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_output()->RemoveLast();
  expect_refused(few, {"Loop", "fewer results than states"});

  Model unknown = looping("trips");
  unknown.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(1)->set_input(
      1, "nowhere");
  expect_refused(unknown, {"no earlier node gives its input 'nowhere'"});

  Model branch;
  branch.input("c", boolean, {});
  pb::GraphProto one = graph_of("one", {}, {"x"}), none;
  branch.input("x", f32, {2});
  branch.node("If", {"c"}, {"y"}).set("then_branch", one).set("else_branch", none);
  branch.output("y");
  expect_refused(branch, {"If", "1 and 0 results"});

  Model endless = looping("");
  expect_refused(endless, {"Loop", "no trip count"});
}

}  // namespace
}  // namespace gradus::test
