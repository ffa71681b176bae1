// Derivatives of the operators that move elements: three orders, random cotangents.
// SPEC D1, D3
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

TEST(ShapeDerivative, Reshaping) {
  Tensor x = random_tensor({2, 3, 4}, 1);
  expect_derivatives("reshape", {x}, {ints("shape", {4, -1})});
  expect_derivatives("reshape", {scattered(x)}, {ints("shape", {4, 6})});
  expect_derivatives("flatten", {x}, {attribute("start_dim", 1)});
  expect_derivatives("transpose", {x}, {attribute("dim0", 0), attribute("dim1", -1)});
  expect_derivatives("permute", {x}, {ints("dims", {2, 0, -2})});
  expect_derivatives("movedim", {x}, {attribute("source", 0), attribute("destination", -1)});
  Tensor ones = random_tensor({1, 3, 1}, 2);
  expect_derivatives("squeeze", {ones});
  expect_derivatives("squeeze", {ones}, {attribute("dim", -1)});
  expect_derivatives("squeeze", {ones}, {attribute("dim", 1)});
  expect_derivatives("unsqueeze", {x}, {attribute("dim", -2)});
  expect_derivatives("expand", {ones}, {ints("shape", {2, 4, -1, 5})});
  expect_derivatives("expand", {random_tensor({}, 3)}, {ints("shape", {2, 0})});
  expect_derivatives("reshape", {random_tensor({0, 3}, 3)}, {ints("shape", {3, 0})});
}

TEST(ShapeDerivative, Parts) {
  Tensor x = random_tensor({4, 7, 2}, 4);
  expect_derivatives("select", {x}, {attribute("dim", 1), attribute("index", -2)});
  expect_derivatives("slice", {x},
                     {attribute("dim", 1), attribute("start", 2), attribute("end", -1)});
  expect_derivatives("slice", {x},
                     {attribute("dim", 1), attribute("start", 1), attribute("step", 3)});
  expect_derivatives("slice", {x}, {attribute("start", 3), attribute("end", 1)});
  expect_derivatives("narrow", {x},
                     {attribute("dim", 1), attribute("start", -3), attribute("length", 2)});
  expect_derivatives("split", {x}, {ints("sizes", {1, 0, 3}), attribute("dim", 0)});
  expect_derivatives("chunk", {x}, {attribute("chunks", 3), attribute("dim", 1)});
  expect_derivatives("unbind", {x}, {attribute("dim", -1)});
  for (int offset : {0, 2, -1})
    expect_derivatives("diagonal", {x},
                       {attribute("offset", offset), attribute("dim1", 0), attribute("dim2", 1)});
  expect_derivatives("diagonal", {x},
                     {attribute("offset", 1), attribute("dim1", -1), attribute("dim2", 0)});
}

TEST(ShapeDerivative, Windows) {
  Tensor x = random_tensor({3, 4}, 5);
  LiteralList overlapping{ints("size", {2, 3, 2}), ints("stride", {1, 2, 0}),
                          attribute("offset", 3)};
  expect_derivatives("as_strided", {x}, overlapping);
  expect_derivatives("as_strided", {scattered(x)}, overlapping);
  expect_derivatives("as_strided", {x}, {ints("size", {}), ints("stride", {})});
  expect_derivatives("as_strided_sum", {random_tensor({2, 3}, 6)},
                     {ints("shape", {5}), ints("stride", {1, 1})});
  expect_derivatives("unfold", {x},
                     {attribute("dim", 1), attribute("size", 3), attribute("step", 1)});
  expect_derivatives("unfold", {x},
                     {attribute("dim", -2), attribute("size", 1), attribute("step", 2)});
  expect_derivatives("unfold_sum", {random_tensor({2, 3, 2}, 6)},
                     {attribute("length", 6), attribute("dim", 1), attribute("step", 1)});
}

TEST(ShapeDerivative, Joining) {
  Tensor a = random_tensor({2, 3}, 7), b = random_tensor({2, 1}, 8),
         none = random_tensor({2, 0}, 9);
  expect_derivatives("cat", {a, b, none, a}, {attribute("dim", -1)});
  expect_derivatives("cat", {a});
  expect_derivatives("cat", {random_tensor({0}, 1), a});
  expect_derivatives("stack", {a, a, scattered(a)}, {attribute("dim", 1)});
  expect_derivatives("repeat", {a}, {ints("repeats", {2, 1, 3})});
  expect_derivatives("repeat", {a}, {ints("repeats", {0, 2})});
  expect_derivatives("tile", {a}, {ints("dims", {2})});
  expect_derivatives("repeat_interleave", {a}, {attribute("repeats", 2), attribute("dim", 0)});
  expect_derivatives("repeat_interleave", {a}, {attribute("repeats", 3)});
  expect_derivatives("meshgrid",
                     {random_tensor({2}, 1), random_tensor({}, 2), random_tensor({3}, 3)});
  expect_derivatives("flip", {a}, {ints("dims", {0, -1})});
  expect_derivatives("roll", {a}, {ints("shifts", {1, -4}), ints("dims", {1, 0})});
  expect_derivatives("roll", {a}, {attribute("shifts", 4)});
}

