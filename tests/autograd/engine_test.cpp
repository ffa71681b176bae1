// What the engine is asked, what it checks, and which nodes it runs.
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);

// SPEC E1
TEST(Execute, RefusesWhatMakesNoSense) {
  OwnEngine engine;
  Variable x = leaf({1}), y = op("neg", {x});
  auto edge = std::array{y.gradient_edge()};
  auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(error_of([&] { engine->execute(edge, std::array{one}, {}); }), "gradients of nothing");
  says(error_of([&] { engine->execute({}, {}, accumulate); }), "needs a root");
  says(error_of([&] { engine->execute(edge, {}, accumulate); }), "1 roots were given 0 cotangents");
  says(error_of([&] { engine->execute(std::array{Edge()}, std::array{one}, accumulate); }),
       "root 0 does not require gradients");
  says(error_of([&] {
         engine->execute(std::array{Edge{y.grad_fn(), 7}}, std::array{one}, accumulate);
       }),
       "input 7 of node 'neg', which has 1 inputs");
  says(error_of([&] {
         engine->execute(edge, std::array{one}, {}, std::array{Capture{Edge{y.grad_fn(), 9}, {}}});
       }),
       "input 9 of node 'neg' is asked for, which has 1 inputs");
  says(error_of([&] { leaf({1}, false).backward(one); }), "does not require gradients");
  says(error_of([&] { op("neg", {leaf({1, 2})}).backward(); }), "only a 0-d output");
  says(error_of([&] { grad(std::array{y}, std::array{one}, std::array{one}); }),
       "input 0 does not require gradients");
}

// SPEC E1
TEST(Execute, AccumulatesCapturesOrBoth) {
  OwnEngine engine;
  Variable x = leaf({2}), w = leaf({3}), y = op("mul", {x, w});
  Variables got = execute(*engine, y, {.keep_graph = true}, {{x.gradient_edge(), {}}});
  EXPECT_EQ(values(got[0]), std::vector<double>{3});
  EXPECT_FALSE(x.grad().defined());
  // Leaves that are named take their gradients, others do not.
  got = execute(*engine, y, {.keep_graph = true, .accumulate_grad = true, .strict = true},
                {{x.gradient_edge(), {}}});
  EXPECT_FALSE(got[0].defined());
  EXPECT_EQ(values(x.grad()), std::vector<double>{3});
  EXPECT_FALSE(w.grad().defined());
}

// SPEC E2
TEST(Gradients, AreCountedAndNamed) {
  Variable x = leaf({1});
  Variable y = joined("few", {x, x}, [](Variables&& c) { return Variables{c[0]}; });
  std::string text = error_of([&] { y.backward(one); });
  EXPECT_NE(text.find("'few' returned 1 gradients; it has 2 inputs"), std::string::npos) << text;
  y = through("many", x, [](Variables&& c) { return Variables(3, c[0]); });
  text = error_of([&] { y.backward(one); });
  EXPECT_NE(text.find("'many' returned 3 gradients; it has 1 inputs"), std::string::npos) << text;
}

Variable filled(Sizes shape, DType dtype = DType::f64) {
  return Variable(
      Tensor::from(dtype, shape, std::vector<double>(static_cast<size_t>(numel(shape)), 1)));
}

// SPEC E2
TEST(Gradients, OfALargerShapeAreSummedDown) {
  for (Sizes larger : {Sizes{3}, Sizes{4, 3}, Sizes{2, 4, 3}}) {
    Variable x = leaf({1, 2, 3});
    through("wide", x, [&](Variables&&) {
      return Variables{filled(larger)};
    }).backward(filled({3}));
    EXPECT_EQ(values(x.grad()), std::vector<double>(3, static_cast<double>(numel(larger)) / 3));
    EXPECT_EQ(x.grad().shape().size(), 1u);
  }
  Variable s = scalar(1);
  through("wide", s, [](Variables&&) { return Variables{filled({5})}; }).backward();
  EXPECT_EQ(values(s.grad()), std::vector<double>{5});
}

// SPEC E2
TEST(Gradients, OfAShapeThatDoesNotExpandAreErrors) {
  for (Sizes wrong : {Sizes{2}, Sizes{}, Sizes{3, 1}, Sizes{1}}) {
    Variable x = leaf({1, 2, 3});
    std::string text = error_of([&] {
      joined("odd", {x, x}, [&](Variables&& c) {
        return Variables{c[0], filled(wrong)};
      }).backward(filled({3}));
    });
    EXPECT_NE(text.find("gradient 1 of 'odd' has to be of shape [3]"), std::string::npos) << text;
  }
}

