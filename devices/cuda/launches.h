// What the code of a single instruction is: launches of kernels, or calls of the libraries for
// products and convolutions.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "devices/cuda/backend.h"
#include "work/move.h"

namespace gradus::fusion::cuda {

// One launch: its parameters are words, of which some are addresses that come with the run.
struct Launch {
  struct Pointer {
    size_t word;
    int argument;    // work::Window::scratch: of the scratch memory
    int64_t offset;  // in bytes
  };
  std::shared_ptr<const LoadedCode> code;
  uint32_t blocks = 0;
  std::vector<uint64_t> words;
  std::vector<Pointer> pointers;

  void add(int64_t n) { words.push_back(static_cast<uint64_t>(n)); }
  void add(std::span<const int64_t> list) {
    for (int64_t n : list) add(n);
  }
  void add_pointer(int argument, int64_t offset) {
    pointers.push_back({words.size(), argument, offset});
    words.push_back(0);
  }
  void add_pointer(const work::Window& w) {
    add_pointer(w.argument, w.offset * static_cast<int64_t>(size_of(w.dtype)));
  }
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

// An work::KernelFunction, whose parameters are Launches.
void run_launches(const void* launches, std::byte* const* args, work::KernelScope& scope);

}  // namespace gradus::fusion::cuda
