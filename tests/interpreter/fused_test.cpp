// Groups of instructions that run as one kernel.
#include "tests/corpus/fused.h"

#include "fusion/kernels.h"
#include "gradus/convert.h"
#include "gradus/passes.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

class Fused : public testing::Test {
 public:
  void SetUp() override {
    if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  }
  // Compiled first, whatever can be grouped.
  static State state(std::shared_ptr<const Code> code) {
    return State(std::move(code), context(), {.fusion = FusionMode::first});
  }
  static State unfused(std::shared_ptr<const Code> code) {
    return State(std::move(code), Context::default_context(), {.fusion = FusionMode::off});
  }
  static const std::shared_ptr<Context>& context() {
    static const auto context = make_context({.always = true});
    return context;
  }
  static std::shared_ptr<Context> make_context(const KernelOptions& options) {
    ContextOptions context_options;
    context_options.workers = 2;
    auto context = std::make_shared<Context>(context_options);
    set_kernel_options(*context, options);
    return context;
  }
};

Tensor ramp(const Sizes& shape, DType dtype = DType::f64) {
  Tensor t = Tensor::zeros(DType::f64, shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_as<double>()[i] = 0.1 * static_cast<double>(i + 1);
  Tensor cast = Tensor::zeros(dtype, shape);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < t.numel(); ++i)
      cast.mutable_data_as<T>()[i] = convert<T>(t.data_as<double>()[i]);
  });
  return cast;
}

// Runs a one-stage program fused and not; the results are the same bits. Returns its groups.
std::string groups_of(const std::string& text, const std::vector<Tensor>& inputs) {
  auto code = compile(text);
  State plain = Fused::unfused(code), fused = Fused::state(code);
  auto expected = run(plain, inputs), results = run(fused, inputs);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(bitwise_equal(expected[i], results[i])) << "result " << i;
  std::string shown;
  for (const FusedGroup& g : fused.groups()) {
    if (!shown.empty()) shown += ", ";
    for (size_t k = 0; k < g.instructions.size(); ++k)
      shown += fmt::format("{}{}", k ? " " : "", g.instructions[k]);
  }
  return shown;
}

std::string one_stage(const std::string& inputs, const std::string& body) {
  return "graph g {\n stage 0 (" + inputs + ") {\n" + body + "\n }\n}\n";
}

TEST_F(Fused, GroupsRunWhereTheirLastMemberStands) {
  EXPECT_EQ(groups_of(one_stage("%x: f64[N]",
                                "%a = exp(%x)\n%b = sin(%a)\n%s = cumsum(%x) {dim = 0}\n"
                                "%c = mul(%b, %a)\nreturn %c, %s"),
                      {ramp({5})}),
            "0 1 3");
}

TEST_F(Fused, AReaderOutsideClosesAGroup) {
  // Sums along a row read %b, so that %c cannot be of its group: it would come too late.
  EXPECT_EQ(groups_of(one_stage("%x: f64[N]",
                                "%a = exp(%x)\n%b = sin(%a)\n%s = cumsum(%b) {dim = 0}\n"
                                "%c = mul(%b, %a)\n%d = mul(%c, %s)\nreturn %d"),
                      {ramp({5})}),
            "0 1, 3 4");
  // So does a view.
  EXPECT_EQ(groups_of(one_stage("%x: f64[3, 3]",
                                "%a = exp(%x)\n%b = sin(%a)\n"
                                "%t = transpose(%b) {dim0 = 0, dim1 = 1}\n"
                                "%c = mul(%a, %t)\n%d = neg(%c)\nreturn %d, %t"),
                      {ramp({3, 3})}),
            "0 1, 3 4");
}

