#include "tests/cuda/interpreted.h"

#include <atomic>
#include <map>

#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"

namespace gradus::fusion::test {

namespace {

std::atomic<uint64_t> all_instructions{0};

// Where a slot's elements lie, from its first one, in bytes.
struct Extent {
  int64_t below = 0, above = 0;
};

}  // namespace

struct InterpretedRun {
  std::shared_ptr<const Interpreted> kernel;
  cuda::LaunchPlan plan;
  std::vector<Extent> extents;  // by slot
  size_t loads;

  static void run(const void* parameters, std::byte* const* args, work::KernelScope&) {
    static_cast<const InterpretedRun*>(parameters)->launch(args);
  }

  void launch(std::byte* const* args) const {
    ptx::Memory memory;
    std::vector<uint64_t> addresses;
    std::map<std::pair<const std::byte*, int64_t>, uint64_t> known;  // an operand that is written
    for (size_t k = 0; k < extents.size(); ++k) {
      const Extent& e = extents[k];
      const std::byte* first = args[k] - e.below;
      const auto bytes = static_cast<size_t>(e.below + e.above);
      const size_t offset = reinterpret_cast<uintptr_t>(first) % 16;
      auto [found, fresh] = known.try_emplace({first, e.above});
      if (fresh) {
        found->second = memory.allocate(bytes + offset, 16) + offset;
        if (k < loads) memory.write(found->second, first, bytes);
      }
      addresses.push_back(found->second + static_cast<uint64_t>(e.below));
    }
    for (size_t part = 0; part < plan.launches(); ++part) launch_part(part, addresses, memory);
    for (size_t k = loads; k < extents.size(); ++k)
      memory.read(args[k], addresses[k], static_cast<size_t>(extents[k].above));
  }

  void launch_part(size_t part, const std::vector<uint64_t>& addresses, ptx::Memory& memory) const {
    std::vector<std::byte> room(plan.parameter_bytes());
    all_instructions +=
        launch_interpreted(kernel->module_, plan.launch(part, addresses, room), memory)
            .instructions;
  }
};

Interpreted::Interpreted(const Nest& nest, std::shared_ptr<const cuda::Code> code,
                         int multiprocessors)
    : nest_(nest),
      code_(std::move(code)),
      module_(ptx::Module::parse(code_->ptx)),
      multiprocessors_(multiprocessors) {}

uint64_t Interpreted::instructions() { return all_instructions; }

work::Kernel Interpreted::bind(const Frame& frame) const {
  auto run = std::make_shared<InterpretedRun>(
      InterpretedRun{std::static_pointer_cast<const Interpreted>(shared_from_this()),
                     cuda::LaunchPlan(nest_, code_->shape, frame, multiprocessors_),
                     {},
                     nest_.loads.size()});
  const bool any = frame.count() > 0;
  for (size_t k = 0; any && k < nest_.loads.size(); ++k) {
    const auto bytes = static_cast<int64_t>(size_of(nest_.loads[k].dtype));
    Extent e{0, bytes};
    for (size_t d = 0; d < frame.sizes.size(); ++d) {
      if (nest_.loads[k].walks[d] == Walk::broadcast || frame.sizes[d] == 1) continue;
      const int64_t last = (frame.sizes[d] - 1) * frame.strides[k][d] * bytes;
      (last < 0 ? e.below : e.above) += last < 0 ? -last : last;
    }
    run->extents.push_back(e);
  }
  auto stored = [&](ValueNumber v, int64_t n) {
    run->extents.push_back({0, n * static_cast<int64_t>(size_of(nest_.dtype_of(v)))});
  };
  for (ValueNumber v : nest_.stores)
    if (any) stored(v, frame.count());
  for (ValueNumber v : nest_.row_stores)
    if (any) stored(v, frame.count() / frame.sizes.back());
  if (!any) run->loads = 0;
  return {InterpretedRun::run, std::move(run), 0};
}

std::shared_ptr<const Interpreted> interpreted(const Nest& nest) {
  return std::make_shared<Interpreted>(nest, cuda_compiler().compile(nest));
}

}  // namespace gradus::fusion::test
