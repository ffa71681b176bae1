// Graphs of pointwise nodes as one nest: the bits of running node after node.
#include "fusion/group.h"

#include <algorithm>
#include <map>

#include "fusion/cost.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "kernels/bound_call.h"
#include "kernels/copies.h"
#include "tests/fusion/support.h"
#include "work/move.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

std::shared_ptr<const ir::Graph> program(const std::string& text) {
  return ir::parse(text, "group").graphs[0];
}

// Stage 0, one reference kernel after the other.
std::vector<Tensor> run_nodes(const ir::Graph& g, std::span<const Tensor> inputs) {
  std::map<ir::ValueId, Tensor> values;
  const ir::Stage& stage = g.stages[0];
  for (size_t i = 0; i < inputs.size(); ++i) values[stage.inputs[i]] = inputs[i];
  Context& context = *Context::default_context();
  for (const ir::Node& node : stage.nodes) {
    std::vector<ops::CallOperand> bound;
    std::vector<ops::RunOperand> run;
    for (const ir::Operand& o : node.operands) {
      ops::CallOperand c;
      ops::RunOperand r;
      if (ir::value_in(o) != ir::no_value) {
        r.tensor = &values.at(ir::value_in(o));
        c.layout = &r.tensor->layout();
      } else {
        r.number = c.number = std::get_if<ir::Number>(&o);
      }
      bound.push_back(c);
      run.push_back(r);
    }
    auto call = ops::bound_call(*node.op, node.attributes, bound);
    values[node.results[0]] = ops::run_call(*call, run, context)[0].contiguous();
  }
  std::vector<Tensor> results;
  for (const ir::Result& r : stage.results) results.push_back(values.at(r.value));
  return results;
}

// Results of the group, by `run` over its arguments.
template <class Run>
std::vector<Tensor> run_group(const ir::Graph& g, const Group& group,
                              std::span<const Tensor> inputs, Run run) {
  std::vector<std::byte*> args;
  std::vector<Tensor> results;
  std::vector<std::vector<std::byte>> filled;
  for (const Tensor& t : inputs) args.push_back(const_cast<std::byte*>(t.data()));
  for (const Group::Argument& a : group.arguments) {
    const Edge& edge = group.edges[a.edge];
    if (a.operand) {
      const auto& names = g.stages[0].inputs;
      const auto at = std::ranges::find(names, ir::value_in(edge.node->operands[*a.operand]));
      args.push_back(args[static_cast<size_t>(at - names.begin())]);
      continue;
    }
    const size_t bytes = size_of(edge.layout.dtype);
    filled.emplace_back(static_cast<size_t>(a.filled) * bytes);
    kernels::fill_row(bytes, work::pattern_of(edge.fill, edge.layout.dtype), filled.back().data(),
                      1, a.filled);
    args.push_back(filled.back().data());
  }
  for (const Layout& l : group.results) {
    results.push_back(Tensor::of_layout(l, *Context::default_context()));
    args.push_back(results.back().mutable_data());
  }
  run(args.data());
  return results;
}

std::string difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].dtype() != b[i].dtype() || Sizes(a[i].shape()) != Sizes(b[i].shape()))
      return fmt::format("result {}: {} and {}", i, describe(a[i]), describe(b[i]));
    const size_t bytes = size_of(a[i].dtype());
    for (size_t e = 0; e < static_cast<size_t>(a[i].numel()); ++e)
      if (!same(a[i].dtype(), a[i].data() + e * bytes, b[i].data() + e * bytes))
        return fmt::format("result {}, element {}: {} and {}", i, e,
                           shown(a[i].dtype(), a[i].data() + e * bytes),
                           shown(b[i].dtype(), b[i].data() + e * bytes));
  }
  return "";
}

