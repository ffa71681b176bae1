// Nodes: numbers, edges, metadata, what they are asked.
#include <thread>

#include "autograd/accumulate_grad.h"
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

Ref<Node> node(std::string name, SmallVector<Edge, 2> edges = {}) {
  auto n = make_ref<LambdaNode>(std::move(name), std::move(edges), hand_on);
  n->add_input(InputMetadata(Tensor::scalar(DType::f64, 0)));
  return n;
}

// SPEC N2
TEST(Nodes, SequenceNumbersRisePerThread) {
  Ref<Node> a = node("a"), b = node("b");
  EXPECT_EQ(b->sequence_number(), a->sequence_number() + 1);
  uint64_t first = 99, second = 99, thread = 0;
  std::thread([&] {
    Ref<Node> c = node("c");
    first = c->sequence_number();
    thread = c->forward_thread();
    second = node("d")->sequence_number();
  }).join();
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 1u);
  EXPECT_NE(thread, a->forward_thread());
  EXPECT_EQ(a->forward_thread(), thread_number());
  EXPECT_EQ(leaf({1}).gradient_edge().node->sequence_number(), UINT64_MAX);
}

// SPEC N2
TEST(Nodes, TopologicalNumberIsTheLongestPath) {
  Ref<Node> end = node("end");
  EXPECT_EQ(end->topological_number(), 0u);
  Ref<Node> one = node("one", {Edge{end, 0}});
  Ref<Node> two = node("two", {Edge{end, 0}, Edge{one, 0}, Edge{}});
  EXPECT_EQ(one->topological_number(), 1u);
  EXPECT_EQ(two->topological_number(), 2u);
  Ref<Node> other = node("other");
  other->set_next_edges({Edge{two, 0}});
  other->add_next_edge(Edge{end, 0});
  EXPECT_EQ(other->topological_number(), 3u);
}

// SPEC N2
TEST(Nodes, EdgesOfANodeWithAParentAreFixed) {
  Ref<Node> end = node("end"), low = node("low");
  Ref<Node> high = node("high", {Edge{low, 0}});
  EXPECT_NE(error_of([&] {
              low->add_next_edge(Edge{end, 0});
            }).find("'low' has a parent"),
            std::string::npos);
  EXPECT_NE(error_of([&] { low->set_next_edges({}); }).find("'low'"), std::string::npos);
  EXPECT_EQ(low->outputs(), 0u);
}

// SPEC N3
TEST(Nodes, SeveralEdgesIntoOneInputAreSummedAndEmptyOnesGoNowhere) {
  Variable x = leaf({1, 2});
  auto edge = x.gradient_edge();
  auto n =
      make_ref<LambdaNode>("three", SmallVector<Edge, 2>{edge, Edge{}, edge}, [](Variables&& c) {
        return Variables{c[0], c[0], op("mul", {c[0], c[0]})};
      });
  create_gradient_edge(x.data(), n).backward(leaf({3, 5}, false));
  EXPECT_EQ(values(x.grad()), (std::vector<double>{12, 30}));
}

// SPEC N4
TEST(Nodes, KnowWhatTheirInputsAre) {
  Variable x = leaf({1, 2}, true, DType::f32);
  Ref<Node> n = op("neg", {x}).grad_fn();
  const InputMetadata& m = n->input_metadata(0);
  EXPECT_EQ(m.kind, InputMetadata::Kind::known);
  EXPECT_EQ(m.dtype, DType::f32);
  EXPECT_EQ(m.shape, (Sizes{2}));
  EXPECT_EQ(m.device, Device());
  EXPECT_EQ(n->add_undefined_input(), 1u);
  EXPECT_EQ(n->input_metadata(1).kind, InputMetadata::Kind::undefined);
}

// SPEC N4
TEST(Nodes, AnUndefinedInputTakesNothingAndAClearedOneEverything) {
  OwnEngine engine;
  Variable x = leaf({1, 2});
  auto n = make_ref<LambdaNode>("n", collect_next_edges(std::array{x}),
                                [](Variables&&) { return Variables(1); });
  n->add_undefined_input();
  std::string message = error_of([&] {
    engine->execute(std::array{Edge{n, 0}}, std::array{leaf({1}, false)}, accumulate);
  });
  EXPECT_NE(message.find("has to be undefined"), std::string::npos) << message;
  n->clear_input_metadata();
  engine->execute(std::array{Edge{n, 0}}, std::array{leaf({1, 2, 3}, false)}, accumulate);
}

// SPEC N8
TEST(Nodes, SayWhichGradientsAreWorthComputing) {
  Variable x = leaf({1}), c = leaf({1}, false);
  Ref<Node> n = op("mul", {x, c}).grad_fn();
  EXPECT_TRUE(n->should_compute_output(0));
  EXPECT_FALSE(n->should_compute_output(1));
  EXPECT_TRUE(n->should_compute_output(0, 2));
  EXPECT_FALSE(n->should_compute_output(1, 1));
  EXPECT_FALSE(n->should_compute_output(0, 0));
  EXPECT_TRUE(n->task_should_compute_output(0));  // no task: the graph's shape
  EXPECT_NE(error_of([&] { (void)n->should_compute_output(2); }).find("'mul' has 2 outputs"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)n->should_compute_output(1, 2); }).find("'mul'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)n->should_compute_output(SIZE_MAX, 2); }).find("'mul'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)n->task_should_compute_output(7); }).find("'mul'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)n->task_should_compute_output(0, 3); }).find("'mul'"),
            std::string::npos);
}

