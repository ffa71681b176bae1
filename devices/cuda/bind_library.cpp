#include "devices/cuda/bind_library.h"

#include <algorithm>

namespace gradus::fusion::cuda {

namespace {

constexpr double least_work = 1 << 20;  // multiplications that a call is worth

size_t aligned(size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

}  // namespace

// Matrices of the last batch dimension are one call; of others there are few, or it is not worth
// it.
std::optional<LibraryProducts> bind_products(Device& device, const work::Product& w) {
  constexpr int64_t most_calls = 64;
  work::Gemm g = w.gemm;
  const Products* library = device.products();
  if (!library || !library->wants(g)) return std::nullopt;
  int64_t calls = 1, each = g.m * g.n;
  for (size_t d = 0; d + 1 < g.batch.size(); ++d) calls *= g.batch[d].size;
  if (calls > most_calls) return std::nullopt;
  if (!g.batch.empty()) each *= g.batch.back().size;
  const SmallVector<work::Gemm::Batch, 3> batch = g.batch;
  if (batch.size() > 1) g.batch = {batch.back()};
  const auto bytes = static_cast<int64_t>(size_of(g.dtype));
  const auto aligned = library->make(g, pointer_alignment, w.adds_row);
  const auto other = library->make(g, static_cast<uint32_t>(bytes), w.adds_row);
  if (!aligned || !other) return std::nullopt;
  LibraryProducts products;
  for (int64_t call = 0; call < calls; ++call) {
    int64_t left = call, a = 0, b = 0;
    for (size_t d = batch.size(); d-- > 1; left /= batch[d - 1].size) {
      a += left % batch[d - 1].size * batch[d - 1].a_stride;
      b += left % batch[d - 1].size * batch[d - 1].b_stride;
    }
    products.calls.push_back({aligned, other, a * bytes, b * bytes, call * each * bytes});
  }
  products.scratch_bytes =
      std::max(aligned->workspace_bytes(), other->workspace_bytes()) + workspace_alignment;
  return products;
}

std::optional<LibraryConvolution> bind_convolution(Device& device, const work::Convolution& w) {
  using Direction = work::Direction;
  const Layout& kernel = w.direction == Direction::kernel ? w.result : w.second;
  const Layout& windows = w.direction == Direction::result  ? w.result
                          : w.direction == Direction::image ? w.first
                                                            : w.second;
  if (kernel.numel() == 0) return std::nullopt;
  const double multiplications =
      static_cast<double>(windows.numel()) * static_cast<double>(kernel.numel() / kernel.shape[0]);
  // The library writes results without gaps.
  if (multiplications < least_work || !w.result.contiguous()) return std::nullopt;
  const Convolutions* library = device.convolutions();
  if (!library) return std::nullopt;
  LibraryConvolution c;
  c.call = library->make(w);
  if (!c.call) return std::nullopt;
  size_t at = aligned(c.call->workspace_bytes());
  const Layout* operands[] = {&w.first, &w.second};
  for (int k : {0, 1}) {
    const Layout& l = *operands[k];
    if (l.contiguous()) continue;
    work::Copy move;
    move.shape = l.shape;
    move.source = {k, l.dtype, l.strides, 0};
    c.copied[static_cast<size_t>(k)] = static_cast<int64_t>(at);
    move.target = {work::Window::scratch, l.dtype, contiguous_strides(l.shape),
                   static_cast<int64_t>(at / size_of(l.dtype))};
    c.copies.push_back(std::move(move));
    at += aligned(static_cast<size_t>(l.numel()) * size_of(l.dtype));
  }
  c.scratch_bytes = at + workspace_alignment;
  return c;
}

}  // namespace gradus::fusion::cuda
