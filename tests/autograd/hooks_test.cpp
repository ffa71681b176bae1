// Hooks: their order, what they may change, when they count.
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);

TensorHook note(std::string& log, std::string word) {
  return [&log, word](const Variable&) {
    log += word + " ";
    return Variable();
  };
}

// SPEC N7
TEST(Hooks, RunInOneOrder) {
  OwnEngine engine;
  std::string log;
  Variable x = leaf({2});
  Variable y = through("node", x, [&](Variables&& c) {
    log += "node ";
    return std::move(c);
  });
  // Registered in an order that is not the one they run in.
  x.register_post_accumulate_hook([&](const Variable& v) {
    EXPECT_TRUE(v.same_as(x) && v.grad().defined());
    log += "post-accumulate ";
  });
  y.grad_fn()->hooks().add_post([&](const Variables&, const Variables&) {
    log += "post ";
    return Variables();
  });
  y.grad_fn()->hooks().add_pre([&](const Variables&) {
    EXPECT_EQ(values(y.grad()), std::vector<double>{1});  // retained by now
    log += "pre ";
    return Variables();
  });
  y.retain_grad();
  y.register_hook([&](const Variable&) {
    EXPECT_FALSE(y.grad().defined());  // retained after all of these
    log += "tensor-pre ";
    return Variable();
  });
  x.register_hook(note(log, "leaf-pre"));
  Capture capture{y.gradient_edge(), {[&](const Variable&) {
                    log += "capture ";
                    return Variable();
                  }}};
  Capture leaf_capture{x.gradient_edge(), {}};
  execute(*engine, y, {.keep_graph = true, .accumulate_grad = true}, {capture, leaf_capture});
  EXPECT_EQ(log, "tensor-pre capture pre node post leaf-pre post-accumulate ");
}

// SPEC N7
TEST(Hooks, ThoseOfOneKindRunInTheOrderOfRegistration) {
  std::string log;
  Variable x = leaf({2}), y = through("node", x, hand_on);
  y.register_hook(note(log, "a"));
  y.retain_grad();
  y.register_hook(note(log, "b"));
  x.register_hook(note(log, "c"));
  x.register_hook(note(log, "d"));
  y.backward(one);
  EXPECT_EQ(log, "a b c d ");
}

// SPEC N7
TEST(Hooks, ReplaceGradients) {
  Variable x = leaf({2});
  Variable y = through("node", x, [](Variables&& c) {
    return Variables{op("mul", {c[0], scalar(10, false)})};
  });
  auto plus = [](double d) {
    return [d](const Variable& g) { return op("add", {g, scalar(d, false)}); };
  };
  y.register_hook(plus(1));
  y.retain_grad();
  y.grad_fn()->hooks().add_pre([&](const Variables& g) { return Variables{plus(2)(g[0])}; });
  y.grad_fn()->hooks().add_post([&](const Variables& out, const Variables& in) {
    EXPECT_EQ(values(in[0]), std::vector<double>{4});
    return Variables{plus(5)(out[0])};
  });
  x.register_hook(plus(100));
  y.backward(one);
  EXPECT_EQ(values(y.grad()), std::vector<double>{2});
  EXPECT_EQ(values(x.grad()), std::vector<double>{145});
}

// SPEC N7, E4
TEST(Hooks, RunOnceAlsoWhereTheNodeDoesNot) {
  int runs = 0, pre = 0, node_runs = 0;
  Variable x = leaf({2});
  Variable y = through("node", x, [&](Variables&& c) {
    ++node_runs;
    return std::move(c);
  });
  y.register_hook([&](const Variable& g) {
    ++runs;
    return op("add", {g, g});
  });
  y.grad_fn()->hooks().add_pre([&](const Variables&) {
    ++pre;
    return Variables();
  });
  y.retain_grad();
  Variable z = op("mul", {y, scalar(3, false)});
  Variables got = grad(std::array{z}, std::array{y, y}, std::array{one});
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(pre + node_runs, 0);
  EXPECT_EQ(values(got[0]), std::vector<double>{6});
  EXPECT_EQ(values(got[1]), std::vector<double>{6});
  EXPECT_EQ(values(y.grad()), std::vector<double>{6});
}

