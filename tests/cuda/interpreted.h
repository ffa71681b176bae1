// Kernels run by the PTX interpreter, as if it were a device.
#pragma once

#include "fusion/cuda/compiler.h"
#include "fusion/cuda/launch.h"
#include "fusion/kernels.h"
#include "tests/ptx/launch.h"

namespace gradus::fusion::test {

// A nest's PTX. A run copies what is loaded into memory of its own, launches, and copies back what
// was stored; addresses have the host's remainder by 16, so that packs are aligned where they are
// there. What was not stored is a fault, as is whatever the interpreter finds.
class Interpreted final : public Kernel {
 public:
  // `multiprocessors` bounds the blocks: with one, blocks walk on by strides.
  Interpreted(const Nest& nest, std::shared_ptr<const cuda::Code> code, int multiprocessors = 1);

  work::Kernel bind(const Frame& frame) const override;

  // Threads' instructions of all runs so far.
  static uint64_t instructions();

 private:
  friend struct InterpretedRun;
  const Nest nest_;
  const std::shared_ptr<const cuda::Code> code_;
  const ptx::Module module_;
  const int multiprocessors_;
};

// Compiled as fusion/cuda's tests compile.
std::shared_ptr<const Interpreted> interpreted(const Nest& nest);

}  // namespace gradus::fusion::test
