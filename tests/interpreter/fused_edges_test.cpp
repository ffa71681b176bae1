// What only moves elements is read by kernels where it lies: joined, padded, picked by indices,
// beside what needs no copy anyway. The same bits, the same errors.
// SPEC F1
#include "gradus/passes.h"
#include "tests/corpus/fused.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

const std::shared_ptr<Context>& fusing(unsigned bits, int workers) {
  static std::map<std::pair<unsigned, int>, std::shared_ptr<Context>> contexts;
  auto& c = contexts[{bits, workers}];
  if (!c) {
    ContextOptions options;
    options.workers = workers;
    c = std::make_shared<Context>(options);
    set_kernel_options(*c, {.vector_bits = bits, .always = true});
  }
  return c;
}

// Integers from 0 on, below `below`; floats between -1 and 1.
Tensor wave(DType dtype, const Sizes& shape, int seed, int64_t below = 3) {
  std::vector<double> values;
  for (int64_t i = 0; i < numel(shape); ++i)
    values.push_back(is_floating(dtype) ? std::sin(static_cast<double>(i * 7 + seed))
                                        : static_cast<double>((i * 5 + seed * 3 + i / 7) % below));
  return Tensor::from(dtype, shape, values);
}

std::string program(const std::string& inputs, const std::string& body) {
  return "graph g {\n stage 0 (" + inputs + ") {\n" + body + "\n }\n}\n";
}

using Inputs = std::vector<Tensor>;

// All stages, cotangents by name and size.
std::vector<Tensor> run_all(State& state, const Inputs& first) {
  std::vector<Tensor> all;
  for (size_t stage = 0; !state.finished(); ++stage) {
    Inputs in = stage == 0 ? first : Inputs();
    for (size_t i = in.size(); i < state.code()->inputs(stage); ++i) {
      const ir::Type& type = state.input_type(i);
      Sizes shape;
      for (const ir::Dim& d : type.dims) shape.push_back(d.value());
      in.push_back(wave(type.dtype, shape, static_cast<int>(stage * 10 + i)));
    }
    for (Tensor& t : run(state, in)) all.push_back(std::move(t));
  }
  return all;
}

// Runs fused in both widths, by one worker and by four, and not; the bits are the same. What the
// groups of stage 0 are, and their nests.
struct Found {
  std::string groups, nests;
};
Found run_both(const std::string& text, int order, const Inputs& inputs) {
  auto code = compile(text, order);
  State plain(code, Context::default_context(), {.fusion = FusionMode::off});
  const auto expected = run_all(plain, inputs);
  Found found;
  for (unsigned bits : corpus::kernel_widths())
    for (int workers : {1, 4}) {
      State fused(code, fusing(bits, workers), {.fusion = FusionMode::first});
      const auto results = run_all(fused, inputs);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(expected[i].defined(), results[i].defined()) << "result " << i;
        if (expected[i].defined()) {
          EXPECT_TRUE(bitwise_equal(expected[i], results[i]))
              << "result " << i << ", " << bits << " bits, " << workers << " workers\n"
              << text;
        }
      }
      found = {};
      for (const FusedGroup& g : fused.groups()) {
        if (g.stage != 0) continue;
        if (!found.groups.empty()) found.groups += ", ";
        for (size_t k = 0; k < g.instructions.size(); ++k)
          found.groups += fmt::format("{}{}", k ? " " : "", g.instructions[k]);
        found.nests += g.nest;
      }
    }
  return found;
}

class Edges : public testing::Test {
 public:
  void SetUp() override {
    if (corpus::kernel_widths().empty()) GTEST_SKIP() << "no kernels here";
  }
};

bool contains(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST_F(Edges, Joined) {
  for (int64_t dim = 0; dim < 3; ++dim)
    for (DType d : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::boolean}) {
      const std::string name(name_of(d));
      Sizes a{4, 5, 37}, b = a;
      b[static_cast<size_t>(dim)] = 3;
      const std::string text = program(
          fmt::format("%a: {0}{1}, %b: {0}{2}, %w: f32[37]", name, to_string(a), to_string(b)),
          fmt::format("%c = cat(%a, %b, %a) {{dim = {}}}\n%x = mul(%c, {})\n%y = sub(%x, 1.5)\n"
                      "return %y, %c",
                      dim, dim == 2 ? "2" : "%w"));
      const Found found =
          run_both(text, 0, {wave(d, a, 1), wave(d, b, 2), wave(DType::f32, {37}, 3)});
      EXPECT_EQ(found.groups, "0 1 2");
      EXPECT_TRUE(contains(found.nests, "of 3")) << found.nests;
    }
}

