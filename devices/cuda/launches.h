// What the code of a single instruction is: launches of kernels, or calls of the libraries for
// products and convolutions.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "devices/cuda/backend.h"
#include "fusion/cuda/parameters.h"

namespace gradus::fusion::cuda {

// A launch of a kernel in stock.
struct Launch {
  std::shared_ptr<const LoadedCode> code;
  uint32_t blocks = 0;
  Arguments arguments;
};

// A product by the library: as it is chosen for aligned pointers, and for all others.
struct Multiply {
  std::shared_ptr<const Product> aligned, other;
  int64_t a, b, c;  // offsets in bytes
};

// A convolution by the library, for aligned pointers.
struct Convolve {
  std::shared_ptr<const Convolution> call;
  std::array<int64_t, 2> copied;  // where operands lie in scratch memory; -1: where they are
  std::vector<Launch> copies;     // that take them there
};

// Products alone; or launches alone; or a convolution, whose launches are for pointers that are not
// aligned.
struct Launches {
  std::shared_ptr<CudaBackend> backend;
  std::vector<Launch> list;
  std::vector<Multiply> products;
  bool adds_row = false;  // to each product's rows
  std::optional<Convolve> convolution;
};

inline constexpr uint32_t pointer_alignment = 16, workspace_alignment = 256;

// Backend::make: launches of kernels in stock, or calls of the libraries (make.cpp).
devices::DeviceCode make_code(std::shared_ptr<CudaBackend> backend, const work::Work& work,
                              int arguments, bool wait);

// One of them, by addresses of the device's.
void launch(const CudaBackend& backend, const Launch& launch, std::byte* const* args,
            std::byte* scratch);

// A work::KernelFunction, whose parameters are Launches.
void run_launches(const void* launches, std::byte* const* args, work::KernelScope& scope);

}  // namespace gradus::fusion::cuda
