#include "devices/cuda/launches.h"

namespace gradus::fusion::cuda {

using work::Window;

void launch(const CudaBackend& backend, const Launch& l, std::byte* const* args,
            std::byte* scratch) {
  SmallVector<uint64_t, 64> words;
  words.append(l.arguments.words.begin(), l.arguments.words.end());
  for (const Arguments::Pointer& p : l.arguments.pointers) {
    std::byte* base = p.argument == Window::scratch ? scratch : args[p.argument];
    words[p.word] = address_of(base, p.offset);
  }
  backend.device_code().launch(*l.code,
                               {l.blocks, std::as_bytes(std::span(words.data(), words.size()))},
                               backend.launch_stream());
}

namespace {

std::byte* aligned_workspace(std::byte* scratch) {
  const Address over = address_of(scratch) % workspace_alignment;
  return over ? scratch + (workspace_alignment - over) : scratch;
}

void run_products(const Launches& launches, std::byte* const* args, std::byte* scratch) {
  if (launches.products.empty()) return;  // it may have fewer arguments then
  const Address workspace = address_of(aligned_workspace(scratch));
  const Address row = launches.adds_row ? address_of(args[2]) : 0;
  std::byte* const result = args[launches.adds_row ? 3 : 2];
  for (const Multiply& m : launches.products) {
    const Address a = address_of(args[0], m.a), b = address_of(args[1], m.b),
                  c = address_of(result, m.c);
    const bool aligned = (a | b | row | c) % pointer_alignment == 0;
    launches.backend->device_code().multiply(aligned ? *m.aligned : *m.other, a, b, row, c,
                                             workspace, launches.backend->launch_stream());
  }
}

// False where a pointer is not aligned: then nothing was done.
bool run_convolution(const Launches& launches, std::byte* const* args, std::byte* scratch) {
  const Convolve& c = *launches.convolution;
  std::byte* const room = aligned_workspace(scratch);
  Address operands[2];
  for (size_t k : {0, 1})
    operands[k] = c.copied[k] < 0 ? address_of(args[k]) : address_of(room, c.copied[k]);
  const Address result = address_of(args[2]);
  if ((operands[0] | operands[1] | result) % pointer_alignment) return false;
  for (const Launch& l : c.copies) launch(*launches.backend, l, args, room);
  launches.backend->device_code().convolve(*c.call, operands[0], operands[1], result,
                                           address_of(room), launches.backend->launch_stream());
  return true;
}

}  // namespace

void run_launches(const void* parameters, std::byte* const* args, work::KernelScope& scope) {
  const auto& launches = *static_cast<const Launches*>(parameters);
  if (launches.convolution && run_convolution(launches, args, scope.scratch)) return;
  run_products(launches, args, scope.scratch);
  for (const Launch& l : launches.list) launch(*launches.backend, l, args, scope.scratch);
}

}  // namespace gradus::fusion::cuda