TEST_F(Edges, JoinedWithItsDerivatives) {
  // Parts that lie otherwise, one of a broadcast, one that is a slice; every order.
  const std::string text =
      program("%a: f64[3, 17], %b: f64[17, 2], %s: f64[3, 1], %z: f64[3, 40]",
              "%t = transpose(%b) {dim0 = 0, dim1 = 1}\n%e = expand(%s) {shape = [3, 17]}\n"
              "%p = slice(%z) {dim = 1, start = 3, end = 37, step = 2}\n"
              "%c = cat(%a, %t, %e, %p) {dim = 0}\n%x = tanh(%c)\n%y = mul(%x, %c)\nreturn %y");
  const Found found = run_both(text, 3,
                               {wave(DType::f64, {3, 17}, 1), wave(DType::f64, {17, 2}, 2),
                                wave(DType::f64, {3, 1}, 3), wave(DType::f64, {3, 40}, 4)});
  EXPECT_TRUE(contains(found.nests, "of 4")) << found.nests;
}

TEST_F(Edges, Padded) {
  for (const char* pad : {"[2, 1]", "[0, 3, 1, 0]", "[1, 1, 2, 2, 1, 0]", "[40, 0]"})
    for (DType d : {DType::f64, DType::f32, DType::f16, DType::i64}) {
      const std::string text = program(
          fmt::format("%a: {}[3, 4, 35]", name_of(d)),
          fmt::format("%c = constant_pad_nd(%a) {{pad = {}, value = -2.5}}\n%x = mul(%c, %c)\n"
                      "%y = add(%x, %c)\nreturn %y",
                      pad));
      const Found found = run_both(text, is_floating(d) ? 2 : 0, {wave(d, {3, 4, 35}, 1)});
      EXPECT_EQ(found.groups, "0 1 2") << pad;
    }
}

TEST_F(Edges, PickedByIndices) {
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::i8, DType::boolean})
    for (const char* index : {"i64", "i32"})
      for (int64_t dim = 0; dim < 2; ++dim) {
        const DType i = std::string_view(index) == "i64" ? DType::i64 : DType::i32;
        const std::string name(name_of(d));
        // One index for each element, and one for a row or a column.
        Found found =
            run_both(program(fmt::format("%a: {}[5, 45], %i: {}[4, 41]", name, index),
                             fmt::format("%c = gather(%a, %i) {{dim = {}}}\n%x = mul(%c, 3)\n"
                                         "%y = sub(%x, 0.5)\nreturn %y, %c",
                                         dim)),
                     0, {wave(d, {5, 45}, 1), wave(i, {4, 41}, 2, 5)});
        EXPECT_EQ(found.groups, "0 1 2");
        EXPECT_TRUE(contains(found.nests, "at %v0")) << found.nests;
        found =
            run_both(program(fmt::format("%a: {}[5, 45], %i: {}[50]", name, index),
                             fmt::format("%c = index_select(%a, %i) {{dim = {}}}\n%x = mul(%c, 3)\n"
                                         "%y = sub(%x, 0.5)\nreturn %y",
                                         dim)),
                     0, {wave(d, {5, 45}, 1), wave(i, {50}, 2, 5)});
        EXPECT_EQ(found.groups, "0 1 2");
      }
}

TEST_F(Edges, EmbeddingsWithTheirDerivatives) {
  // The rows' view stands for them; the indices lie turned.
  const std::string text = program(
      "%w: f32[11, 37], %i: i64[6, 4], %p: f32[6, 37]",
      "%t = transpose(%i) {dim0 = 0, dim1 = 1}\n%e = embedding(%w, %t)\n%x = mul(%e, 6.0)\n"
      "%y = add(%x, %p)\n%m = amax(%y) {dim = [2], keepdim = true}\n%z = sub(%y, %m)\n"
      "%q = exp(%z)\n%s = sum(%q) {dim = [2], keepdim = true}\n%r = div(%q, %s)\nreturn %r");
  const Found found = run_both(text, 2,
                               {wave(DType::f32, {11, 37}, 1), wave(DType::i64, {6, 4}, 2, 11),
                                wave(DType::f32, {6, 37}, 3)});
  EXPECT_TRUE(contains(found.nests, "at %v1")) << found.nests;
  EXPECT_TRUE(contains(found.nests, "reduce sum")) << found.nests;
}

// What no kernel can take is left as it is: a row in parts, columns of parts.
TEST_F(Edges, RowsAndColumnsOfParts) {
  const std::string inputs = "%a: f32[6, 20], %b: f32[6, 20]";
  const Inputs in{wave(DType::f32, {6, 20}, 1), wave(DType::f32, {6, 20}, 2)};
  Found found = run_both(program(inputs,
                                 "%c = cat(%a, %b) {dim = 1}\n%x = exp(%c)\n"
                                 "%s = sum(%x) {dim = [1], keepdim = true}\n%y = div(%x, %s)\n"
                                 "return %y"),
                         2, in);
  EXPECT_EQ(found.groups, "1 2 3");
  found = run_both(program(inputs,
                           "%c = cat(%a, %b) {dim = 0}\n%x = exp(%c)\n"
                           "%s = sum(%x) {dim = [1], keepdim = true}\n%y = div(%x, %s)\n"
                           "return %y"),
                   2, in);
  EXPECT_EQ(found.groups, "0 1 2 3");
  found = run_both(program(inputs,
                           "%c = cat(%a, %b) {dim = 0}\n%x = exp(%c)\n%y = neg(%x)\n"
                           "%s = sum(%y) {dim = [0]}\nreturn %s, %y"),
                   2, in);
  EXPECT_TRUE(contains(found.groups, "1 2")) << found.groups;
}

