// What of single instructions NVIDIA's libraries do, where they are there: large products and
// convolutions.
#pragma once

#include <optional>
#include <vector>

#include "devices/cuda/launches.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

struct LibraryProducts {
  std::vector<Multiply> calls;
  size_t scratch_bytes = 0;
};
// Nothing where a product is small, or the library has nothing for it.
std::optional<LibraryProducts> bind_products(Device& device, const work::Product& w);

struct LibraryConvolution {
  std::shared_ptr<const Convolution> call;
  // Operands with gaps are copied into scratch memory first, and read there; else -1.
  std::array<int64_t, 2> copied{-1, -1};
  std::vector<work::Copy> copies;
  size_t scratch_bytes = 0;  // the call's workspace comes first, aligned to workspace_alignment
};
// Nothing where a convolution is small, or the library has nothing for it.
std::optional<LibraryConvolution> bind_convolution(Device& device, const work::Convolution& w);

}  // namespace gradus::fusion::cuda