// SPEC E2
TEST(Gradients, OfAnotherFloatingTypeAreCast) {
  Variable x = leaf({1}, true, DType::f32);
  through("cast", x, [](Variables&&) {
    return Variables{leaf({0.1}, false)};
  }).backward(leaf({1}, false, DType::f32));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(values(x.grad())[0], static_cast<double>(0.1f));
  std::string text = error_of([&] {
    through("whole", x, [](Variables&&) {
      return Variables{leaf({1}, false, DType::i64)};
    }).backward(leaf({1}, false, DType::f32));
  });
  EXPECT_NE(text.find("gradient 0 of 'whole' has to be floating; it is i64[1]"), std::string::npos)
      << text;
}

// SPEC E2
TEST(Gradients, ForEmptyEdgesAreIgnoredAndUndefinedOnesPass) {
  Variable x = leaf({1}), c = leaf({1}, false);
  int reached = 0;
  Variable below = through("below", x, [&](Variables&& ct) {
    ++reached;
    EXPECT_FALSE(ct[0].defined());
    return std::move(ct);
  });
  joined("mixed", {below, c}, [](Variables&&) {
    return Variables{Variable(), leaf({1, 2, 3}, false, DType::i64)};
  }).backward(one);
  EXPECT_EQ(reached, 1);
  EXPECT_FALSE(x.grad().defined());
}

// SPEC E2
TEST(Gradients, OfRootsAreCheckedToo) {
  Variable y = op("neg", {leaf({1, 2, 3})});
  std::string text = error_of([&] { y.backward(leaf({1, 2}, false)); });
  EXPECT_NE(text.find("cotangent of root 0 ('neg') has to be of shape [3]"), std::string::npos)
      << text;
  Variable x = leaf({1, 2, 3});
  op("neg", {x}).backward(filled({2, 3}, DType::f32));
  EXPECT_EQ(values(x.grad()), std::vector<double>(3, -2));
}

// SPEC E2
TEST(Gradients, ForInputsThatAreNotThereAreErrors) {
  // Also below the nodes that a pruned task looks at.
  Variable x = leaf({1}), low = leaf({1});
  auto wrong = make_ref<LambdaNode>(
      "wrong", SmallVector<Edge, 2>{x.gradient_edge(), Edge{low.gradient_edge().node, 4}},
      copies(2));
  Variable y = create_gradient_edge(x.data(), wrong);
  std::string text = error_of([&] { y.backward(one); });
  EXPECT_NE(text.find("input 4 of node 'AccumulateGrad'"), std::string::npos) << text;
  Variable z = op("neg", {op("neg", {y})});
  Variable middle = through("middle", z, hand_on);
  auto high = make_ref<LambdaNode>(
      "high", SmallVector<Edge, 2>{middle.gradient_edge(), Edge{low.gradient_edge().node, 4}},
      copies(2));
  Variable top = create_gradient_edge(x.data(), high);
  text = error_of([&] { grad(std::array{top}, std::array{middle}, std::array{one}); });
  EXPECT_NE(text.find("edge 1 of 'high' leads to input 4"), std::string::npos) << text;
}