// As a loss does: its gradient reads what the loss is a sum of.
TEST_F(Fused, AReaderThatLeavesLittleClosesNothing) {
  const Tensor x = ramp({100, 100}), y = ramp({100, 100});
  auto groups = [&](const std::string& body) {
    return groups_of(one_stage("%x: f64[M, N], %y: f64[M, N]", body), {x, y});
  };
  // The rows of the group are not those of the sum, so that it is no member.
  const std::string rows =
      "%a = tanh(%x)\n%r = sum(%a) {dim = [1], keepdim = true}\n"
      "%b = mul(%a, %r)\n";
  const std::string loss = rows + "%s = sum(%b)\n";
  EXPECT_EQ(groups(loss + "%c = mul(%b, %a)\n%d = neg(%c)\nreturn %s, %d"), "0 1 2 4 5");
  // Who reads the sum comes too late for the first group.
  EXPECT_EQ(groups(loss + "%c = mul(%b, %s)\n%d = neg(%c)\nreturn %d"), "0 1 2, 3 4 5");
  // A second loss is of what joined after the first one.
  EXPECT_EQ(groups(loss + "%c = mul(%b, %a)\n%t = sum(%c)\n%d = neg(%c)\n%e = cos(%d)\n"
                          "return %s, %t, %e"),
            "0 1 2 4, 5 6 7");
  // Nothing waits while something else takes memory.
  EXPECT_EQ(groups(loss + "%m = matmul(%x, %y)\n%c = mul(%b, %a)\n%d = neg(%c)\n"
                          "return %s, %d, %m"),
            "0 1 2, 3 5 6");
  // What another group makes, which runs later.
  EXPECT_EQ(groups(loss + "%p = cos(%y)\n%q = neg(%p)\n%c = mul(%b, %q)\nreturn %s, %c"),
            "0 1 2, 4 5 6");
  // Or nobody's group, before anything that takes memory.
  const std::vector<Tensor> small{ramp({40, 40}), ramp({40, 40})};
  EXPECT_EQ(groups_of(one_stage("%x: f64[M, N], %y: f64[M, N]",
                                loss + "%p = cumsum(%y) {dim = 0}\n%c = mul(%b, %p)\n"
                                       "%d = neg(%c)\nreturn %s, %d"),
                      small),
            "0 1 2, 3 5 6");
  // What is made before is there.
  EXPECT_EQ(groups("%p = cumsum(%y) {dim = 0}\n" + loss +
                   "%c = mul(%b, %p)\n%d = neg(%c)\nreturn %s, %d"),
            "1 2 3 5 6");
}

TEST_F(Fused, DependenceThroughAnotherGroupClosesBoth) {
  // %c is of another shape and reads the first group; %e reads %c.
  EXPECT_EQ(groups_of(one_stage("%x: f64[N], %y: f64[3, N]",
                                "%a = exp(%x)\n%b = sin(%a)\n%c = mul(%b, %y)\n%d = neg(%c)\n"
                                "%s = sum(%d) {dim = [0]}\n%e = mul(%s, %a)\n%f = add(%e, %b)\n"
                                "return %f"),
                      {ramp({4}), ramp({3, 4})}),
            "0 1, 2 3 4, 5 6");
}

TEST_F(Fused, GroupsThatMeetAreOne) {
  Tensor x = ramp({100, 100}), y = ramp({100, 100});  // many elements: no group of strangers
  EXPECT_EQ(groups_of(one_stage("%x: f64[N, N], %y: f64[N, N]",
                                "%a = exp(%x)\n%b = sin(%y)\n%c = neg(%a)\n%d = cos(%b)\n"
                                "%e = mul(%c, %d)\nreturn %e"),
                      {x, y}),
            "0 1 2 3 4");
  EXPECT_EQ(groups_of(one_stage("%x: f64[N, N], %y: f64[N, N]",
                                "%a = exp(%x)\n%b = sin(%y)\n%c = neg(%a)\n%d = cos(%b)\n"
                                "return %c, %d"),
                      {x, y}),
            "0 2, 1 3");
}

// What leaves is stored, and only that.
TEST_F(Fused, StoresWhatOthersRead) {
  auto code = compile(
      "graph g {\n stage 0 (%x: f64[N]) {\n%a = exp(%x)\n%b = sin(%a)\n%c = cos(%b)\n"
      "%d = neg(%c)\nreturn %b\n }\n stage 1 () {\n%e = mul(%d, %d)\nreturn %e\n }\n}\n");
  State plain = unfused(code), fused = state(code);
  for (int stage = 0; stage < 2; ++stage) {
    std::vector<Tensor> in;
    if (stage == 0) in.push_back(ramp({700}));
    EXPECT_TRUE(bitwise_equal(run(plain, in)[0], run(fused, in)[0]));
    EXPECT_EQ(plain.held_bytes(), fused.held_bytes());
  }
  ASSERT_EQ(fused.groups().size(), 1u);
  const std::string nest = fused.groups()[0].nest;
  EXPECT_NE(nest.find("store %v2, %v4"), std::string::npos) << nest;
}

// Intermediate values take no memory: a chain needs its input and its result.
TEST_F(Fused, ValuesInsideTakeNoMemory) {
  const int64_t n = 1 << 16;
  std::string text = "graph g {\n stage 0 (%x: f64[N]) {\n%v0 = sin(%x)\n";
  for (int i = 1; i < 20; ++i) text += fmt::format("%v{} = sin(%v{})\n", i, i - 1);
  Counted counted;
  set_kernel_options(*counted.context, {.always = true});
  State s(compile(text + "return %v19\n }\n}\n"), counted.context, {.fusion = FusionMode::first});
  run(s, {Tensor::zeros(DType::f64, Sizes{n})});
  ASSERT_EQ(s.groups().size(), 1u);
  EXPECT_LE(counted.heap->peak_bytes(), static_cast<size_t>(n) * 8 + 4096);
}