// SPEC N7
TEST(Hooks, RetainedGradientsBelongToTheirOutput) {
  Variable x = leaf({1, 2, 3, 4});
  Variables parts = apply("chunk", {x}, {{"chunks", int64_t{2}, {}}});
  parts[1].retain_grad();
  parts[1].retain_grad();  // once is enough
  EXPECT_TRUE(parts[1].retains_grad());
  EXPECT_FALSE(parts[0].retains_grad());
  backward(parts, std::array{leaf({1, 2}, false), leaf({3, 4}, false)}, true);
  EXPECT_EQ(values(parts[1].grad()), (std::vector<double>{3, 4}));
  EXPECT_FALSE(parts[0].grad().defined());
  WeakVariable popped = parts[1].grad_fn()->hooks().pop_retains_grad(1);
  EXPECT_TRUE(popped.lock().same_as(parts[1]));
  EXPECT_FALSE(parts[1].grad_fn()->hooks().pop_retains_grad(1).lock().defined());
  parts[1].set_grad({});
  backward(parts, std::array{leaf({1, 2}, false), leaf({3, 4}, false)});
  EXPECT_FALSE(parts[1].grad().defined());
}

// SPEC N7
TEST(Hooks, AreRemovedByTheirKey) {
  std::string log;
  Variable x = leaf({2}), y = through("node", x, hand_on);
  Hooks& hooks = y.grad_fn()->hooks();
  uint64_t tensor = y.register_hook(note(log, "tensor"));
  uint64_t leafs = x.register_hook(note(log, "leaf"));
  uint64_t pre = hooks.add_pre([&](const Variables&) {
    log += "pre ";
    return Variables();
  });
  auto post = [&](std::string word) {
    return hooks.add_post([&log, word](const Variables&, const Variables&) {
      log += word + " ";
      return Variables();
    });
  };
  uint64_t first = post("post1"), second = post("post2");
  uint64_t after = x.register_post_accumulate_hook([&](const Variable&) { log += "after "; });
  y.backward(one, true);
  EXPECT_EQ(log, "tensor pre post1 post2 leaf after ");
  EXPECT_TRUE(hooks.remove(first));
  EXPECT_FALSE(hooks.remove(first));
  log.clear();
  y.backward(one, true);
  EXPECT_EQ(log, "tensor pre post2 leaf after ");
  EXPECT_TRUE(y.remove_hook(tensor) && hooks.remove(pre) && hooks.remove(second));
  EXPECT_TRUE(x.remove_hook(leafs) && x.remove_post_accumulate_hook(after));
  EXPECT_FALSE(x.remove_hook(leafs) || x.remove_post_accumulate_hook(after));
  log.clear();
  y.backward(one);
  EXPECT_EQ(log, "");
}

// SPEC N7
TEST(Hooks, WhatIsAddedOrRemovedDuringARunCountsFromTheNextOn) {
  std::string log;
  Variable x = leaf({2});
  Variable y = through("node", x, hand_on);
  Hooks& hooks = y.grad_fn()->hooks();
  uint64_t late = 0;
  bool changed = false;
  y.register_hook([&](const Variable&) {
    if (std::exchange(changed, true)) return Variable();
    EXPECT_TRUE(hooks.remove(late));
    hooks.add_pre([&](const Variables&) {
      log += "added ";
      return Variables();
    });
    return Variable();
  });
  late = hooks.add_post([&](const Variables&, const Variables&) {
    log += "removed ";
    return Variables();
  });
  bool once = false;
  x.register_hook([&](const Variable&) {
    if (std::exchange(once, true)) return Variable();
    x.register_hook(note(log, "leaf"));
    x.register_post_accumulate_hook([&](const Variable&) { log += "after "; });
    return Variable();
  });
  y.backward(one, true);
  EXPECT_EQ(log, "removed ");
  log.clear();
  y.backward(one, true);
  EXPECT_EQ(log, "added leaf after ");
}

