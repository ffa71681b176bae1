#include "devices/cuda/collectives.h"

#include "kernels/collective.h"

namespace gradus::fusion::cuda {

namespace {

struct DeviceCall {
  std::shared_ptr<CudaBackend> backend;
  work::Collective w;
  std::vector<Launch> copies;
};

// The same on every rank: it depends on the program, and on what the ranks have agreed on.
bool goes_by_nccl(const void* parameters, work::KernelScope& scope) {
  const auto& p = *static_cast<const DeviceCall*>(parameters);
  const auto [ranks, call] = kernels::rank_call(p.w, scope);
  const auto group = p.backend->exchanges().find(ranks);
  return group && group->makes(call);
}

void run_call(const DeviceCall& p, std::byte* const* args, work::KernelScope& scope) {
  const auto [ranks, call] = kernels::rank_call(p.w, scope);
  const auto group = p.backend->exchanges().find(ranks);
  GRADUS_CHECK(group);
  for (const Launch& l : p.copies) launch(*p.backend, l, args, scope.scratch);
  const std::byte* in = p.copies.empty() ? args[0] : scope.scratch;
  p.backend->exchanges().start(*group, call, p.w.group, in, args[1], p.backend->launch_stream());
}

}  // namespace

devices::DeviceCode make_collective(std::shared_ptr<CudaBackend> backend, const work::Collective& w,
                                    std::vector<Launch> copies, size_t scratch_bytes) {
  devices::DeviceCode code;
  code.kernel = work::Kernel::of<run_call>(DeviceCall{std::move(backend), w, std::move(copies)},
                                           scratch_bytes);
  code.applies = goes_by_nccl;
  return code;
}

}  // namespace gradus::fusion::cuda
