// In the place of the kernel compiler, in builds without LLVM: there are no kernels for the CPU,
// and programs run instruction by instruction, with the same bits.
#include "fusion/cpu/compiler.h"
#include "fusion/kernel_store.h"
#include "gradus/build.h"

namespace gradus::fusion {

namespace {

class NoKernels final : public Kernels {
 public:
  uint64_t id() const override { return id_; }
  bool wants(const Nest&, const Frame&) const override { return false; }
  std::shared_ptr<const KernelSet> ready() override { return none_; }
  std::shared_ptr<const Kernel> get(const Nest&, const std::string&) override { return nullptr; }
  void request(const Nest&, const std::string&) override {}
  void wait() override {}
  KernelStatistics statistics() const override { return {}; }

 private:
  const uint64_t id_ = KernelStore::next_id();
  const std::shared_ptr<const KernelSet> none_ = std::make_shared<KernelSet>();
};

}  // namespace

std::shared_ptr<Kernels> kernels_of(Context& context) {
  return context.part<Kernels>([] { return std::make_shared<NoKernels>(); });
}

bool cpu::runs_here(Isa) { return false; }

void cpu::open_compiler() {
  throw ResourceError("no kernels are made for the CPU: {}", why_missing(Part::llvm));
}

std::string cpu::assembly(const Nest&, Isa) {
  throw ResourceError("no code can be made for CPUs: {}", why_missing(Part::llvm));
}

}  // namespace gradus::fusion

namespace gradus {

void set_kernel_options(Context& context, const KernelOptions& options) {
  if (!options.folder.empty() || options.symbols)
    throw ResourceError("no kernels can be kept or named for the CPU: {}", why_missing(Part::llvm));
  context.replace_part<fusion::Kernels>(std::make_shared<fusion::NoKernels>());
}

}  // namespace gradus