// Every way gives the same: nodes alone, the nest's reference, and its kernels.
void expect_same(const ir::Graph& g, std::span<const Tensor> inputs) {
  static cpu::Compiler compiler;
  static WorkerPool workers(2);
  std::vector<Layout> layouts;
  for (const Tensor& t : inputs) layouts.push_back(t.layout());
  std::string why;
  auto group = group_stage(g, layouts, &why);
  ASSERT_TRUE(group) << why;
  verify(group->nest);
  check_frame(group->nest, group->frame);
  EXPECT_EQ(print(parse_nest(print(group->nest))), print(group->nest));
  auto expected = run_nodes(g, inputs);
  auto by_reference = run_group(g, *group, inputs, [&](std::byte* const* args) {
    evaluate(group->nest, group->frame, args);
  });
  ASSERT_EQ(difference(by_reference, expected), "") << print(group->nest);
  for (Isa isa : cpu::all_isas) {
    if (!cpu::runs_here(isa)) continue;
    auto kernel = compiler.compile(group->nest, isa);
    auto compiled = run_group(g, *group, inputs, [&](std::byte* const* args) {
      kernel->run(group->frame, args, workers);
    });
    ASSERT_EQ(difference(compiled, expected), "") << print(group->nest);
  }
}

Tensor tensor(DType dtype, const Sizes& shape, uint64_t seed) {
  Tensor t = Tensor::of_layout(Layout(dtype, shape), *Context::default_context());
  auto bytes = values(dtype, static_cast<size_t>(t.numel()), seed);
  std::memcpy(t.mutable_data(), bytes.data(), bytes.size());
  return t;
}

// The same shape, dimensions in the opposite order in memory.
Tensor transposed(const Tensor& t, uint64_t seed) {
  Sizes shape(t.shape()), back(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) back[d] = shape[shape.size() - 1 - d];
  Tensor memory = tensor(t.dtype(), back, seed);
  Sizes strides = contiguous_strides(back);
  std::reverse(strides.begin(), strides.end());
  return memory.view(Layout(t.dtype(), shape, strides), 0);
}

TEST(Groups, KeepPromotionOfNumbersAndOfZeroDimensions) {
  auto g = program(
      "graph p { stage 0 (%a: f32[3, 5], %b: f16[5], %s: f64[], %i: i32[3, 1], %m: bool[3, 5]) {\n"
      "%x = mul(%a, %s) %y = add(%b, 0.1) %z = add(%x, %y) %k = add(%i, 2) %q = div(%k, 3)\n"
      "%w = where(%m, %z, %q) %c = cast(%w) {dtype = bf16} %l = gt(%c, 1) %n = add(%m, %l)\n"
      "return %w, %c, %l, %n } }");
  std::vector<Tensor> inputs{tensor(DType::f32, {3, 5}, 1), tensor(DType::f16, {5}, 2),
                             tensor(DType::f64, {}, 3), tensor(DType::i32, {3, 1}, 4),
                             tensor(DType::boolean, {3, 5}, 5)};
  expect_same(*g, inputs);
}

TEST(Groups, JoinLoopsThatAllWalkInOneStride) {
  auto g = program(
      "graph p { stage 0 (%a: f32[4, 3, 5], %b: f32[4, 1, 1]) { %x = mul(%a, %b) return %x } }");
  Layout a(DType::f32, {4, 3, 5}), b(DType::f32, {4, 1, 1});
  auto group = group_stage(*g, std::vector{a, b});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->frame.sizes, (Sizes{4, 15}));
  EXPECT_EQ(print(group->nest),
            "nest 2 {\n  %v0 = load f32 [strided, contiguous]\n"
            "  %v1 = load f32 [strided, broadcast]\n"
            "  %v2 = mul(%v0, %v1) : f32 in f32\n  store %v2\n}\n");
  // Sizes are no part of the nest.
  auto h = program(
      "graph p { stage 0 (%a: f32[9, 2, 8], %b: f32[9, 1, 1]) { %x = mul(%a, %b) return %x } }");
  auto other =
      group_stage(*h, std::vector{Layout(DType::f32, {9, 2, 8}), Layout(DType::f32, {9, 1, 1})});
  ASSERT_TRUE(other);
  EXPECT_EQ(print(other->nest), print(group->nest));
}

