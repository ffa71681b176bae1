// How a kernel is launched for a frame: how many blocks, and what its parameters are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fusion/cuda/source.h"

namespace gradus::fusion::cuda {

constexpr int64_t blocks_each = 32;  // of a multiprocessor, at most

// All that follows from the sizes. Immutable. Kernels count in 32 bits: a frame of more elements
// is launched in parts.
class LaunchPlan {
 public:
  // `multiprocessors`: of the device; more blocks than keep them busy walk on by strides. The frame
  // fits the nest. Throws Error for rows of 2^31 elements and more.
  LaunchPlan(const Nest& nest, const KernelShape& shape, const Frame& frame, int multiprocessors);

  struct Launch {
    uint32_t blocks;                        // of block_threads each
    std::span<const std::byte> parameters;  // as the kernel takes them, one after another
  };
  size_t launches() const { return parts_.size(); }  // none where there is no element
  // `addresses` are those of the first elements of loads, stores and row stores; `room` is for the
  // parameters, of parameter_bytes() at least, and is what the result refers to.
  Launch launch(size_t part, std::span<const uint64_t> addresses, std::span<std::byte> room) const;
  size_t parameter_bytes() const { return bytes_; }

 private:
  struct Part {
    uint32_t blocks;
    std::vector<std::byte> fields;
    std::vector<int64_t> offsets;  // in bytes, by slot
  };
  void split(const Nest& nest, const KernelShape& shape, Frame frame, std::vector<int64_t> offsets,
             int multiprocessors);
  void add_part(const Nest& nest, const KernelShape& shape, const Frame& frame,
                std::vector<int64_t> offsets, int multiprocessors);
  void find_alignments(const Nest& nest, const KernelShape& shape, const Frame& frame);

  std::vector<Part> parts_;
  std::vector<uint64_t> alignments_;  // by slot: what packs want of its address; 0: nothing helps
  size_t whole_ = SIZE_MAX;           // where Shape::whole lies among the fields
  size_t bytes_ = 0;
};

}  // namespace gradus::fusion::cuda