// Any dtypes, broadcasting, casts, comparisons, selects, rows, several results, values computed
// once more in each loop over a row, all of it around edges.
TEST_F(Edges, AmongAllElse) {
  const std::string text = program(
      "%a: f32[4, 33], %b: bf16[33], %i: i32[4, 33], %m: bool[4, 1], %n: f32[2, 33], %k: i64[6]",
      "%c = cat(%a, %n) {dim = 0}\n%h = cast(%c) {dtype = f16}\n"
      "%p = constant_pad_nd(%i) {pad = [0, 0, 1, 1], value = 4}\n"
      "%g = index_select(%a, %k) {dim = 0}\n%t = lt(%c, %b)\n%u = mul(%h, %b)\n"
      "%v = where(%t, %u, %p)\n%o = add(%v, %g)\n%e = exp(%o)\n"
      "%s = sum(%e) {dim = [1], keepdim = true}\n%r = div(%e, %s)\n%l = log(%s)\n"
      "%q = sub(%o, %l)\n%w = clamp(%q) {min = -1.0, max = 2.5}\nreturn %r, %w, %s, %t");
  const Found found = run_both(
      text, 2,
      {wave(DType::f32, {4, 33}, 1), wave(DType::bf16, {33}, 2), wave(DType::i32, {4, 33}, 3),
       wave(DType::boolean, {4, 1}, 4), wave(DType::f32, {2, 33}, 5), wave(DType::i64, {6}, 6, 4)});
  EXPECT_TRUE(contains(found.nests, "of 2")) << found.groups << "\n" << found.nests;
  EXPECT_TRUE(contains(found.nests, "of 3")) << found.groups << "\n" << found.nests;
  EXPECT_TRUE(contains(found.nests, "at %v")) << found.groups << "\n" << found.nests;
}

// More elements than one worker takes at a time, in parts and at indices.
TEST_F(Edges, SharedOut) {
  run_both(program("%a: f32[300, 700], %b: f32[41, 700], %i: i64[341, 700], %k: i64[341]",
                   "%c = cat(%a, %b) {dim = 0}\n%g = gather(%a, %i) {dim = 0}\n"
                   "%r = index_select(%b, %k) {dim = 0}\n%x = mul(%c, %g)\n%y = sub(%x, %r)\n"
                   "%z = tanh(%y)\nreturn %z"),
           1,
           {wave(DType::f32, {300, 700}, 1), wave(DType::f32, {41, 700}, 2),
            wave(DType::i64, {341, 700}, 3, 300), wave(DType::i64, {341}, 4, 41)});
}

// An index out of range is the operator's error, at its line.
TEST_F(Edges, BadIndicesAreErrors) {
  for (const char* pick : {"gather(%a, %i) {dim = 1}", "index_select(%a, %j) {dim = 0}"})
    for (int64_t bad : {int64_t{-1}, int64_t{45}, INT64_MAX, INT64_MIN}) {
      auto code = compile(program("%a: f64[3, 45], %i: i64[3, 40], %j: i64[3]",
                                  fmt::format("%u = neg(%a)\n%c = {}\n%x = mul(%c, 2)\n"
                                              "%y = sub(%x, 0.5)\nreturn %y, %u",
                                              pick)));
      Inputs in{wave(DType::f64, {3, 45}, 1), wave(DType::i64, {3, 40}, 2),
                wave(DType::i64, {3}, 2)};
      in[1].mutable_data_as<int64_t>()[57] = bad;
      in[2].mutable_data_as<int64_t>()[1] = bad;
      State plain(code, Context::default_context(), {.fusion = FusionMode::off}),
          fused(code, fusing(256, 1), {.fusion = FusionMode::first});
      const std::string expected = error_of([&] { run(plain, in); });
      EXPECT_TRUE(contains(expected, "test.ir:4:")) << expected;
      EXPECT_EQ(error_of([&] { run(fused, in); }), expected);
      EXPECT_FALSE(fused.groups().empty());
    }
}

// Fewer bytes of memory: what is joined is nowhere.
TEST_F(Edges, TakeNoMemory) {
  const std::string text = program("%a: f64[4096], %b: f64[4096]",
                                   "%c = cat(%a, %b) {dim = 0}\n%x = exp(%c)\n%y = mul(%x, %c)\n"
                                   "%s = cumsum(%y) {dim = 0}\nreturn %s");
  Counted counted;
  set_kernel_options(*counted.context, {.always = true});
  State s(compile(text), counted.context, {.fusion = FusionMode::first});
  const int64_t before = static_cast<int64_t>(counted.heap->peak_bytes());
  run(s, {wave(DType::f64, {4096}, 1), wave(DType::f64, {4096}, 2)});
  EXPECT_LE(static_cast<int64_t>(counted.heap->peak_bytes()) - before, 2 * 8192 * 8 + 4096);
}

}  // namespace
}  // namespace gradus
