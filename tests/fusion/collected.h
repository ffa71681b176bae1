// The nests that programs ask kernels for.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "fusion/kernels.h"
#include "tests/corpus/subject.h"

namespace gradus::fusion::test {

// Wants a kernel of whatever can be grouped, as the CPU's compiler does where it always wants one,
// and makes none.
class Collected final : public Kernels {
 public:
  uint64_t id() const override { return id_; }
  bool wants(const Nest&, const Frame&) const override { return true; }
  bool takes_columns(int64_t, int64_t, DType) const override { return true; }
  bool reads_before_writing() const override { return true; }
  std::shared_ptr<const KernelSet> ready() override { return none_; }
  std::shared_ptr<const Kernel> get(const Nest& nest, const std::string& text) override {
    nests.emplace(text, nest);
    return nullptr;
  }
  void request(const Nest&, const std::string&) override {}
  void wait() override {}
  KernelStatistics statistics() const override { return {}; }

  std::map<std::string, Nest> nests;  // by text

 private:
  static uint64_t next_id() {
    static std::atomic<uint64_t> next{uint64_t{1} << 41};  // no other source counts so far
    return next++;
  }
  const uint64_t id_ = next_id();
  const std::shared_ptr<const KernelSet> none_ = std::make_shared<KernelSet>();
};

// Those of a fixture's programs, by their text.
inline std::map<std::string, Nest> nests_of(const ir::Fixture& fixture) {
  auto context = std::make_shared<Context>(ContextOptions{});
  auto kernels = std::make_shared<Collected>();
  context->replace_part<Kernels>(kernels);
  for (const corpus::Subject& s : corpus::subjects(fixture)) {
    State state(s.code, context, {.fusion = FusionMode::first});
    corpus::run_all(state, s);
  }
  return std::move(kernels->nests);
}

}  // namespace gradus::fusion::test