// SPEC E3
TEST(Pruning, OnlyWhatLeadsToAWantedOutputRuns) {
  std::string log;
  auto noted = [&](std::string name, const Variable& x) {
    return through(name, x, [&log, name](Variables&& c) {
      log += name + " ";
      return std::move(c);
    });
  };
  Variable x = leaf({1}), w = leaf({1});
  Variable low = noted("low", x), wanted = noted("wanted", low), side = noted("side", w);
  Variable deep_side = noted("deep_side", noted("lower_side", side));
  Variable top = joined("top", {wanted, deep_side}, copies(2));
  Variables got = grad(std::array{top}, std::array{wanted}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(log, "");
  EXPECT_EQ(values(got[0]), std::vector<double>{1});
  got = grad(std::array{top}, std::array{low, side}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(log, "deep_side lower_side wanted ");
  log.clear();
  EXPECT_TRUE(got[0].defined() && got[1].defined());
  // Nothing leads there: not reached, and nothing runs.
  Variable unrelated = noted("unrelated", leaf({1}));
  got = grad(std::array{top}, std::array{unrelated, x}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(log, "wanted low ");
  EXPECT_FALSE(got[0].defined());
  EXPECT_EQ(values(got[1]), std::vector<double>{1});
  log.clear();
  std::string text = error_of([&] {
    grad(std::array{top}, std::array{x, unrelated}, std::array{one},
         {.keep_graph = true, .allow_unused = false});
  });
  EXPECT_NE(text.find("output 1"), std::string::npos) << text;
  EXPECT_FALSE(x.grad().defined() || w.grad().defined());
}

// SPEC E3
TEST(Pruning, DoesNotRecurse) {
  Variable x = leaf({1}), y = x;
  for (int i = 0; i < 300'000; ++i) y = through("id", y, hand_on);
  EXPECT_EQ(values(grad(std::array{y}, std::array{x}, std::array{one})[0]), std::vector<double>{1});
}

// SPEC E4
TEST(Captures, AreTakenWhereTheyPassThroughHooksThatChain) {
  OwnEngine engine;
  Variable x = leaf({2});
  bool ran = false;
  Variable y = through("node", x, [&](Variables&& c) {
    ran = true;
    return std::move(c);
  });
  Variable z = op("mul", {y, scalar(5, false)});
  auto plus = [](double d) {
    return [d](const Variable& g) { return op("add", {g, scalar(d, false)}); };
  };
  auto times = [](double d) {
    return [d](const Variable& g) { return op("mul", {g, scalar(d, false)}); };
  };
  auto nothing = [](const Variable&) { return Variable(); };
  Variables got = execute(*engine, z, {.keep_graph = true},
                          {{y.gradient_edge(), {plus(1), nothing, times(10)}},
                           {y.gradient_edge(), {}},
                           {y.gradient_edge(), {times(10), plus(1)}}});
  EXPECT_EQ(values(got[0]), std::vector<double>{60});
  EXPECT_EQ(values(got[1]), std::vector<double>{5});  // hooks of one capture are not another's
  EXPECT_EQ(values(got[2]), std::vector<double>{51});
  EXPECT_FALSE(ran);
  // What a capture's hooks make does not go on down.
  got = execute(*engine, z, {}, {{y.gradient_edge(), {times(10)}}, {x.gradient_edge(), {}}});
  EXPECT_TRUE(ran);
  EXPECT_EQ(values(got[0]), std::vector<double>{50});
  EXPECT_EQ(values(got[1]), std::vector<double>{5});
}

// SPEC E4
TEST(Captures, MayBeOfTheRootItself) {
  OwnEngine engine;
  Variable y = op("neg", {leaf({2})});
  Variables got = execute(*engine, y, {}, {{y.gradient_edge(), {}}});
  EXPECT_EQ(values(got[0]), std::vector<double>{1});
}

// SPEC E5
TEST(Roots, OneNeedsNoArtificialRootAndManyShareOneTask) {
  OwnEngine engine;
  Variable x = leaf({2});
  std::vector<size_t> nodes;
  auto counting = [&](Variables&& c) {
    nodes.push_back(nodes_in_current_task().size());
    return std::move(c);
  };
  Variable y = through("a", x, counting);
  y.backward(one);
  EXPECT_EQ(nodes, std::vector<size_t>{2});  // the root and the leaf's
  nodes.clear();
  Variable z = through("b", x, counting);
  Variable w = through("c", z, counting);
  // A root that lies below another one, and one that is given twice.
  backward(std::array{w, z, z}, std::array{one, leaf({10}, false), leaf({100}, false)});
  EXPECT_EQ(nodes, (std::vector<size_t>{3, 3}));
  EXPECT_EQ(values(x.grad()), std::vector<double>{112});
}

// SPEC E20
TEST(Tasks, CanBeAskedFromInside) {
  EXPECT_EQ(current_task_id(), -1);
  EXPECT_TRUE(nodes_in_current_task().empty());
  EXPECT_TRUE(current_task_keeps_graph());
  Variable x = leaf({1}), w = leaf({1});
  std::vector<int64_t> ids;
  bool keeps = false;
  Variable low = through("low", x, hand_on), side = through("side", w, hand_on);
  EXPECT_EQ(runs_in_current_task(*low.grad_fn()), std::nullopt);
  EXPECT_NE(error_of([&] { add_to_current_task(*low.grad_fn()); }).find("while one runs"),
            std::string::npos);
  bool all = false;
  Variable y = joined("ask", {low, side}, [&](Variables&& c) {
    ids.push_back(current_task_id());
    keeps = current_task_keeps_graph();
    EXPECT_EQ(runs_in_current_task(*low.grad_fn()), true);
    EXPECT_EQ(runs_in_current_task(*side.grad_fn()), all);
    EXPECT_EQ(nodes_in_current_task().size(), all ? 5u : 2u);
    return Variables(2, c[0]);
  });
  grad(std::array{y}, std::array{x}, std::array{one}, {.keep_graph = true});
  EXPECT_TRUE(keeps);
  all = true;
  y.backward(one);
  EXPECT_FALSE(keeps);
  EXPECT_GE(ids[0], 0);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(current_task_id(), -1);
}

// SPEC E20
TEST(Tasks, TakeNodesThatNothingWanted) {
  Variable x = leaf({1}), w = leaf({1});
  int side_runs = 0;
  Variable side = through("side", w, [&](Variables&& c) {
    ++side_runs;
    return std::move(c);
  });
  Variable low = through("low", x, hand_on);
  Variable y = joined("add", {low, side}, [&](Variables&& c) {
    add_to_current_task(*side.grad_fn());
    add_to_current_task(*side.grad_fn());  // twice is once
    EXPECT_EQ(runs_in_current_task(*side.grad_fn()), true);
    return Variables(2, c[0]);
  });
  Variable far = through("far", leaf({1}), hand_on);
  Variable top = through("top", y, [&](Variables&& c) {
    EXPECT_NE(error_of([&] { add_to_current_task(*far.grad_fn()); }).find("no root leads to it"),
              std::string::npos);
    EXPECT_NE(error_of([&] { add_to_current_task(*w.gradient_edge().node); }).find("does not run"),
              std::string::npos);
    return std::move(c);
  });
  Variable deep = through("deep", far, hand_on);
  grad(std::array{top}, std::array{x}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(side_runs, 1);
  EXPECT_FALSE(w.grad().defined());
}

// SPEC E22
TEST(Tasks, WorkThatIsNeverReachedIsAnError) {
  // `late` is wanted only after what leads to it has run.
  Variable x = leaf({1}), w = leaf({1});
  Variable late = through("late", w, hand_on);
  Variable low = through("low", x, [&](Variables&& c) {
    add_to_current_task(*late.grad_fn());
    return std::move(c);
  });
  Variable y = joined("top", {low, late}, copies(2));
  std::string text = error_of([&] { grad(std::array{y}, std::array{x}, std::array{one}); });
  EXPECT_NE(text.find("could not compute gradients for some functions: 1 of"), std::string::npos)
      << text;
}

// SPEC E22
TEST(Tasks, AnEdgeCannotAppearWhileTheGraphRuns) {
  Variable x = leaf({1}), w = leaf({1});
  Edge added = w.gradient_edge();
  Ref<Node> self;
  Variable y = through("grows", x, [&](Variables&& c) {
    self->add_next_edge(added);
    return Variables(2, c[0]);
  });
  self = y.grad_fn();
  std::string text = error_of([&] { y.backward(one); });
  EXPECT_NE(text.find("'grows'"), std::string::npos) << text;
  EXPECT_FALSE(w.grad().defined());
  self = nullptr;
}

// SPEC E18
TEST(Checkpoints, AreValidUnlessATaskAroundWasPruned) {
  EXPECT_TRUE(checkpoint_valid());
  std::vector<bool> seen;
  Variable x = leaf({1}), inner_leaf = leaf({1});
  auto note = [&](Variables&& c) {
    seen.push_back(checkpoint_valid());
    return std::move(c);
  };
  bool prune_inner = false;
  Variable y = through("outer", x, [&](Variables&& c) {
    seen.push_back(checkpoint_valid());
    Variable inner = through("inner", inner_leaf, note);
    if (prune_inner)
      grad(std::array{inner}, std::array{inner_leaf}, std::array{one});
    else
      inner.backward(one);
    seen.push_back(checkpoint_valid());
    return std::move(c);
  });
  y.backward(one, true);
  EXPECT_EQ(seen, (std::vector<bool>{true, true, true}));
  seen.clear();
  grad(std::array{y}, std::array{x}, std::array{one}, {.keep_graph = true});
  EXPECT_EQ(seen, (std::vector<bool>{false, false, false}));
  seen.clear();
  prune_inner = true;
  y.backward(one);
  EXPECT_EQ(seen, (std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace gradus::autograd::testing
