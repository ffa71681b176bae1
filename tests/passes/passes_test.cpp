// What all passes keep: meaning, order, names; and what they cost on long and wide programs.
#include "ir/passes/checkpoint_loops.h"
#include "ir/passes/hoist_invariants.h"
#include "ir/passes/join_parts.h"
#include "tests/passes/random_program.h"

namespace gradus {
namespace {

using namespace test;

struct Pass {
  const char* name;
  void (*run)(ir::Graph&);
};
const Pass passes[] = {
    {"settle_calls", [](ir::Graph& g) { ir::settle_calls(g); }},
    {"decompose", [](ir::Graph& g) { ir::decompose(g, false); }},
    {"decompose but rules", [](ir::Graph& g) { ir::decompose(g, true); }},
    {"expand_grad", [](ir::Graph& g) { ir::expand_grad(g); }},
    {"eliminate_dead_code", [](ir::Graph& g) { ir::eliminate_dead_code(g); }},
    {"eliminate_common_subexpressions",
     [](ir::Graph& g) { ir::eliminate_common_subexpressions(g); }},
    {"eliminate_identities", [](ir::Graph& g) { ir::eliminate_identities(g); }},
    {"checkpoint_loops", [](ir::Graph& g) { ir::checkpoint_loops(g); }},
    {"hoist_invariants", [](ir::Graph& g) { ir::hoist_invariants(g); }},
    {"join_parts", [](ir::Graph& g) { ir::join_parts(g); }},
    {"fold_constants", [](ir::Graph& g) { ir::fold_constants(g); }},
    {"compact", [](ir::Graph& g) { ir::compact(g); }},
    {"lower", [](ir::Graph& g) { g = ir::lower(g); }},
};

const char* const mixed = R"(
graph inner {
  stage 0 (%x: f64[K]) {
    %y = gelu(%x)
    %s = sum(%y)
    %d = grad(%s, %x)
    return %y, %d
  }
}
graph mixed {
  stage 0 (%x: f64[N], %w: f64[N], %unused: f32[2]) {
    %c = constant() {value = f64[] 2.0}
    %k = mul(%c, 3.0)
    %a = mul(%x, %w)
    %same = mul(%x, %w)
    %dead = acosh(%a)
    %b = mul(%same, %k)
    %y, %d = call(%b) {graph = "inner"}
    %t = logsumexp(%y) {dim = 0}
    %g, %h = grad(%t, %x, %w)
    return first = %a, second = %same, third = %x, fourth = none,
      fifth = %g, again = %g, sixth = %d, k = %k, t = %t
  }
  stage 1 (%v: f64[N]) {
    %same2 = mul(%x, %w)
    %z = add(%same2, %v)
    %q = add(%z, %h)
    return q = %q
  }
}
)";

// SPEC P2
TEST(Passes, KeepMeaningSignaturesAndAreIdempotent) {
  ir::Graph g = graph_of(mixed);
  std::vector<std::vector<Tensor>> in{
      {f64({0.3, -1, 2}), f64({1, 0.5, -0.7}), Tensor::zeros(DType::f32, Sizes{2})},
      {f64({1, 2, 3})}};
  auto want = run_all(g, in);
  for (const Pass& pass : passes) {
    SCOPED_TRACE(pass.name);
    ir::Graph once = g;
    pass.run(once);
    ir::verify(once);
    for (size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(once.stages[s].results.size(), g.stages[s].results.size());
      EXPECT_EQ(signature(once, s), signature(g, s));
    }
    auto got = run_all(once, in);
    for (size_t s = 0; s < 2; ++s)
      for (size_t i = 0; i < want[s].size(); ++i) {
        ASSERT_EQ(got[s][i].defined(), want[s][i].defined());
        if (!got[s][i].defined()) continue;
        // Taken apart first, a composition is differentiated otherwise: the same but for rounding.
        for (int64_t e = 0; e < got[s][i].numel(); ++e)
          EXPECT_NEAR(got[s][i].item(e), want[s][i].item(e), 1e-14);
      }
    std::string text = print(once);
    pass.run(once);
    EXPECT_EQ(print(once), text);
  }
  for (uint64_t seed = 500; seed < 530; ++seed) {
    ir::Graph random = derived(RandomProgram(seed).graph(), {.order = 2});
    for (const Pass& pass : passes) {
      ir::Graph once = random;
      pass.run(once);
      std::string text = print(once);
      pass.run(once);
      EXPECT_EQ(print(once), text) << pass.name << " " << seed;
    }
  }
}

// What stays keeps its order.
TEST(Passes, KeepTheOrderOfNodes) {
  for (uint64_t seed = 600; seed < 620; ++seed) {
    ir::Graph g = derived(RandomProgram(seed).graph(), {.order = 1});
    for (auto run : {+[](ir::Graph& p) { ir::eliminate_dead_code(p); },
                     +[](ir::Graph& p) { ir::eliminate_common_subexpressions(p); }}) {
      ir::Graph p = g;
      run(p);
      for (size_t s = 0; s < 2; ++s) {
        size_t at = 0;
        for (const ir::Node& node : p.stages[s].nodes) {
          while (at < g.stages[s].nodes.size() &&
                 g.stages[s].nodes[at].results[0] != node.results[0])
            ++at;
          ASSERT_LT(at, g.stages[s].nodes.size());
        }
      }
    }
  }
}

// Reshapes, casts, expansions and squeezes to the type that is there; not what moves elements,
// which may keep the type as well.
TEST(Passes, IdentitiesGoBeforeCommonSubexpressions) {
  ir::Graph low = lowered(graph_of(R"(
    graph g {
      stage 0 (%x: f64[N, N], %w: f32[2]) {
        %a = reshape(%x) {shape = [N, N]}
        %b = expand(%a) {shape = [N, N]}
        %c = cast(%b) {dtype = f64}
        %d = squeeze(%c)
        %t = transpose(%d) {dim0 = 0, dim1 = 1}
        %s = tanh(%d)
        %r = tanh(%x)
        %e = reshape(%s) {shape = [N, N]}
        %y = add(%e, %r)
        %h = cast(%w) {dtype = f64}
        return %y, %t, kept = %c, %h
      }
      stage 1 (%u: f64[N, N]) {
        %v = reshape(%u) {shape = [N, N]}
        %z = mul(%v, %d)
        return %z
      }
    }
  )"));
  for (const char* gone : {"reshape", "expand", "squeeze"})
    EXPECT_EQ(count(low, 0, gone) + count(low, 1, gone), 0u) << gone;
  EXPECT_EQ(count(low, 0, "tanh"), 1u);
  EXPECT_EQ(count(low, 0, "cast"), 1u);
  EXPECT_EQ(low.stages[0].nodes.size(), 4u);  // tanh, the transpose, add, the other cast
  EXPECT_EQ(low.stages[0].results[2].value, low.stages[0].inputs[0]);
  EXPECT_EQ(low.stages[0].results[2].name, "kept");
}

// What follows from places alone, as masks and window bounds do, is computed once, and what is
// written twice still goes. Not where a run knows a size, nor where the result is large, and not
// from a number that readers broadcast.
TEST(Passes, ArithmeticOfKnownPlacesFolds) {
  ir::Graph g = graph_of(R"(
    graph g {
      stage 0 (%x: f64[4, 4], %w: f64[N]) {
        %i = arange() {end = 4}
        %rows = unsqueeze(%i) {dim = 1}
        %keep = le(%i, %rows)
        %masked = where(%keep, %x, 0.0)
        %place = floor_divide(%i, 2)
        %picked = index_select(%masked, %place) {dim = 1}
        %n = arange() {end = N}
        %m = mul(%n, 2)
        %scaled = mul(%w, %m)
        %long = arange() {end = 1025}
        %twice = mul(%long, 2)
        %one = full() {shape = [4], value = 3}
        %five = add(%one, 2)
        %alone = arange() {end = 3}
        %unit = eye() {n = 2, dtype = f64}
        %minus = neg(%unit)
        return %picked, %scaled, %twice, %five, %alone, %minus
      }
      stage 1 (%u: f64[4, 4]) {
        %again = arange() {end = 4}
        %rows1 = unsqueeze(%again) {dim = 1}
        %keep1 = le(%again, %rows1)
        %v = where(%keep1, %u, 0.0)
        %q = index_select(%v, %place) {dim = 1}
        return %q
      }
    }
  )");
  ir::Graph low = lowered(g);
  for (const char* gone : {"unsqueeze", "le", "floor_divide", "neg"})
    EXPECT_EQ(count(low, 0, gone) + count(low, 1, gone), 0u) << gone;
  EXPECT_EQ(count(low, 0, "constant"), 3u);  // the mask, the places and the matrix
  EXPECT_EQ(count(low, 1, "constant"), 1u);  // its own mask
  EXPECT_EQ(count(low, 0, "arange"), 3u);    // of N, of 1025 and the one that is a result
  EXPECT_EQ(count(low, 0, "mul"), 3u);
  EXPECT_EQ(count(low, 0, "add"), 1u);
  const Tensor x = f64(Sizes{4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7});
  const auto got = run_all(low, {{x, f64({1, 2, 3})}, {x}});
  const auto numbers = [&](size_t stage, size_t r) {
    std::vector<double> v;
    for (int64_t e = 0; e < got[stage][r].numel(); ++e) v.push_back(got[stage][r].item(e));
    return v;
  };
  const std::vector<double> picked{1, 1, 0, 0, 5, 5, 6, 6, 9, 9, 1, 1, 4, 4, 5, 5};
  EXPECT_EQ(numbers(0, 0), picked);
  EXPECT_EQ(numbers(0, 1), (std::vector<double>{0, 4, 12}));
  EXPECT_EQ(numbers(0, 2)[1024], 2048);
  EXPECT_EQ(numbers(0, 3), (std::vector<double>{5, 5, 5, 5}));
  EXPECT_EQ(numbers(0, 4), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(numbers(0, 5), (std::vector<double>{-1, 0, 0, -1}));
  EXPECT_EQ(numbers(1, 0), picked);
}

// Equal masks that are too large to fold are computed once all the same, though their operands
// fold.
TEST(Passes, CommonSubexpressionsGoBeforeConstantsFold) {
  const ir::Graph low = lowered(graph_of(R"(
    graph g {
      stage 0 (%x: f64[100, 100], %y: f64[100, 100]) {
        %i = arange() {end = 100}
        %rows = unsqueeze(%i) {dim = 1}
        %keep = le(%i, %rows)
        %a = where(%keep, %x, 0.0)
        %j = arange() {end = 100}
        %rows2 = unsqueeze(%j) {dim = 1}
        %keep2 = le(%j, %rows2)
        %b = where(%keep2, %y, 0.0)
        return %a, %b
      }
    }
  )"));
  EXPECT_EQ(count(low, 0, "le"), 1u);
}

// A node of several results becomes as many constants, whatever is read behind it and in a later
// stage.
TEST(Passes, NodesOfSeveralResultsFold) {
  const ir::Graph low = lowered(graph_of(R"(
    graph g {
      stage 0 (%x: f64[4]) {
        %i = arange() {end = 4}
        %c = arange() {end = 8, dtype = f64}
        %a, %b, %d, %e, %f, %h, %k, %l = split(%c) {sizes = [1, 1, 1, 1, 1, 1, 1, 1], dim = 0}
        %r = mul(%i, 2)
        %y = mul(%x, %r)
        %z = add(%y, %h)
        return %z
      }
      stage 1 (%u: f64[4]) {
        %s = mul(%i, 3)
        %w = mul(%u, %s)
        return %w
      }
    }
  )"));
  EXPECT_EQ(count(low, 0, "split") + count(low, 0, "arange"), 0u);
  const Tensor x = f64({1, 1, 2, 2});
  const auto got = run_all(low, {{x}, {x}});
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got[0][0].item(i), x.item(i) * 2 * static_cast<double>(i) + 5);
    EXPECT_EQ(got[1][0].item(i), x.item(i) * 3 * static_cast<double>(i));
  }
}

// By one, also where it was expanded: what the gradient of a sum is multiplied by. Not where the
// ones give the result its shape or dtype, and not by anything that a run knows.
TEST(Passes, ProductsByOnesGo) {
  ir::Graph low = lowered(graph_of(R"(
    graph g {
      stage 0 (%x: f64[N], %i: i64[N], %s: f64[], %n: f64[]) {
        %one = constant() {value = f64[] 1.0}
        %row = unsqueeze(%one) {dim = 0}
        %ones = expand(%row) {shape = [N]}
        %a = mul(%ones, %x)
        %b = mul(%a, 1.0)
        %more = mul(%ones, %ones)
        %c = mul(%b, %more)
        %wide = mul(%s, %ones)
        %real = mul(%i, 1.0)
        %two = constant() {value = f64[] 2.0}
        %pair = expand(%two) {shape = [N]}
        %d = mul(%x, %pair)
        %e = mul(%x, %n)
        %f = mul(3.0, %x)
        return kept = %c, %wide, %real, %d, %e, %f
      }
    }
  )"));
  EXPECT_EQ(low.stages[0].results[0].value, low.stages[0].inputs[0]);
  EXPECT_EQ(low.stages[0].results[0].name, "kept");
  EXPECT_EQ(count(low, 0, "mul"), 5u);
}

// Where an operand was broadcast, its gradient is negated when it is summed.
TEST(Passes, GradientsAreSummedBeforeTheyAreNegated) {
  ir::Graph low = lowered(graph_of(R"(
    graph g {
      stage 0 (%x: f64[N, M], %y: f64[M]) {
        %d = sub(%x, %y)
        %q = div(%d, %y)
        %s = square(%q)
        %l = sum(%s)
        %g = grad(%l, %y)
        return %g
      }
    }
  )"));
  size_t negations = 0;
  for (const ir::Node& n : low.stages[0].nodes) {
    if (n.op->name != "neg") continue;
    ++negations;
    EXPECT_EQ(low[n.results[0]].type.rank(), 1);
  }
  EXPECT_EQ(negations, 2u);
}

TEST(Passes, RemoveWhatIsNotNeeded) {
  ir::Graph low = lowered(graph_of(mixed));
  EXPECT_EQ(count(low, 0, "acosh"), 0u);
  EXPECT_EQ(low.stages[0].results[0].value, low.stages[0].results[1].value);
  size_t products = 0;  // of x and w
  for (const ir::Node& n : low.stages[0].nodes)
    products += n.op->name == "mul" && value_in(n.operands[0]) == low.stages[0].inputs[0] &&
                value_in(n.operands[1]) == low.stages[0].inputs[1];
  EXPECT_EQ(products, 1u);
  // k = 2 * 3 is a constant now.
  ir::ValueId k = low.stages[0].results[7].value;
  for (const ir::Node& n : low.stages[0].nodes)
    if (n.results[0] == k) {
      EXPECT_EQ(n.op->name, "constant");
    }
}

TEST(Passes, TellZerosAndNumbersApart) {
  // 0.0 and -0.0, 1 and 1.0 and true are not common subexpressions.
  auto r = run_all(graph_of(R"(
graph f {
  stage 0 (%x: f64[], %i: i64[]) {
    %a = mul(%x, 0.0)
    %b = mul(%x, -0.0)
    %p = add(%i, 1)
    %q = add(%i, 1.0)
    %f = full() {shape = [1], value = 0.0, dtype = f64}
    %g = full() {shape = [1], value = -0.0, dtype = f64}
    return %a, %b, %p, %q, %f, %g
  }
}
)"),
                   {{scalar(1), Tensor::from(DType::i64, Sizes{}, std::vector<double>{1})}});
  EXPECT_FALSE(std::signbit(r[0][0].item()));
  EXPECT_TRUE(std::signbit(r[0][1].item()));
  EXPECT_EQ(r[0][2].dtype(), DType::i64);
  EXPECT_EQ(r[0][3].dtype(), DType::f32);
  EXPECT_FALSE(std::signbit(r[0][4].item()));
  EXPECT_TRUE(std::signbit(r[0][5].item()));
}

// Integers that make floats of the default type are of the new type as well.
TEST(Passes, RetypeEveryFloat) {
  ir::Graph g = ir::retype_floating(graph_of(R"(
graph f {
  stage 0 (%x: f32[2], %i: i64[2]) {
    %h = mul(%i, 2.5)
    %q = div(%i, 2)
    %y = mul(%x, %h)
    %c = cast(%i) {dtype = f32}
    %b = cast(%x) {dtype = bf16}
    %d = constant() {value = f16[2] [1, 2]}
    return %h, %q, %y, %c, %b, %d, %i
  }
}
)"),
                                    DType::f64);
  ir::verify(g);
  EXPECT_EQ(signature(g, 0),
            "x: f64[2], i: i64[2] -> h: f64[2], q: f64[2], y: f64[2], c: f64[2], b: f64[2], d: "
            "f64[2], i: i64[2]");
  auto r =
      run_all(g, {{f64({1, 2}), Tensor::from(DType::i64, Sizes{2}, std::vector<double>{3, 4})}});
  EXPECT_EQ(r[0][2].to_doubles(), (std::vector<double>{7.5, 20}));
}

class Builder {
 public:
  Builder() {
    graph_.name = "big";
    graph_.stages.emplace_back();
  }
  ir::ValueId input(const char* name, ir::Dims dims) {
    ir::ValueId x = graph_.add_value(ir::Type(DType::f64, std::move(dims)), name, 0);
    graph_.stages[0].inputs.push_back(x);
    return x;
  }
  ir::ValueId add(const char* op, std::initializer_list<ir::Operand> operands,
                  const ir::LiteralList& attributes = {}) {
    const ir::Operator* o = ops::find(op);
    ir::Node node{o, o->read(attributes), SmallVector<ir::Operand, 2>(operands), {}, {}};
    ir::Type type = ops::infer(graph_, node, nullptr)[0];
    node.results.push_back(graph_.add_value(std::move(type), {}, 0));
    graph_.stages[0].nodes.push_back(std::move(node));
    return graph_.stages[0].nodes.back().results[0];
  }
  ir::Graph finish(ir::ValueId y) {
    graph_.stages[0].results.push_back({"y", y});
    return std::move(graph_);
  }

 private:
  ir::Graph graph_;
};

constexpr int length = 100000;

void run_twice_differentiated(ir::Graph g, double x, double want, double want_d) {
  auto start = std::chrono::steady_clock::now();
  ir::Graph second = ir::differentiate(g, {.order = 2});
  State state(Code::compile(second));
  double y = run(state, {f64({x})})[0].item();
  EXPECT_NEAR(y, want, 1e-9 * std::abs(want));
  EXPECT_NEAR(run(state, {f64({1})})[0].item(), want_d, 1e-9 * std::abs(want_d));
  run(state, {f64({1})});
  auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 200);  // a few where this was written
}

TEST(Passes, LongChains) {
  Builder b;
  ir::ValueId x = b.input("x", {1}), y = x;
  for (int i = 0; i < length; ++i) y = b.add(i % 2 ? "neg" : "sin", {y});
  ir::Graph g = b.finish(y);
  double want = 0.5, d = 1;
  for (int i = 0; i < length; ++i) {
    d *= i % 2 ? -1 : std::cos(want);
    want = i % 2 ? -want : std::sin(want);
  }
  run_twice_differentiated(std::move(g), 0.5, want, d);
}

TEST(Passes, WideFanOut) {
  Builder b;
  ir::ValueId x = b.input("x", {1}), sum = x;
  for (int i = 0; i < length; ++i) {
    ir::ValueId term = b.add("mul", {x, ir::Number::of(1.0 + i)});
    sum = b.add("add", {sum, term});
  }
  double factor = 1;
  for (int i = 0; i < length; ++i) factor += 1.0 + i;
  run_twice_differentiated(b.finish(sum), 2, 2 * factor, factor);
}

TEST(Passes, DeepViews) {
  Builder b;
  ir::ValueId y = b.input("x", {1});
  for (int i = 0; i < length; ++i) {
    switch (i % 4) {
      case 0:
        y = b.add("unsqueeze", {y}, {{"dim", int64_t{0}, {}}});
        break;
      case 1:
        y = b.add("transpose", {y}, {{"dim0", int64_t{0}, {}}, {"dim1", int64_t{1}, {}}});
        break;
      case 2:
        y = b.add("reshape", {y}, {{"shape", ir::Literal::list(ir::Dims{1}), {}}});
        break;
      case 3:
        y = b.add("slice", {y},
                  {{"dim", int64_t{0}, {}}, {"start", int64_t{0}, {}}, {"end", int64_t{1}, {}}});
        break;
    }
  }
  y = b.add("reshape", {y}, {{"shape", ir::Literal::list(ir::Dims{1}), {}}});
  ir::ValueId z = b.add("mul", {y, y});
  run_twice_differentiated(b.finish(z), 3, 9, 6);
}

// Equal but for one number each: nothing common, all hashed.
TEST(Passes, ManyDifferentNumbers) {
  Builder b;
  ir::ValueId x = b.input("x", {1}), sum = x;
  for (int i = 0; i < length; ++i)
    sum = b.add("add", {b.add("mul", {x, ir::Number::of(std::ldexp(1.0, i % 100) + i)}), sum});
  ir::Graph g = b.finish(sum);
  auto start = std::chrono::steady_clock::now();
  ir::eliminate_common_subexpressions(g);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 20);
}

}  // namespace
}  // namespace gradus
