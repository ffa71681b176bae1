// Small helpers for the interpreter's tests.
#pragma once

#include <random>

#include <gtest/gtest.h>

#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::test {

inline std::shared_ptr<const Code> compile(const std::string& text) {
  return Code::compile(ir::parse(text, "test.ir").program());
}
inline std::shared_ptr<const Code> compile(const std::string& text, int order) {
  return Code::compile(ir::differentiate(ir::parse(text, "test.ir").program(), {.order = order}));
}

inline Tensor f64(std::initializer_list<double> values) {
  return Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())},
                      std::vector<double>(values));
}
inline Tensor f64(Sizes shape, std::initializer_list<double> values) {
  return Tensor::from(DType::f64, shape, std::vector<double>(values));
}
inline Tensor scalar(double v) { return Tensor::scalar(DType::f64, v); }

inline std::vector<Tensor> run(State& state, std::vector<Tensor> inputs,
                               const RunOptions& options = {}) {
  return state.run(inputs, options);
}

// The message of the Error that `f` throws; fails the test if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

// A context whose tensor memory is counted.
struct Counted {
  std::shared_ptr<HeapAllocator> heap = std::make_shared<HeapAllocator>();
  std::shared_ptr<Context> context =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = heap, .log = {}});
};

// Tells a token to cancel at the first instruction.
class Canceller final : public InstructionObserver {
 public:
  explicit Canceller(CancelToken& token) : token_(token) {}
  void before(size_t, size_t instruction) override {
    if (instruction == 0) token_.cancel();
  }
  void after(size_t, size_t) override {}

 private:
  CancelToken& token_;
};

}  // namespace gradus::test