TEST(Groups, ReduceRows) {
  auto g = program(
      "graph p { stage 0 (%a: f32[4, 3, 5], %b: f32[4, 1, 1]) { %x = mul(%a, %b)\n"
      "%s = sum(%x) {dim = [1, 2], keepdim = true} %m = amax(%x) {dim = [1, 2]}\n"
      "%y = div(%x, %s) return %y, %s, %m } }");
  Layout a(DType::f32, {4, 3, 5}), b(DType::f32, {4, 1, 1});
  auto group = group_stage(*g, std::vector{a, b});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->frame.sizes, (Sizes{4, 15}));
  EXPECT_EQ(print(group->nest),
            "nest 2 {\n  %v0 = load f32 [strided, contiguous]\n"
            "  %v1 = load f32 [strided, broadcast]\n"
            "  %v2 = mul(%v0, %v1) : f32 in f32\n"
            "  %v3 = reduce sum(%v2) : f32 in f32\n"
            "  %v4 = reduce max(%v2) : f32 in f32\n"
            "  %v5 = div(%v2, %v3) : f32 in f32\n"
            "  store %v5\n  store_row %v3, %v4\n}\n");
  // A row is a loop of its own, also where it would join the one around it.
  auto h = program("graph p { stage 0 (%a: f32[4, 6]) { %s = sum(%a) {dim = [1]} return %s } }");
  auto rows = group_stage(*h, std::vector{Layout(DType::f32, {4, 6})});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->frame.sizes, (Sizes{4, 6}));
}

TEST(Groups, ReduceColumns) {
  auto g = program(
      "graph p { stage 0 (%a: f32[4, 3, 5], %b: f32[5]) { %x = mul(%a, %b)\n"
      "%m = amax(%x) {dim = [2], keepdim = true} %y = sub(%x, %m)\n"
      "%s = sum(%y) {dim = [0, 1], keepdim = true} %t = sum(%a) {dim = [0, 1], keepdim = true}\n"
      "return %y, %m, %s, %t } }");
  auto group = group_stage(*g, std::vector{Layout(DType::f32, {4, 3, 5}), Layout(DType::f32, {5})});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->frame.sizes, (Sizes{12, 5}));
  EXPECT_EQ(print(group->nest),
            "nest 2 {\n  %v0 = load f32 [strided, contiguous]\n"
            "  %v1 = load f32 [broadcast, contiguous]\n"
            "  %v2 = mul(%v0, %v1) : f32 in f32\n"
            "  %v3 = reduce max(%v2) : f32 in f32\n"
            "  %v4 = sub(%v2, %v3) : f32 in f32\n"
            "  %v5 = reduce_columns sum(%v4) : f32 in f32\n"
            "  %v6 = reduce_columns sum(%v0) : f32 in f32\n"
            "  store %v4\n  store_row %v3\n  store_column %v5, %v6\n}\n");
  expect_same(*g, std::vector{tensor(DType::f32, {4, 3, 5}, 1), tensor(DType::f32, {5}, 2)});
}