TEST_F(Fused, AbsentOperandsAreZeros) {
  auto code = compile(
      "graph g {\n stage 0 (%x: f64[N]) {\nreturn %x\n }\n"
      " stage 1 (%u: f64[N], %v: f64[N]) {\n%a = mul(%u, %v)\n%b = add(%a, 1.5)\n"
      "%c = add(%u, %v)\n%d = mul(%c, %b)\nreturn %d\n }\n}\n");
  for (int given = 0; given < 4; ++given) {
    State plain = unfused(code), fused = state(code);
    Tensor x = ramp({6});
    run(plain, {x}), run(fused, {x});
    std::vector<Tensor> in{given & 1 ? x : Tensor(), given & 2 ? x : Tensor()};
    EXPECT_TRUE(bitwise_equal(run(plain, in)[0], run(fused, in)[0])) << given;
    EXPECT_GE(fused.groups().size(), 1u);
  }
}

// A size that stands as a number is loaded: another size is served by the same kernel, also where
// the type states that rows are short.
// SPEC F2
TEST_F(Fused, OtherSizesCompileNothing) {
  auto code = compile(one_stage("%x: f32[N, 3], %w: f32[3]",
                                "%a = div(%x, N)\n%b = mul(%a, %w)\n%c = tanh(%b)\nreturn %c"));
  auto context = make_context({.always = true});
  for (int64_t n : {4, 7, 1000, 1, 33}) {
    State plain = unfused(code), fused(code, context, {.fusion = FusionMode::first});
    std::vector<Tensor> in{ramp({n, 3}, DType::f32), ramp({3}, DType::f32)};
    EXPECT_TRUE(bitwise_equal(run(plain, in)[0], run(fused, in)[0])) << n;
    EXPECT_EQ(fused.groups().size(), 1u);
    // One row is as one dimension: another nest.
    EXPECT_LE(fusion::kernels_of(*context)->statistics().misses, n == 1 || n == 33 ? 2u : 1u);
  }
}

TEST_F(Fused, LargeGroupsAreTakenApart) {
  std::string body = "%v0 = sin(%x)\n", results = "return %v0";
  for (int i = 1; i < 150; ++i) {
    body += fmt::format("%v{} = cos(%v{})\n", i, i - 1);
    results += fmt::format(", %v{}", i);
  }
  auto code = compile(one_stage("%x: f64[N]", body + results));
  State plain = unfused(code), fused = state(code);
  Tensor x = ramp({9});
  auto expected = run(plain, {x}), got = run(fused, {x});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(bitwise_equal(expected[i], got[i])) << i;
  size_t members = 0;
  for (const FusedGroup& g : fused.groups()) {
    members += g.instructions.size();
    EXPECT_LE(g.instructions.size(), 31u);  // as many results, and a load
  }
  EXPECT_EQ(members, 150u);
}

// SPEC I16
TEST_F(Fused, SpeakOfTheProgramsLines) {
  auto code = compile(one_stage(
      "%x: f64[N]", "%a = exp(%x)\n%s = cumsum(%x) {dim = 0}\n%b = sin(%a)\nreturn %b, %s"));
  State s = state(code);
  struct Notes : InstructionObserver {
    std::string text;
    void before(size_t, size_t i) override { text += fmt::format(" {}", i); }
    void after(size_t, size_t) override {}
    void group(size_t, std::span<const uint32_t> members) override {
      text += " [";
      for (uint32_t n : members) text += fmt::format("{},", n);
      text += "]";
    }
  } notes;
  run(s, {ramp({5})}, {.observer = &notes});
  EXPECT_EQ(notes.text, " 0 1 [0,2,] 2");
  const std::string text = describe_groups(s);
  EXPECT_NE(text.find("stage 0, instructions 0 exp @3:6, 2 sin @5:6\nnest 1 {"), std::string::npos)
      << text;
  EXPECT_NE(text.find("= exp(%v0)"), std::string::npos) << text;
}