TEST(ShapeDerivative, BordersAndTriangles) {
  Tensor x = random_tensor({2, 4, 5}, 10);
  for (int d : {0, 1, -2}) {
    expect_derivatives("tril", {x}, {attribute("diagonal", d)});
    expect_derivatives("triu", {x}, {attribute("diagonal", d)});
  }
  expect_derivatives("pad", {x}, {ints("pad", {1, 2}), attribute("value", 3.5)});
  expect_derivatives("pad", {x}, {ints("pad", {-1, 1, 0, -2, 3, 0})});
  expect_derivatives("pad", {x}, {ints("pad", {-2, -1})});
  for (const char* mode : {"reflect", "replicate", "circular"})
    expect_derivatives("pad", {x}, {ints("pad", {2, 1, 0, 3}), attribute("mode", mode)});
  expect_derivatives("slice_scatter", {x, random_tensor({2, 2, 5}, 11)},
                     {attribute("dim", 1), attribute("start", 1), attribute("step", 2)});
  expect_derivatives("slice_scatter", {x, random_tensor({2, 3, 5}, 11)},
                     {attribute("dim", 1), attribute("start", -3)});
  expect_derivatives("select_scatter", {x, random_tensor({2, 5}, 12)},
                     {attribute("dim", 1), attribute("index", -2)});
  for (int offset : {0, 2, -1})
    expect_derivatives("diag_embed", {x},
                       {attribute("offset", offset), attribute("dim1", 2), attribute("dim2", 0)});
}

TEST(ShapeDerivative, Copies) {
  Tensor x = random_tensor({2, 3}, 13);
  expect_derivatives("clone", {x});
  expect_derivatives("contiguous", {scattered(x)});
  // Nothing leads through these.
  for (const char* op : {"detach"}) {
    Program p(op, {x}, {}, 1);
    EXPECT_EQ(p.graph().stages[1].results[0].value, ir::no_value);
  }
}

TEST(ShapeDerivative, CastComesBack) {
  Program p("cast", {random_tensor({3}, 14)}, {attribute("dtype", DType::f32)}, 1);
  Tensor ct = random_tensor({3}, 15, DType::f32);
  auto results = p.run({p.inputs(), {ct}});
  EXPECT_TRUE(bitwise_equal(results[1][0], ct.to(DType::f64)));
}

// A cotangent for one of several results touches only its part.
TEST(ShapeDerivative, SplitWithOneCotangent) {
  ir::Graph g;
  g.stages.resize(1);
  ir::ValueId x = g.add_value(Type(DType::f64, {6, Dim::symbol("N")}), "x", 0);
  g.stages[0].inputs.push_back(x);
  ir::Node node{find("split"), find("split")->read({ints("sizes", {1, 3, 2})}), {x}, {}, {}};
  for (Type& t : infer(g, node, nullptr)) node.results.push_back(g.add_value(t, "", 0));
  g.stages[0].results.push_back({"y", node.results[1]});
  g.stages[0].nodes.push_back(node);
  ir::Graph d = ir::differentiate(g, {.order = 1, .wrt = std::nullopt});
  ASSERT_EQ(d.stages[1].nodes.size(), 1u);
  EXPECT_EQ(d.stages[1].nodes[0].op->name, "constant_pad_nd");
  EXPECT_EQ(to_string(d[d.stages[1].results[0].value].type), "f64[6, N]");
}

// The gradient of a part has the whole's size, in the same symbols.
TEST(ShapeDerivative, SymbolicSizesComeBack) {
  Dim n = Dim::symbol("N");
  for (LiteralList part : {LiteralList{attribute("start", 1)}, LiteralList{attribute("end", -1)},
                           LiteralList{attribute("start", -3)},
                           LiteralList{attribute("start", 1), attribute("end", n - 2)},
                           LiteralList{attribute("start", 1), attribute("step", 2)}}) {
    ir::Graph g;
    g.stages.resize(1);
    ir::ValueId x = g.add_value(Type(DType::f64, {n, 2}), "x", 0);
    g.stages[0].inputs.push_back(x);
    ir::Node node{find("slice"), find("slice")->read(part), {x}, {}, {}};
    node.results.push_back(g.add_value(infer(g, node, nullptr)[0], "y", 0));
    g.stages[0].results.push_back({"y", node.results[0]});
    g.stages[0].nodes.push_back(node);
    ir::Graph d = ir::differentiate(g, {.order = 2, .wrt = std::nullopt});
    EXPECT_EQ(to_string(d[d.stages[1].results[0].value].type), "f64[N, 2]");
  }
}

}  // namespace
}  // namespace gradus::ops::test
