// Nests of the corpus: every kernel that its programs ask for, in all their stages.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "fusion/cuda/compiler.h"
#include "fusion/kernels.h"
#include "tests/corpus/subject.h"

namespace gradus::fusion::test {

// Where kernels are kept for other runs: $GRADUS_CUDA_TEST_KERNELS, or the build's folder.
std::string kernel_folder();

// Compiles for sm_90, and keeps what it compiled for the process and in that folder.
cuda::Compiler& cuda_compiler();

// A source of kernels that are made by `make` when they are first asked for, each once. What `make`
// throws is kept, and there is no kernel then.
class MadeKernels final : public Kernels {
 public:
  using Make = std::function<std::shared_ptr<const Kernel>(const Nest&)>;
  explicit MadeKernels(Make make);

  uint64_t id() const override { return id_; }
  bool wants(const Nest& nest, const Frame&) const override { return !nest.has_edges(); }
  std::shared_ptr<const KernelSet> ready() override;
  std::shared_ptr<const Kernel> get(const Nest& nest, const std::string& text) override;
  void request(const Nest&, const std::string&) override {}
  void wait() override {}
  KernelStatistics statistics() const override;

  const std::vector<std::string>& failures() const { return failures_; }
  const std::map<std::string, std::shared_ptr<const Kernel>>& made() const { return made_; }

 private:
  const Make make_;
  uint64_t id_;
  std::map<std::string, std::shared_ptr<const Kernel>> made_;
  std::vector<std::string> failures_;
};

// The nests of a fixture's programs, by their text.
std::map<std::string, Nest> nests_of(const ir::Fixture& fixture);

// Runs all stages of the fixture's programs by such kernels. Where bits differ from those of a run
// without any, or a kernel cannot be made, says so.
std::string difference_by(const ir::Fixture& fixture, const MadeKernels::Make& make);

// What a fixture's programs did on a device.
struct DeviceRun {
  std::string difference;              // as difference_by says it
  size_t instructions = 0;             // that ran as kernels, or did something else
  std::map<std::string, size_t> host;  // of them, by operator, what the host did
  size_t host_instructions() const;
};
// All stages of them by `context`, whose kernels are a device's.
DeviceRun run_on_device(const ir::Fixture& fixture, const std::shared_ptr<Context>& context);

}  // namespace gradus::fusion::test