// What is joined, padded and picked by indices, as loads; who has the same bits is expect_same's.
TEST(Groups, ReadEdges) {
  auto joined = program(
      "graph p { stage 0 (%a: f32[2, 3, 5], %b: f32[4, 3, 5], %w: f64[5]) {\n"
      "%c = cat(%a, %b) {dim = 0} %u = mul(%c, %w) return %u, %c } }");
  const std::vector inputs{tensor(DType::f32, {2, 3, 5}, 1), tensor(DType::f32, {4, 3, 5}, 2),
                           tensor(DType::f64, {5}, 3)};
  auto group =
      group_stage(*joined, std::vector{inputs[0].layout(), inputs[1].layout(), inputs[2].layout()});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->frame.sizes, (Sizes{18, 5}));
  ASSERT_EQ(group->frame.parts.size(), 4u);
  EXPECT_EQ(group->frame.parts[3][1].first, (Sizes{6, 0}));
  EXPECT_EQ(group->frame.parts[3][1].sizes, (Sizes{12, 5}));
  EXPECT_TRUE(print(group->nest).find("%v3 = load f32 [strided, contiguous] of 2\n") !=
              std::string::npos)
      << print(group->nest);
  expect_same(*joined, inputs);

  for (const char* node : {"cat(%a, %b, %b) {dim = 0}", "cat(%b, %a) {dim = 2}",
                           "constant_pad_nd(%a) {pad = [2, 1, 0, 2], value = 7}",
                           "index_select(%b, %i) {dim = 0}", "index_select(%a, %i) {dim = 1}",
                           "index_select(%b, %i) {dim = 2}", "gather(%b, %j) {dim = 1}"}) {
    auto g = program(
        fmt::format("graph p {{ stage 0 (%a: bf16[4, 3, 35], %b: bf16[4, 3, 35], %i: i32[20], "
                    "%j: i64[2, 7, 34]) {{ %c = {} %x = square(%c) return %x, %c }} }}",
                    node));
    Tensor index = Tensor::of_layout(Layout(DType::i32, {20}), *Context::default_context()),
           each = Tensor::of_layout(Layout(DType::i64, {2, 7, 34}), *Context::default_context());
    for (int32_t k = 0; k < 20; ++k) index.mutable_data_as<int32_t>()[k] = k * 5 % 3;
    for (int64_t k = 0; k < each.numel(); ++k) each.mutable_data_as<int64_t>()[k] = k * 5 % 3;
    const Tensor a = tensor(DType::bf16, {4, 3, 35}, 1);
    expect_same(*g, std::vector{a, transposed(a, 2), index, each});
  }
}

// Where each row has indices of its own a kernel reads as fast as the loop of `gather`. Short rows
// still leave most of a vector empty.
TEST(Groups, WeighRowsAtTheirOwnIndices) {
  const auto is_worth = [](int64_t columns) {
    const auto g = program(
        fmt::format("graph p {{ stage 0 (%x: f32[64, {0}], %i: i64[64, {0}], %w: f32[64, {0}]) {{ "
                    "%p = gather(%x, %i) {{dim = 1}} %q = mul(%p, %w) return %q }} }}",
                    columns));
    const Layout x(DType::f32, {64, columns}), i(DType::i64, {64, columns});
    const auto group = group_stage(*g, std::vector{x, i, x});
    if (!group) throw std::logic_error("no group");
    return estimate(group->nest, group->frame, {.vector_bits = 256}).worth();
  };
  EXPECT_TRUE(is_worth(16));
  EXPECT_FALSE(is_worth(3));
}

// The loop of a sum takes longer for longer rows of few elements; a kernel takes as long for each.
TEST(Groups, WeighShortRowsThatAreReduced) {
  const auto is_worth = [](DType dtype, int64_t columns) {
    const auto g =
        program(fmt::format("graph p {{ stage 0 (%x: {}[300, {}]) {{ %p = square(%x) "
                            "%s = sum(%p) {{dim = [1]}} return %s }} }}",
                            name_of(dtype), columns));
    const auto group = group_stage(*g, std::vector{Layout(dtype, {300, columns})});
    if (!group) throw std::logic_error("no group");
    return estimate(group->nest, group->frame, {.vector_bits = 256}).worth();
  };
  EXPECT_FALSE(is_worth(DType::f32, 2));
  EXPECT_TRUE(is_worth(DType::f32, 6));
  EXPECT_FALSE(is_worth(DType::f64, 4));
  EXPECT_TRUE(is_worth(DType::f64, 8));
}

