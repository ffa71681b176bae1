// What fails half-way: instructions, observers, memory.
#include "gradus/registry.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

// Views, held values, absent cotangents, several results, constants.
const char* const program = R"(
graph f {
  stage 0 (%x: f64[N, 3], %w: f64[3]) {
    %c = constant() {value = f64[3] [1, 2, 3]}
    %a = mul(%x, %w)
    %t = transpose(%a) {dim0 = 0, dim1 = 1}
    %e = exp(%t)
    %m, %i = max_dim(%e) {dim = 0}
    %k = mul(%w, %c)
    %l = logsumexp(%a) {dim = 1}
    %q = matmul(%a, %e)
    return %t, %m, %k, %l, %q
  }
}
)";

std::vector<std::vector<Tensor>> random_inputs(const Code& code) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  std::vector<std::vector<Tensor>> inputs;
  for (size_t s = 0; s < code.stages(); ++s) {
    inputs.emplace_back();
    for (size_t i = 0; i < code.inputs(s); ++i) {
      Sizes shape;
      for (const ir::Dim& d : code.input_type(s, i).dims)
        shape.push_back(d.is_constant() ? d.value() : 2);
      std::vector<double> values(static_cast<size_t>(numel(shape)));
      for (double& v : values) v = normal(random);
      inputs.back().push_back(Tensor::from(DType::f64, shape, values));
      if (s > 0 && i == 1) inputs.back().back() = Tensor();
    }
  }
  return inputs;
}

struct ThrowAt : InstructionObserver {
  ThrowAt(int n, int kind) : left(n), kind(kind) {}
  int left, kind;
  void count() {
    if (left-- != 0) return;
    switch (kind) {
      case 0:
        throw std::runtime_error("injected");
      case 1:
        throw Error("injected");
      case 2:
        throw 42;
      case 3:
        throw "injected";
      case 4:
        throw std::bad_alloc();
      default:
        throw ResourceError("injected");
    }
  }
  void before(size_t, size_t) override { count(); }
  void after(size_t, size_t) override { count(); }
};

// At every instruction of every stage, before and after it, with every kind of exception.
// SPEC I14
TEST(Faults, EveryInstructionMayThrowAnything) {
  auto code = compile(program, 2);
  auto inputs = random_inputs(*code);
  Counted counted;
  std::vector<std::vector<Tensor>> want;
  {
    State state(code, counted.context);
    for (auto& in : inputs) want.push_back(run(state, in));
  }
  size_t baseline = counted.heap->live_bytes(), failures = 0;
  for (size_t stage = 0; stage < code->stages(); ++stage) {
    for (int n = 0;; ++n) {
      State state(code, counted.context);
      for (size_t s = 0; s < stage; ++s) run(state, inputs[s]);
      State kept = state.clone();
      ThrowAt fault(n, n % 6);
      bool failed = false;
      try {
        run(state, inputs[stage], {.observer = &fault});
      } catch (...) {
        failed = true;
      }
      if (!failed) {
        EXPECT_EQ(static_cast<size_t>(n), 2 * code->stage(stage).instructions.size());
        break;
      }
      ++failures;
      EXPECT_TRUE(state.poisoned());
      EXPECT_EQ(state.held_registers(), 0u);
      EXPECT_NE(error_of([&] { run(state, inputs[stage]); }).find("cannot go on"),
                std::string::npos);
      EXPECT_TRUE(state.clone().poisoned());
      for (size_t s = stage; s < code->stages(); ++s) {
        auto got = run(kept, inputs[s]);
        for (size_t i = 0; i < got.size(); ++i)
          if (want[s][i].defined()) {
            EXPECT_TRUE(bitwise_equal(got[i], want[s][i]));
          }
      }
      state.restart();
      EXPECT_NO_THROW(run(state, inputs[0]));
    }
    EXPECT_EQ(counted.heap->live_bytes(), baseline);
  }
  EXPECT_GT(failures, 100u);
}

// Runs out at the n-th call.
class Scarce final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (left >= 0 && left-- == 0) throw ResourceError("no memory (injected)");
    ++live;
    return heap_.allocate(bytes);
  }
  void deallocate(void* block, size_t bytes) noexcept override {
    --live;
    heap_.deallocate(block, bytes);
  }
  int left = -1, live = 0;

 private:
  HeapAllocator heap_;
};

