#include "tests/cuda/corpus.h"

#include <atomic>
#include <cstdlib>

namespace gradus::fusion::test {

namespace {

corpus::Results run(const corpus::Subject& subject, const std::shared_ptr<Context>& context,
                    FusionMode mode) {
  State state(subject.code, context, {.fusion = mode});
  return corpus::run_all(state, subject);
}

}  // namespace

std::string kernel_folder() {
  const char* given = std::getenv("GRADUS_CUDA_TEST_KERNELS");
  return given ? given : GRADUS_CUDA_TEST_KERNELS;
}

cuda::Compiler& cuda_compiler() {
  static cuda::Compiler compiler("sm_90", std::make_shared<ObjectStore>(kernel_folder()));
  return compiler;
}

MadeKernels::MadeKernels(Make make) : make_(std::move(make)) {
  static std::atomic<uint64_t> next{uint64_t{1} << 40};  // no other source counts so far
  id_ = next++;
}

std::shared_ptr<const KernelSet> MadeKernels::ready() { return std::make_shared<KernelSet>(); }

std::shared_ptr<const Kernel> MadeKernels::get(const Nest& nest, const std::string& text) {
  auto [found, fresh] = made_.try_emplace(text);
  if (fresh) try {
      found->second = make_(nest);
    } catch (const Exception& e) {
      failures_.push_back(fmt::format("{}\n{}", e.message(), text));
    }
  return found->second;
}

KernelStatistics MadeKernels::statistics() const {
  return {.misses = made_.size(), .failed = failures_.size()};
}

std::map<std::string, Nest> nests_of(const ir::Fixture& fixture) {
  std::map<std::string, Nest> nests;
  auto context = std::make_shared<Context>(ContextOptions{});
  context->replace_part<Kernels>(std::make_shared<MadeKernels>([&](const Nest& nest) {
    nests.emplace(print(nest), nest);
    return nullptr;
  }));
  for (const corpus::Subject& s : corpus::subjects(fixture)) run(s, context, FusionMode::first);
  return nests;
}

std::string difference_by(const ir::Fixture& fixture, const MadeKernels::Make& make) {
  auto context = std::make_shared<Context>(ContextOptions{});
  auto kernels = std::make_shared<MadeKernels>(make);
  context->replace_part<Kernels>(kernels);
  std::string found;
  for (const corpus::Subject& s : corpus::subjects(fixture))
    found += corpus::difference(s, run(s, Context::default_context(), FusionMode::off),
                                run(s, context, FusionMode::first));
  for (const std::string& failure : kernels->failures()) found += failure;
  return found;
}

size_t DeviceRun::host_instructions() const {
  size_t n = 0;
  for (const auto& [op, count] : host) n += count;
  return n;
}

DeviceRun run_on_device(const ir::Fixture& fixture, const std::shared_ptr<Context>& context) {
  DeviceRun result;
  for (const corpus::Subject& s : corpus::subjects(fixture)) {
    State state(s.code, context, {.fusion = FusionMode::first});
    const corpus::Results results = corpus::run_all(state, s);
    result.difference +=
        corpus::difference(s, run(s, Context::default_context(), FusionMode::off), results);
    for (const HostInstruction& h : state.host_instructions())
      ++result.host[std::string(s.code->stage(h.stage).instructions[h.instruction].op->name)];
    for (size_t stage = 0; stage < s.code->stages(); ++stage)
      for (const Instruction& i : s.code->stage(stage).instructions)
        result.instructions += i.kind == Instruction::Kind::kernel;
  }
  return result;
}

}  // namespace gradus::fusion::test