// SPEC N7
TEST(Hooks, ThatGiveWhatDoesNotFitAreErrors) {
  auto message = [](auto arrange) {
    Variable x = leaf({2});
    Variable y = joined("node", {x, x}, copies(2));
    arrange(x, y);
    return error_of([&] { y.backward(one); });
  };
  auto wrong = [](const Variable&) { return leaf({1, 2}, false); };
  std::string text = message([&](Variable&, Variable& y) { y.register_hook(wrong); });
  EXPECT_NE(text.find("tensor pre-hook of 'node' made f64[2] out of f64[1]"), std::string::npos)
      << text;
  text = message([&](Variable& x, Variable&) { x.register_hook(wrong); });
  EXPECT_NE(text.find("hook of 'AccumulateGrad'"), std::string::npos) << text;
  text = message([&](Variable&, Variable& y) {
    y.register_hook([](const Variable&) { return leaf({1}, false, DType::f32); });
  });
  EXPECT_NE(text.find("f32[1]"), std::string::npos) << text;
  text = message([&](Variable&, Variable& y) {
    y.grad_fn()->hooks().add_pre([](const Variables& g) { return Variables(2, g[0]); });
  });
  EXPECT_NE(text.find("pre-hook of 'node' returned 2 gradients; it has to return 1"),
            std::string::npos)
      << text;
  text = message([&](Variable&, Variable& y) {
    y.grad_fn()->hooks().add_post(
        [](const Variables& out, const Variables&) { return Variables{out[0]}; });
  });
  EXPECT_NE(text.find("post-hook of 'node' returned 1 gradients; it has to return 2"),
            std::string::npos)
      << text;
}

// SPEC N7
TEST(Hooks, MayFillAnUndefinedGradientWithOneThatFits) {
  OwnEngine engine;
  for (bool fits : {true, false}) {
    Variable x = leaf({2}), y = through("node", x, hand_on);
    y.register_hook([](const Variable&) -> Variable { throw "not called for undefined ones"; });
    y.grad_fn()->hooks().add_pre([&](const Variables&) {
      return Variables{fits ? leaf({7}, false) : leaf({7, 8}, false)};
    });
    auto run = [&] {
      engine->execute(std::array{y.gradient_edge()}, std::array{Variable()}, accumulate);
    };
    if (fits) {
      run();
      EXPECT_EQ(values(x.grad()), std::vector<double>{7});
    } else {
      std::string text = error_of(run);
      EXPECT_NE(text.find("pre-hook of 'node'"), std::string::npos) << text;
    }
  }
}

// SPEC N7
TEST(Hooks, AreForInputsThatAreThere) {
  Variable x = leaf({2}), y = through("node", x, hand_on);
  Hooks& hooks = y.grad_fn()->hooks();
  uint64_t key = hooks.add_tensor_pre(3, [](const Variable& g) { return g; });
  std::string text = error_of([&] { y.backward(one, true); });
  EXPECT_NE(text.find("input 3 of 'node', which has 1 inputs"), std::string::npos) << text;
  EXPECT_TRUE(hooks.remove(key));
  hooks.set_retains_grad(7, WeakVariable(y));
  // An input that comes while the task runs is not there in this run.
  Variable top = through("top", y, [&](Variables&& c) {
    y.grad_fn()->add_undefined_input();
    return std::move(c);
  });
  top.backward(one);
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(values(x.grad()), std::vector<double>{1});
}

// SPEC N7
TEST(Hooks, AreFunctions) {
  Variable x = leaf({2}), y = through("node", x, hand_on);
  EXPECT_NE(error_of([&] { x.register_hook(nullptr); }).find("empty"), std::string::npos);
  EXPECT_NE(error_of([&] { y.register_hook(nullptr); }).find("empty"), std::string::npos);
  EXPECT_NE(error_of([&] { x.register_post_accumulate_hook(nullptr); }).find("empty"),
            std::string::npos);
  EXPECT_NE(error_of([&] { y.grad_fn()->hooks().add_post(nullptr); }).find("empty"),
            std::string::npos);
  std::string log;
  EXPECT_NE(
      error_of([&] { leaf({1}, false).register_hook(note(log, "")); }).find("requires gradients"),
      std::string::npos);
  EXPECT_NE(
      error_of([&] { y.register_post_accumulate_hook([](const Variable&) {}); }).find("leaves"),
      std::string::npos);
}

// SPEC N7, E10
TEST(Hooks, ThatThrowFailTheTaskAndLeaveTheRestAlone) {
  struct Odd {
    int code;
  };
  for (int kind = 0; kind < 5; ++kind) {
    Variable x = leaf({2}), y = through("node", x, hand_on);
    uint64_t key = 0;
    auto bad = [](const auto&...) -> Variables { throw Odd{3}; };
    auto bad_tensor = [](const Variable&) -> Variable { throw Odd{3}; };
    if (kind == 0) key = y.register_hook(bad_tensor);
    if (kind == 1) key = y.grad_fn()->hooks().add_pre(bad);
    if (kind == 2) key = y.grad_fn()->hooks().add_post(bad);
    if (kind == 3) key = x.register_hook(bad_tensor);
    if (kind == 4) key = x.register_post_accumulate_hook([](const Variable&) { throw Odd{3}; });
    EXPECT_THROW(y.backward(one, true), Odd) << kind;
    if (kind == 4) x.set_grad({});
    EXPECT_TRUE(kind < 3    ? y.remove_hook(key)
                : kind == 3 ? x.remove_hook(key)
                            : x.remove_post_accumulate_hook(key));
    y.backward(one);
    EXPECT_EQ(values(x.grad()), std::vector<double>{1}) << kind;
  }
}

