#include "fusion/cuda/launches.h"

namespace gradus::fusion::cuda {

namespace {

using ops::Window;

void run_products(const Launches& launches, std::byte* const* args, std::byte* scratch) {
  auto address = [](const std::byte* p, int64_t offset) {
    return reinterpret_cast<Address>(p) + static_cast<Address>(offset);
  };
  const Address workspace =
      (address(scratch, 0) + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
  for (const Multiply& m : launches.products) {
    const Address a = address(args[0], m.a), b = address(args[1], m.b), c = address(args[2], m.c);
    const bool aligned = (a | b | c) % product_alignment == 0;
    launches.accelerator->device_code().multiply(aligned ? *m.aligned : *m.other, a, b, c,
                                                 workspace, launches.accelerator->launch_stream());
  }
}

}  // namespace

void run_launches(const void* parameters, std::byte* const* args, ir::KernelScope& scope) {
  const auto& launches = *static_cast<const Launches*>(parameters);
  run_products(launches, args, scope.scratch);
  for (const Launch& l : launches.list) {
    SmallVector<uint64_t, 64> words;
    words.append(l.words.begin(), l.words.end());
    for (const Launch::Pointer& p : l.pointers) {
      std::byte* base = p.argument == Window::scratch ? scope.scratch : args[p.argument];
      words[p.word] = reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(p.offset);
    }
    launches.accelerator->device_code().launch(
        *l.code, {l.blocks, std::as_bytes(std::span(words.data(), words.size()))},
        launches.accelerator->launch_stream());
  }
}

}  // namespace gradus::fusion::cuda