// SPEC I16
TEST_F(Fused, AKernelWithoutMemoryNamesItsLines) {
  struct Failing : Allocator {
    HeapAllocator heap;
    bool fails = false;
    void* allocate(size_t bytes) override {
      if (fails) throw ResourceError("there is no memory");
      return heap.allocate(bytes);
    }
    void deallocate(void* block, size_t bytes) noexcept override { heap.deallocate(block, bytes); }
  };
  auto memory = std::make_shared<Failing>();
  auto own =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = memory, .log = {}});
  set_kernel_options(*own, {.always = true});
  State s(compile(one_stage("%x: f64[N]", "%a = exp(%x)\n%b = sin(%a)\nreturn %b")), own,
          {.fusion = FusionMode::first});
  std::vector<Tensor> in{ramp({5})};
  run(s, in);  // the buffer is there now
  s.restart();
  memory->fails = true;
  try {
    run(s, in);
    ADD_FAILURE() << "no error";
  } catch (const ResourceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("test.ir:4:6"), std::string::npos) << text;
    EXPECT_NE(text.find("there is no memory (in the kernel of exp @3, sin @4)"), std::string::npos)
        << text;
  }
  EXPECT_TRUE(s.poisoned());
}

// Between groups, never within one.
// SPEC I18
TEST_F(Fused, ARunIsCancelledBetweenGroups) {
  auto code =
      compile(one_stage("%x: f64[N]",
                        "%a = exp(%x)\n%b = sin(%a)\n%s = cumsum(%b) {dim = 0}\n%c = mul(%b, %s)\n"
                        "%d = neg(%c)\nreturn %d"));
  for (size_t at = 0; at < 5; ++at) {
    State s = state(code);
    CancelToken token;
    struct Cancels : InstructionObserver {
      CancelToken* token;
      size_t at;
      std::vector<uint32_t> groups;
      void before(size_t, size_t i) override {
        if (i == at) token->cancel();
      }
      void after(size_t, size_t) override {}
      void group(size_t, std::span<const uint32_t> members) override {
        groups.push_back(members.back());
      }
    } cancels;
    cancels.token = &token;
    cancels.at = at;
    auto go = [&] { run(s, {ramp({5})}, {.cancel = &token, .observer = &cancels}); };
    if (at == 4) {
      go();  // it was the last
    } else {
      const std::string error = error_of(go);
      EXPECT_NE(error.find(fmt::format("before instruction {} of 5", at + 1)), std::string::npos)
          << error;
      EXPECT_TRUE(s.poisoned());
    }
    EXPECT_EQ(cancels.groups.size(), at < 1 ? 0u : at < 4 ? 1u : 2u) << at;
  }
}

// A program is never changed by being run fused: its derivative is that of its nodes.
// SPEC F7
TEST_F(Fused, DifferentiatesAsItWasWritten) {
  auto module = ir::parse(one_stage("%x: f64[N]",
                                    "%a = exp(%x)\n%b = sin(%a)\n%c = mul(%b, %a)\n"
                                    "return %c"),
                          "f.ir");
  State forward = state(Code::compile(module.program()));
  Tensor x = ramp({5}), ct = ramp({5});
  run(forward, {x});
  ASSERT_EQ(forward.groups().size(), 1u);
  auto code = Code::compile(ir::differentiate(forward.code()->graph(), {.order = 2}));
  State plain = unfused(code), fused = state(code);
  for (auto in : {std::vector{x}, std::vector{ct}, std::vector{ct}}) {
    auto a = run(plain, in), b = run(fused, in);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i]));
  }
  EXPECT_EQ(fused.groups().size(), 3u);
}

