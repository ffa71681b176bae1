#include "fusion/cuda/bind_library.h"

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
std::optional<LibraryProducts> bind_products(Device& device, const ops::DeviceProduct& form) {
  constexpr int64_t most_calls = 64;
  ops::Gemm g = form.gemm;
  const double work =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (!form.large &&
      !(g.dtype == DType::f16 && std::min({g.m, g.n, g.k}) > 1 && work >= least_work))
    return std::nullopt;
  const Products* library = device.products();
  if (!library) return std::nullopt;
  int64_t calls = 1, each = g.m * g.n;
  for (size_t d = 0; d + 1 < g.batch.size(); ++d) calls *= g.batch[d].size;
  if (calls > most_calls) return std::nullopt;
  if (!g.batch.empty()) each *= g.batch.back().size;
  const SmallVector<ops::Gemm::Batch, 3> batch = g.batch;
  if (batch.size() > 1) g.batch = {batch.back()};
  const auto bytes = static_cast<int64_t>(size_of(g.dtype));
  const auto aligned = library->make(g, pointer_alignment, form.adds_row);
  const auto other = library->make(g, static_cast<uint32_t>(bytes), form.adds_row);
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

std::optional<LibraryConvolution> bind_convolution(Device& device,
                                                   const ops::DeviceConvolution& form) {
  using Direction = ops::DeviceConvolution::Direction;
  const Layout& kernel = form.direction == Direction::kernel ? form.result : form.second;
  const Layout& windows = form.direction == Direction::result  ? form.result
                          : form.direction == Direction::image ? form.first
                                                               : form.second;
  if (kernel.numel() == 0) return std::nullopt;
  const double work =
      static_cast<double>(windows.numel()) * static_cast<double>(kernel.numel() / kernel.shape[0]);
  // The library writes results without gaps.
  if (work < least_work || !form.result.contiguous()) return std::nullopt;
  const Convolutions* library = device.convolutions();
  if (!library) return std::nullopt;
  LibraryConvolution c;
  c.call = library->make(form);
  if (!c.call) return std::nullopt;
  size_t at = aligned(c.call->workspace_bytes());
  const Layout* operands[] = {&form.first, &form.second};
  for (int k : {0, 1}) {
    const Layout& l = *operands[k];
    if (l.contiguous()) continue;
    ops::DeviceMove move;
    move.shape = l.shape;
    move.source = {k, l.dtype, l.strides, 0};
    c.copied[static_cast<size_t>(k)] = static_cast<int64_t>(at);
    move.target = {ops::Window::scratch, l.dtype, contiguous_strides(l.shape),
                   static_cast<int64_t>(at / size_of(l.dtype))};
    c.copies.push_back(std::move(move));
    at += aligned(static_cast<size_t>(l.numel()) * size_of(l.dtype));
  }
  c.scratch_bytes = at + workspace_alignment;
  return c;
}

}  // namespace gradus::fusion::cuda