// SPEC I14
TEST(Faults, EveryAllocationMayFail) {
  auto code = compile(program, 2);
  auto inputs = random_inputs(*code);
  auto memory = std::make_shared<Scarce>();
  auto context =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = memory, .log = {}});
  for (bool copies : {false, true}) {
    size_t failures = 0, placed = 0;
    for (size_t stage = 0; stage < code->stages(); ++stage) {
      for (int n = 0;; ++n) {
        State state(code, context);
        for (size_t s = 0; s < stage; ++s) run(state, inputs[s]);
        memory->left = n;
        bool failed = false;
        try {
          run(state, inputs[stage], {.copy_inputs = copies});
        } catch (const ResourceError& e) {
          failed = true;
          placed += std::string_view(e.what()).find("error: no memory") != std::string::npos;
        }
        memory->left = -1;
        if (!failed) {
          EXPECT_GT(n, 0);
          break;
        }
        ++failures;
        // Refused before anything ran (a copy of an input), or poisoned.
        if (state.poisoned()) {
          EXPECT_EQ(state.held_registers(), 0u);
        } else {
          EXPECT_NO_THROW(run(state, inputs[stage]));
        }
        state.restart();
        EXPECT_NO_THROW(run(state, inputs[0]));
      }
    }
    EXPECT_GT(failures, 10u);
    // Those of an instruction's result say where; a stage's buffer and copied inputs are of none.
    EXPECT_GT(placed, 5u);
    EXPECT_LT(placed, failures);
    EXPECT_EQ(memory->live, 0);
  }
}

// An observer is told of every instruction, also of those that cost nothing.
// SPEC I16, I18
TEST(Faults, ViewsAreInstructionsToo) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[2, 3]) {
    %a = transpose(%x) {dim0 = 0, dim1 = 1}
    %b = reshape(%x) {shape = [6]}
    %c = unsqueeze(%a) {dim = 0}
    %y = sum(%c)
    %z = sum(%b)
    return %y, %z
  }
}
)");
  struct Seen : InstructionObserver {
    std::vector<size_t> order;
    void before(size_t, size_t i) override { order.push_back(i); }
    void after(size_t, size_t i) override { order.push_back(100 + i); }
  } seen;
  State state(code);
  run(state, {Tensor::zeros(DType::f64, Sizes{2, 3})}, {.observer = &seen});
  EXPECT_EQ(seen.order, (std::vector<size_t>{0, 100, 1, 101, 2, 102, 3, 103, 4, 104}));
}

// SPEC I19
TEST(Faults, WritesThroughViewsNameTheInput) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[2, 3], %w: f64[2]) {
    %t = transpose(%x) {dim0 = 0, dim1 = 1}
    %s = reshape(%t) {shape = [6]}
    return %s
  }
  stage 1 (%ct: f64[2]) {
    %u = unsqueeze(%t) {dim = 0}
    return
  }
  stage 2 () {
    %y = sum(%u)
    return %y
  }
}
)");
  Tensor x = Tensor::from(DType::f64, Sizes{2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6}),
         w = f64({1, 2});
  for (size_t write_after : {0u, 1u}) {
    State state(code);
    run(state, {x, w});
    if (write_after == 1) run(state, {f64({1, 1})});
    x.mutable_data_as<double>()[0] = 1;
    std::string message = error_of([&] {
      if (write_after == 0) run(state, {f64({1, 1})});
      run(state, {});
    });
    EXPECT_NE(message.find("'%x' of stage 0 was changed in place"), std::string::npos) << message;
  }
  // Copied, the values stay: also those that only a view holds, and those with odd strides.
  Tensor odd =
      Tensor::from(DType::f64, Sizes{3, 4}, std::vector<double>{1, 4, 0, 0, 2, 5, 0, 0, 3, 6, 0, 0})
          .view(Layout(DType::f64, Sizes{2, 3}, Sizes{1, 4}), 0);
  for (const Tensor& input : {x, odd}) {
    Counted counted;
    State state(code, counted.context);
    run(state, {input, w}, {.copy_inputs = true});
    Tensor(input).mutable_data_as<double>()[0] = 1000;
    run(state, {f64({1, 1})});
    EXPECT_EQ(run(state, {})[0].item(), 21);
    EXPECT_GT(counted.heap->calls(), 0u);
    Tensor(input).mutable_data_as<double>()[0] = 1;
  }
}

// SPEC I19
TEST(Faults, CopiedInputsMayLieAnyhow) {
  auto code = compile(program, 1);
  auto inputs = random_inputs(*code);
  State plain(code), copied(code);
  Tensor base = inputs[0][0];
  std::vector<double> values = base.to_doubles();
  // The same values, columns first.
  Tensor columns = Tensor::from(DType::f64, Sizes{3, 2},
                                std::vector<double>{values[0], values[3], values[1], values[4],
                                                    values[2], values[5]})
                       .view(Layout(DType::f64, Sizes{2, 3}, Sizes{1, 2}), 0);
  run(plain, inputs[0]);
  run(copied, {columns, inputs[0][1]}, {.copy_inputs = true});
  columns.mutable_data_as<double>()[1] = 77;
  auto a = run(plain, inputs[1]), b = run(copied, inputs[1]);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i]));
}

}  // namespace
}  // namespace gradus