// SPEC N8
TEST(Nodes, ATaskMayNeedLessThanTheGraphHas) {
  Variable x = leaf({1}), w = leaf({1});
  std::vector<bool> asked;
  Variable y = joined("ask", {x, w}, [&](Variables&& c) {
    const Node& self = *current_node();
    for (size_t i = 0; i < 2; ++i) asked.push_back(self.task_should_compute_output(i));
    asked.push_back(self.task_should_compute_output(0, 2));
    asked.push_back(self.task_should_compute_output(0, 1));
    return Variables(2, c[0]);
  });
  Variable one = leaf({1}, false);
  grad(std::array{y}, std::array{w}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(asked, (std::vector<bool>{false, true, true, false}));
  asked.clear();
  y.backward(one);
  EXPECT_EQ(asked, (std::vector<bool>{true, true, true, true}));
}

struct Releasing final : Node {
  using Node::Node;
  std::string name() const override { return "releasing"; }
  void will_release_variables() override { log += "will "; }
  void release_variables() override { log += "release "; }
  Variables apply(Variables&& c) override {
    log += "apply ";
    return std::move(c);
  }
  std::string log;
};

// SPEC N9
TEST(Nodes, LetGoAsTheyRunUnlessTheGraphIsKept) {
  Variable x = leaf({1});
  auto n = make_ref<Releasing>(collect_next_edges(std::array{x}));
  Variable y = create_gradient_edge(x.data(), n);
  y.backward(leaf({1}, false), true);
  EXPECT_EQ(n->log, "apply ");
  n->log.clear();
  y.backward(leaf({1}, false));
  EXPECT_EQ(n->log, "will apply release ");
}

// SPEC N9
TEST(Nodes, WhatWasLetGoRefusesToRunAgain) {
  Variable x = leaf({1, 2});
  Variable y = op("sum", {op("mul", {x, x})});
  y.backward();
  std::string message = error_of([&] { y.backward(); });
  EXPECT_NE(message.find("operand 'x' of 'mul'"), std::string::npos) << message;
  EXPECT_NE(message.find("keep_graph"), std::string::npos) << message;
}

// SPEC N10
TEST(Nodes, SayWhetherTheyCanBeTraced) {
  Variable x = leaf({1});
  EXPECT_TRUE(op("neg", {x}).grad_fn()->is_traceable());
  Variable user = through("user", x, hand_on);
  EXPECT_FALSE(user.grad_fn()->is_traceable());
  EXPECT_FALSE(user.grad_fn()->passes_state_transparently());
  struct Transparent final : Node {
    std::string name() const override { return "transparent"; }
    bool is_traceable() const override { return true; }
    bool passes_state_transparently() const override { return true; }
    Variables apply(Variables&& c) override { return std::move(c); }
  };
  Ref<Node> n = make_ref<Transparent>();
  EXPECT_TRUE(n->is_traceable() && n->passes_state_transparently());
}

// SPEC N13
static_assert(!std::is_copy_constructible_v<LambdaNode> && !std::is_copy_assignable_v<LambdaNode>);
static_assert(!std::is_move_constructible_v<LambdaNode> && !std::is_move_assignable_v<LambdaNode>);
static_assert(!std::is_copy_constructible_v<AccumulateGrad>);

class Recorder final : public Profiler {
 public:
  void node_begins(const Node& n, std::string_view name, uint64_t number,
                   uint64_t thread) override {
    EXPECT_EQ(n.name(), name);
    EXPECT_EQ(n.sequence_number(), number);
    if (forward_thread) {
      EXPECT_EQ(thread, forward_thread);
    }
    log += "<" + std::string(name);
  }
  void node_ends(const Node& n) override { log += " " + n.name() + ">"; }
  void step_begins(const Node& n) override { log += "[" + n.name() + " "; }
  void step_ends(const Node&) override { log += "]"; }
  std::string log;
  uint64_t forward_thread = 0;
};

// SPEC N6
TEST(Profiling, NodesAndStepsAreReported) {
  Variable x = leaf({1}), y;
  auto recorder = std::make_shared<Recorder>();
  std::thread([&] {
    y = through("made elsewhere", x, hand_on);
    recorder->forward_thread = y.grad_fn()->forward_thread();
  }).join();
  y.grad_fn()->hooks().add_pre([&](const Variables&) {
    recorder->log += "pre ";
    return Variables();
  });
  ThreadState state = thread_state();
  state.profiler = recorder;
  StateGuard guard(state);
  grad(std::array{y}, std::array{x}, std::array{leaf({1}, false)});
  EXPECT_EQ(recorder->log, "[made elsewhere pre <made elsewhere made elsewhere>][AccumulateGrad ]");
}

// SPEC N6
TEST(Profiling, AFailingNodeIsReportedToItsEnd) {
  Variable x = leaf({1});
  Variable y = through("bad", x, [](Variables&&) -> Variables { throw 7; });
  auto recorder = std::make_shared<Recorder>();
  ThreadState state = thread_state();
  state.profiler = recorder;
  StateGuard guard(state);
  EXPECT_THROW(y.backward(leaf({1}, false)), int);
  EXPECT_EQ(recorder->log, "[bad <bad bad>]");
}

}  // namespace
}  // namespace gradus::autograd::testing