// A gather of a row's end takes as long for elements that the row lacks, where rows share indices.
// With an index for each row, nothing is gathered.
TEST(Groups, WeighGatheredEndsOfRows) {
  const auto gain = [](int64_t dim, int64_t columns) {
    const Sizes x = dim == 0 ? Sizes{9, columns} : Sizes{56, 9};
    const int64_t indices = dim == 0 ? 56 : columns;
    const auto g = program(fmt::format(
        "graph p {{ stage 0 (%x: f64{}, %i: i64[{}]) {{ %p = index_select(%x, %i) {{dim = {}}} "
        "%q = square(%p) %s = sum(%q) {{dim = [1]}} return %s }} }}",
        to_string(x), indices, dim));
    const auto group =
        group_stage(*g, std::vector{Layout(DType::f64, x), Layout(DType::i64, {indices})});
    if (!group) throw std::logic_error("no group");
    const Estimate e = estimate(group->nest, group->frame, {.vector_bits = 256});
    return e.saved - e.lost;
  };
  EXPECT_LT(gain(1, 3), 0);   // fifty-six rows of three
  EXPECT_GT(gain(1, 16), 0);  // whole vectors
  EXPECT_GT(gain(0, 3), gain(1, 3));
}

// Sums over few rows of few columns of wide elements join a group, and cost it little: each column
// has sixteen accumulators.
TEST(Groups, WeighColumnsOfFewRows) {
  EXPECT_TRUE(takes_columns(32, 3, DType::f64, 256));
  EXPECT_TRUE(takes_columns(2, 3, DType::f64, 256));
  EXPECT_FALSE(takes_columns(33, 3, DType::f64, 256));
  EXPECT_FALSE(takes_columns(1, 3, DType::f64, 256));  // nothing is summed
  EXPECT_FALSE(takes_columns(32, 3, DType::f32, 256));
  EXPECT_FALSE(takes_columns(32, 1, DType::f64, 256));  // a sum of all elements
  EXPECT_FALSE(takes_columns(32, 3, DType::f64, 512));  // not measured
  EXPECT_TRUE(takes_columns(1000, 32, DType::f32, 512));
  EXPECT_TRUE(takes_columns(1000, 24, DType::f64, 256));
  EXPECT_FALSE(takes_columns(1000, 24, DType::f32, 256));
  EXPECT_FALSE(takes_columns(1000, 8193, DType::f32, 512));
  const auto g = program(
      "graph p { stage 0 (%x: f64[32, 10]) { %p = square(%x) %q = mul(%p, %x) %s = sum(%q) "
      "{dim = [0]} return %s } }");
  const auto group = group_stage(*g, std::vector{Layout(DType::f64, {32, 10})});
  ASSERT_TRUE(group);
  EXPECT_TRUE(estimate(group->nest, group->frame, {.vector_bits = 256}).worth());
  EXPECT_FALSE(estimate(group->nest, group->frame, {.vector_bits = 512}).worth());
}

TEST(Groups, SayWhyNot) {
  auto why = [](const std::string& text, std::vector<Layout> inputs) {
    std::string s;
    EXPECT_FALSE(group_stage(*program(text), inputs, &s));
    return s;
  };
  Layout row(DType::f32, {3}), matrix(DType::f32, {2, 3}), integers(DType::i64, {3});
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3, 4]) { %x = sum(%a) {dim = [1]} return %x } }",
                {Layout(DType::f32, {2, 3, 4})})
                .find("sum is not pointwise"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3]) { %s = sum(%a) {dim = [1]} %x = exp(%s)"
                " return %x } }",
                {matrix})
                .find("without its dimensions"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3]) { %s = sum(%a) {dim = [1], keepdim = true}"
                " %t = sum(%a) {keepdim = true} return %s, %t } }",
                {matrix})
                .find("other rows"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3]) { %s = sum(%a) {dim = [1]} %x = exp(%a)"
                " return %s, %x } }",
                {matrix})
                .find("before one of elements"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3]) { %s = sum(%a) {dim = [0], keepdim = true}"
                " %x = sub(%a, %s) return %x } }",
                {matrix})
                .find("a column is reduced to is read"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3]) { %s = sum(%a) {dim = [0]}"
                " %t = sum(%s) {dim = [0]} return %t } }",
                {matrix})
                .find("of other rows"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3, 4]) { %s = sum(%a) {dim = [0]}"
                " %t = sum(%a) {dim = [2]} return %t, %s } }",
                {Layout(DType::f32, {2, 3, 4})})
                .find("of other rows"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: i64[3]) { %x = remainder(%a, 2) return %x } }", {integers})
                .find("remainder"),
            std::string::npos);
  EXPECT_NE(why("graph p { stage 0 (%a: f32[2, 3], %b: f32[3]) { %x = exp(%b) %y = add(%a, %x)"
                " return %x, %y } }",
                {matrix, row})
                .find("smaller"),
            std::string::npos);
  EXPECT_NE(
      why("graph p { stage 0 (%a: f32[N]) { %x = add(%a, N) return %x } }", {row}).find("size"),
      std::string::npos);
}