// What a kernel would be slower at stays as it is.
// SPEC F5
TEST_F(Fused, GroupsThatAreNotWorthItStayApart) {
  auto context = make_context({.vector_bits = 256});
  auto groups = [&](const std::string& text, const std::vector<Tensor>& inputs) {
    State s(compile(text), context, {.fusion = FusionMode::first});
    run(s, inputs);
    return s.groups().size();
  };
  const std::string two = one_stage("%x: f32[N]", "%a = mul(%x, 2.5)\n%b = add(%a, %x)\nreturn %b");
  EXPECT_EQ(groups(two, {ramp({4096}, DType::f32)}), 1u);
  // Rows that cannot be joined: a kernel takes as long for three elements as for sixteen.
  auto of_rows = [&](int64_t columns, std::string_view last, bool stated = false) {
    const std::string size = stated ? std::to_string(columns) : "M";
    return groups(one_stage(fmt::format("%x: f32[N, {0}], %w: f32[{0}]", size),
                            fmt::format("%a = mul(%x, %w)\n%b = {}\nreturn %b", last)),
                  {ramp({1000, columns}, DType::f32), ramp({columns}, DType::f32)});
  };
  EXPECT_EQ(of_rows(40, "add(%a, %w)"), 1u);
  EXPECT_EQ(of_rows(3, "add(%a, %w)"), 0u);
  EXPECT_EQ(of_rows(3, "tanh(%a)"), 0u);
  // Where the type states how many they are, a kernel takes several rows at a time.
  EXPECT_EQ(of_rows(3, "add(%a, %w)", true), 1u);
  // Two sums of columns and what they add up.
  const std::string columns = one_stage("%x: f32[N, 64], %z: f32[N, 64]",
                                        "%a = mul(%x, %z)\n%s = sum(%a) {dim = [0]}\n"
                                        "%t = sum(%z) {dim = [0]}\nreturn %s, %t");
  EXPECT_EQ(groups(columns, {ramp({8, 64}, DType::f32), ramp({8, 64}, DType::f32)}), 0u);
  EXPECT_EQ(groups(columns, {ramp({4096, 64}, DType::f32), ramp({4096, 64}, DType::f32)}), 1u);
  // One instruction is no group, unless most of its time goes into the rows' beginnings. A row that
  // repeats is read once.
  const std::string row = one_stage("%x: f32[N, 20], %w: f32[20]", "%a = mul(%x, %w)\nreturn %a");
  const std::string rows =
      one_stage("%x: f64[N, 1, 10], %z: f64[25, 10]", "%a = sub(%x, %z)\nreturn %a");
  for (unsigned bits : {256u, 512u}) {
    if (!corpus::has_kernels(bits)) continue;
    context = make_context({.vector_bits = bits});
    EXPECT_EQ(groups(row, {ramp({20000, 20}, DType::f32), ramp({20}, DType::f32)}), 0u);
    EXPECT_EQ(groups(rows, {ramp({1000, 1, 10}), ramp({25, 10})}), 1u);
    EXPECT_EQ(groups(rows, {ramp({10, 1, 10}), ramp({25, 10})}), 0u);
    EXPECT_EQ(
        groups(one_stage("%x: f32[N]", "%a = exp(%x)\nreturn %a"), {ramp({4096}, DType::f32)}), 0u);
  }
}

// Kernels that read and write more than caches have store past them, rows that begin within a line
// included.
// SPEC F6
TEST_F(Fused, LargeResultsHaveTheSameBits) {
  auto code = compile(one_stage("%x: f32[N, M], %z: f32[N, M]",
                                "%a = mul(%x, %z)\n%b = add(%a, %x)\n%s = sum(%b) {dim = [1]}\n"
                                "return %b, %s"));
  for (int64_t columns : {4096, 4099}) {
    const std::vector<Tensor> in{ramp({1500, columns}, DType::f32),
                                 ramp({1500, columns}, DType::f32)};
    State plain = unfused(code), fused = state(code);
    auto a = run(plain, in), b = run(fused, in);
    EXPECT_EQ(fused.groups().size(), 1u);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i])) << columns;
  }
}

// What a recurrent network's gradient of a weight is: a product of each step, all added up.
std::string sums_of_products(int steps, int64_t size) {
  std::string text = fmt::format(
      "graph g {{\n  stage 0 (%a: f32[8, {0}], %b: f32[8, {0}]) {{\n"
      "    %t = transpose(%a) {{dim0 = 0, dim1 = 1}}\n    %s0 = matmul(%t, %b)\n",
      size);
  for (int i = 1; i < steps; ++i)
    text += fmt::format(
        "    %m{0} = mul(%b, 0.{0})\n    %p{0} = matmul(%t, %m{0})\n    %s{0} = add(%s{1}, "
        "%p{0})\n",
        i, i - 1);
  return text + fmt::format("    return y = %s{}\n  }}\n}}\n", steps - 1);
}

// A group of all the sums would keep all the products.
TEST_F(Fused, NoGroupWaitsOnMuchMemory) {
  const int64_t n = 512, megabyte = n * n * 4;
  const std::vector<Tensor> inputs{ramp({8, n}, DType::f32), ramp({8, n}, DType::f32)};
  auto code = compile(sums_of_products(12, n));
  State fused = state(code), plain = unfused(code);
  EXPECT_LE(fused.prepare({})[0].buffer, static_cast<size_t>(6 * megabyte));
  EXPECT_FALSE(fused.groups().empty());
  EXPECT_TRUE(bitwise_equal(run(fused, inputs)[0], run(plain, inputs)[0]));
  // Where that is little, one group reads each sum once.
  State small = state(compile(sums_of_products(12, 64)));
  small.prepare({});
  size_t most = 0;
  for (const FusedGroup& g : small.groups()) most = std::max(most, g.instructions.size());
  EXPECT_EQ(most, 11u);
}

}  // namespace
}  // namespace gradus
