// Two ranks with programs of their own, joined by messages.
// SPEC C2
#include <thread>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/ranks/joint.h"

namespace gradus::test {
namespace {

// y = sum (x w)^2 + sum x^2 w, x on rank 0 and w on rank 1; two messages of the same size.
constexpr const char* first = R"(graph first {
  stage 0 (%x: f64[3] varying(pipe)) {
    %q = square(%x)
    %a = send(%x) {group = "pipe", dest = 1}
    %b = send(%q) {group = "pipe", dest = 1}
    return a = %a, b = %b
  }
})";
constexpr const char* second = R"(graph second {
  stage 0 (%token: f64[0] varying(pipe), %w: f64[3] varying(pipe)) {
    %x = receive(%token) {group = "pipe", source = 0, shape = [3]}
    %q = receive(%token) {group = "pipe", source = 0, shape = [3]}
    %p = mul(%x, %w)
    %p2 = square(%p)
    %r = mul(%q, %w)
    %s = add(%p2, %r)
    %y = sum(%s)
    return y = %y
  }
})";

Tensor numbers(std::initializer_list<double> values) {
  return Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())},
                      std::vector<double>(values));
}

// Runs stages 0 and 1; the results of the second.
std::vector<Tensor> run_rank(const char* text, const std::shared_ptr<Communicator>& ranks,
                             const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& cotangents, FusionMode fusion) {
  const auto context = std::make_shared<Context>(ContextOptions{.workers = 1});
  rank_groups(*context).bind("pipe", ranks);
  const auto code = Code::compile(ir::differentiate(ir::parse(text).program(), {.order = 1}));
  State state(code, context, {.fusion = fusion});
  state.run(inputs);
  return state.run(cotangents);
}

TEST(Messages, CarryGradientsBack) {
  for (const FusionMode fusion : {FusionMode::off, FusionMode::first}) {
    const auto ends = thread_ranks(2, std::chrono::seconds(20));
    const Tensor token = numbers({});
    std::vector<Tensor> dx, dw;
    std::thread other([&] {
      dx = run_rank(first, ends[0], {numbers({1, 2, 3})}, {token, token}, fusion);
    });
    dw = run_rank(second, ends[1], {token, numbers({2, -1, 0.5})}, {Tensor::scalar(DType::f64, 1)},
                  fusion);
    other.join();
    // dy/dx = 2 x w^2 + 2 x w, dy/dw = 2 x^2 w + x^2
    EXPECT_EQ(dx[0].to_doubles(), (std::vector<double>{12, 0, 4.5}));
    EXPECT_EQ(dw[1].to_doubles(), (std::vector<double>{5, -4, 18}));
  }
}

TEST(Messages, AreSentBothWaysAtOnce) {
  // More than an MPI library or a pipe would take without a receiver.
  const auto ends = thread_ranks(2, std::chrono::seconds(20));
  constexpr const char* text = R"(graph both {
    stage 0 (%token: f64[0] varying(pipe), %x: f64[N] varying(pipe)) {
      %a = send(%x) {group = "pipe", dest = OTHER}
      %y = receive(%token) {group = "pipe", source = OTHER, shape = [N]}
      return a = %a, y = %y
    }
  })";
  std::vector<std::vector<Tensor>> got(2);
  std::vector<std::thread> threads;
  for (size_t r : {0, 1})
    threads.emplace_back([&, r] {
      std::string own = text;
      for (size_t at; (at = own.find("OTHER")) != std::string::npos;)
        own.replace(at, 5, std::to_string(1 - r));
      const auto context = std::make_shared<Context>(ContextOptions{.workers = 1});
      rank_groups(*context).bind("pipe", ends[r]);
      State state(Code::compile(ir::parse(own).program()), context, {});
      got[r] = state.run(std::vector<Tensor>{
          numbers({}), Tensor::from(DType::f64, Sizes{100000},
                                    std::vector<double>(100000, static_cast<double>(r)))});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got[0][1].to_doubles()[99999], 1);
  EXPECT_EQ(got[1][1].to_doubles()[0], 0);
}

}  // namespace
}  // namespace gradus::test