// Random graphs of operators of every kind, dtypes and layouts mixed.
TEST(Groups, OfManyOperators) {
  constexpr std::string_view unary[] = {
      "neg",  "abs",  "exp",         "tanh",  "sin",  "sigmoid", "sqrt",  "floor",
      "sign", "relu", "logical_not", "isnan", "gelu", "square",  "log1p", "reciprocal"};
  constexpr std::string_view binary[] = {"add", "sub",     "mul",         "div", "maximum", "lt",
                                         "eq",  "minimum", "logical_and", "pow", "atan2"};
  constexpr const char* shapes[] = {"[4, 1, 5]", "[3, 5]", "[5]", "[]", "[4, 3, 5]", "[4, 3, 1]"};
  const Sizes sizes[] = {{4, 1, 5}, {3, 5}, {5}, {}, {4, 3, 5}, {4, 3, 1}};
  int done = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::string inputs, body;
    std::vector<Tensor> tensors;
    std::vector<std::string> names;
    const size_t n_inputs = 1 + below(4);
    for (size_t i = 0; i < n_inputs; ++i) {
      DType d = all_dtypes[below(std::size(all_dtypes))];
      size_t s = i == 0 ? 4 : below(std::size(shapes));
      names.push_back(fmt::format("a{}", i));
      inputs += fmt::format("{}%a{}: {}{}", i ? ", " : "", i, name_of(d), shapes[s]);
      tensors.push_back(tensor(d, sizes[s], seed * 7 + i));
      if (below(3) == 0) tensors.back() = transposed(tensors.back(), seed * 7 + i);
    }
    // Nodes that the type rules refuse are left out.
    auto whole = [&](const std::string& nodes, const std::string& last) {
      return fmt::format("graph p {{ stage 0 ({}) {{\n{} %z = where(%t, %{}, %a0) return %z }} }}",
                         inputs, nodes, last);
    };
    auto full = [&](const std::string& nodes) { return nodes + "%t = isnan(%a0)\n"; };
    for (size_t k = 0; k < 12; ++k) {
      auto operand = [&] { return "%" + names[below(names.size())]; };
      std::string name = fmt::format("x{}", k), node;
      const std::string x = operand();
      if (below(5) == 0)
        node = fmt::format("%{} = cast({}) {{dtype = {}}}\n", name, x,
                           name_of(all_dtypes[below(std::size(all_dtypes))]));
      else if (below(2))
        node = fmt::format("%{} = {}({})\n", name, unary[below(std::size(unary))], x);
      else if (below(4) == 0)
        node = fmt::format("%{} = {}({}, {})\n", name, binary[below(std::size(binary))], x,
                           below(2) ? "2" : "0.3");
      else
        node =
            fmt::format("%{} = {}({}, {})\n", name, binary[below(std::size(binary))], x, operand());
      try {
        program(whole(full(body + node), name));
      } catch (const Error&) {
        continue;
      }
      body += node;
      names.push_back(name);
      ++done;
    }
    expect_same(*program(whole(full(body), names.back())), tensors);
    if (testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << whole(full(body), names.back());
      return;
    }
  }
  EXPECT_GT(done, 250);
}

}  // namespace
}  // namespace gradus::fusion::test
