// What moves out of the steps of loops, and what stays. That bits do not change is shown by the
// corpus (tests/text/loops/invariants.ir).
#include "ir/passes/hoist_invariants.h"
#include "ops/structural.h"
#include "tests/passes/random_program.h"

namespace gradus {
namespace {

using namespace test;

// How many nodes of the operator are in the graph, and in the graphs that its nodes run.
struct Count {
  size_t outside = 0, inside = 0;
  bool operator==(const Count&) const = default;
};

size_t count_in(const ir::Graph& graph, std::string_view op) {
  size_t n = 0;
  for (const ir::Stage& stage : graph.stages)
    for (const ir::Node& node : stage.nodes) n += node.op->name == op;
  return n;
}

size_t count_within(const ir::Graph& graph, std::string_view op) {
  size_t n = 0;
  for (const ir::Stage& stage : graph.stages)
    for (const ir::Node& node : stage.nodes)
      for (const ops::GraphName* named : ops::graphs_in(node))
        n += count_in(*named->graph, op) + count_within(*named->graph, op);
  return n;
}

Count count(const ir::Graph& graph, std::string_view op) {
  return {count_in(graph, op), count_within(graph, op)};
}

ir::Graph hoisted(const std::string& text) {
  ir::Graph g = graph_of(text.c_str());
  ir::hoist_invariants(g);
  ir::verify(g);
  ir::eliminate_dead_code(g);
  return g;
}

const std::string cell = R"(
graph cell {
  stage 0 (%h: f64[H], %x: f64[H], %w: f64[H, H], %k: f64[]) {
    %t = transpose(%w) {dim0 = 0, dim1 = 1}
    %ww = matmul(%t, %w)
    %e = exp(%k)
    %r = mul(%e, 0.5)
    %c = add(%k, 1.0)
    %a = mv(%ww, %h)
    %b = mul(%a, %r)
    %d = mul(%b, %c)
    %n = add(%d, %x)
    return %n
  }
}
)";

std::string loop(std::string_view attributes) {
  return cell + fmt::format(R"(
graph loop {{
  stage 0 (%h0: f64[3], %xs: f64[T, 3], %w: f64[3, 3], %k: f64[]) {{
    %h = scan(%h0, %xs, %w, %k) {{body = "cell", carries = 1, sequences = 1{}}}
    return %h
  }}
}}
)",
                            attributes);
}

TEST(HoistInvariants, MovesFunctionsAndProductsOfConstants) {
  const ir::Graph g = hoisted(loop(""));
  EXPECT_EQ(count(g, "matmul"), (Count{1, 1}));  // `mv` is one, too
  EXPECT_EQ(count(g, "exp"), (Count{1, 0}));
  // A cheap node moves with what it reads; by itself it stays.
  EXPECT_EQ(count(g, "mul"), (Count{1, 2}));
  EXPECT_EQ(count(g, "add"), (Count{0, 2}));
  // The view goes along, for what moves needs it.
  EXPECT_EQ(count(g, "transpose"), (Count{1, 0}));
  const ir::Node& scan = g.stages[0].nodes.back();
  // Two more; the matrix itself is read by no step.
  EXPECT_EQ(scan.operands.size(), 4u + 2u - 1u);
  EXPECT_EQ(ops::graphs_in(scan)[0]->graph->stages[0].inputs.size(), 4u + 2u - 1u);
}

TEST(HoistInvariants, LeavesALoopOfOneStepAsItIs) {
  std::string text = loop("");
  text.replace(text.find("f64[T, 3]"), 9, "f64[1, 3]");
  EXPECT_EQ(count(hoisted(text), "exp"), (Count{0, 1}));
}

TEST(HoistInvariants, LeavesWhatMayRefuseItsOperands) {
  const ir::Graph g = hoisted(R"(
graph step {
  stage 0 (%s: f64[], %i: i64[1], %table: f64[K], %n: i64[], %m: i64[]) {
    %row = index_select(%table, %i) {dim = 0}
    %one = sum(%row)
    %q = floor_divide(%n, %m)
    %f = cast(%q) {dtype = f64}
    %e = exp(%f)
    %p = mul(%one, %e)
    %r = mul(%s, %p)
    return %r
  }
}
graph loop {
  stage 0 (%s: f64[], %i: i64[1], %table: f64[3], %n: i64[], %m: i64[], %l: f64[T]) {
    %r = scan(%s, %i, %table, %n, %m) {body = "step", carries = 1, length = T}
    return %r
  }
}
)");
  for (const char* op : {"index_select", "sum", "floor_divide", "exp"})
    EXPECT_EQ(count(g, op), (Count{0, 1})) << op;
}

TEST(HoistInvariants, GoesAsFarOutAsItCan) {
  const ir::Graph g = hoisted(R"(
graph inner {
  stage 0 (%s: f64[], %k: f64[], %m: f64[]) {
    %e = exp(%k)
    %f = sin(%m)
    %p = mul(%s, %e)
    %q = mul(%p, %f)
    return %q
  }
}
graph outer {
  stage 0 (%m: f64[], %x: f64[], %k: f64[]) {
    %s = scan(%x, %k, %m) {body = "inner", carries = 1, length = 3}
    return %s
  }
}
graph nested {
  stage 0 (%m: f64[], %xs: f64[T], %k: f64[]) {
    %r = scan(%m, %xs, %k) {body = "outer", carries = 1, sequences = 1}
    return %r
  }
}
)");
  EXPECT_EQ(count(g, "exp"), (Count{1, 0}));
  EXPECT_EQ(count(g, "sin"), (Count{0, 1}));
  const ir::Graph& outer = *ops::graphs_in(g.stages[0].nodes.back())[0]->graph;
  EXPECT_EQ(count(outer, "sin"), (Count{1, 0}));  // once for each step of the outer loop
}

// A loop whose constants' sizes only a slice says keeps all.
TEST(HoistInvariants, LeavesWhatHasASizeOfASliceAlone) {
  const ir::Graph g = hoisted(R"(
graph step {
  stage 0 (%s: f64[], %x: f64[K], %k: f64[]) {
    %e = exp(%k)
    %w = expand(%e) {shape = [K]}
    %m = softmax(%w) {dim = 0}
    %p = mul(%m, %x)
    %q = sum(%p)
    %r = add(%s, %q)
    return %r
  }
}
graph loop {
  stage 0 (%s: f64[], %xs: f64[T, K], %k: f64[]) {
    %r = scan(%s, %xs, %k) {body = "step", carries = 1, sequences = 1}
    return %r
  }
}
)");
  EXPECT_EQ(count(g, "exp").outside, 0u);
}

}  // namespace
}  // namespace gradus