// SPEC N7, N13, E9
TEST(Hooks, MayCallTheEngineAndChangeHooks) {
  for (int kind = 0; kind < 6; ++kind) {
    Variable x = leaf({2}), y = through("node", x, hand_on);
    Variable other = leaf({3});
    int runs = 0;
    // Everything that takes a lock somewhere.
    auto busy = [&] {
      ++runs;
      EXPECT_GE(current_task_id(), 0);
      nodes_in_current_task();
      (void)y.grad_fn()->task_should_compute_output(0);
      uint64_t key = y.grad_fn()->hooks().add_pre([](const Variables&) { return Variables(); });
      EXPECT_TRUE(y.grad_fn()->hooks().remove(key));
      key = x.register_hook([](const Variable& g) { return g; });
      EXPECT_TRUE(x.remove_hook(key));
      x.grad();
      through("inner", other, hand_on).backward(leaf({6}, false));
      Engine::queue_callback([] {});
    };
    auto tensor = [&](const Variable&) {
      busy();
      return Variable();
    };
    if (kind == 0) y.register_hook(tensor);
    if (kind == 1)
      y.grad_fn()->hooks().add_pre([&](const Variables&) {
        busy();
        return Variables();
      });
    if (kind == 2)
      y.grad_fn()->hooks().add_post([&](const Variables&, const Variables&) {
        busy();
        return Variables();
      });
    if (kind == 3) x.register_hook(tensor);
    if (kind == 4) x.register_post_accumulate_hook([&](const Variable&) { busy(); });
    if (kind == 5) {
      execute(*engine_of(current_context()), y, {}, {{x.gradient_edge(), {tensor}}});
    } else {
      y.backward(one, true);
      EXPECT_EQ(values(x.grad()), std::vector<double>{1}) << kind;
    }
    EXPECT_EQ(runs, 1) << kind;
    EXPECT_EQ(values(other.grad()), std::vector<double>{6}) << kind;
  }
}

// A functor whose copies, when they die, use what the hooks' locks guard.
struct Reenters {
  std::function<void()> use;
  std::shared_ptr<int> count;
  ~Reenters() {
    if (!use) return;
    use();
    ++*count;
  }
  Reenters(std::function<void()> f, std::shared_ptr<int> n) : use(std::move(f)), count(n) {}
  Reenters(const Reenters&) = default;
  Variable operator()(const Variable&) const { return {}; }
  Variables operator()(const Variables&) const { return {}; }
};

// SPEC N13
TEST(Hooks, DieWithNoLockHeld) {
  auto count = std::make_shared<int>(0);
  Variable x = leaf({2}), y = through("node", x, hand_on);
  Node* node = y.grad_fn().get();
  WeakVariable weak(x);
  auto lives = std::make_shared<bool>(true);
  auto use = [node, weak, lives] {
    if (!*lives) return;
    node->hooks().snapshot();
    if (Variable v = weak.lock(); v.defined()) {
      v.grad();
      EXPECT_FALSE(v.remove_hook(0));
    }
  };
  uint64_t a = y.grad_fn()->hooks().add_pre(Reenters(use, count));
  y.grad_fn()->hooks().add_pre(Reenters(use, count));
  y.grad_fn()->hooks().add_pre([](const Variables&) { return Variables(); });
  uint64_t b = x.register_hook(Reenters(use, count));
  x.register_hook(Reenters(use, count));
  *count = 0;
  EXPECT_TRUE(y.grad_fn()->hooks().remove(a));
  EXPECT_TRUE(x.remove_hook(b));
  EXPECT_GE(*count, 2);
  *count = 0;
  y.backward(one);  // lets the node's hooks go
  EXPECT_GE(*count, 1);
  *lives = false;
}

}  // namespace
}  // namespace gradus::autograd::testing
