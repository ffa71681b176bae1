// The memory of a state: where it lies, and what stages leave for later ones.
#pragma once

#include "interpreter/plan.h"

namespace gradus::interpreter {

// Where a state runs: by a backend, with memory of the context where that has the host's.
struct Place {
  std::shared_ptr<Context> context;
  KernelChoice kernels;
  // Of the device, where what the state holds was made or used last.
  devices::Backend::Stream stream;

  Place(std::shared_ptr<Context> x, KernelChoice k)
      : context(std::move(x)), kernels(std::move(k)), stream(kernels.backend->stream()) {}
  bool on_host() const { return kernels.traits().host_memory; }

  // The memory is in use by the stream.
  void record_use(const Ref<Storage>& memory) const;
  Ref<Storage> memory(size_t bytes) const;
  Tensor empty(const Layout& layout) const;
  // A contiguous copy in the host's memory.
  Tensor copy_of(const Tensor& t) const;
  // A copy on the device, if there is one and the tensor is not there. `exactly`: with the same
  // strides.
  Tensor there(const Tensor& t, bool exactly = false) const;
  // A copy here, if the tensor is on the device.
  Tensor here(const Tensor& t) const;
};

// What stages leave for later ones, where the state is prepared: memory of the round before.
struct LeftMemory {
  bool prepared = false;      // keeps its memory
  std::vector<bool> is_left;  // by register: a tensor of the state's own that is no result
  // What stages of the last round left, for the next one's: by register, and by segment.
  std::vector<Tensor> tensors;
  std::vector<Ref<Storage>> blocks;

  // For rounds that these plans run, one per segment.
  void prepare(std::span<const std::shared_ptr<const SegmentPlan>> plans, size_t registers);
  // The same without memory.
  LeftMemory without_memory() const;

  Tensor take_tensor(const Event& e, const Place& place);
  Ref<Storage> take_block(const SegmentPlan& plan, const Place& place);
  // Both leave what is given empty.
  void let_go(Register r, Tensor& tensor);
  void let_block_go(size_t segment, Ref<Storage>& block);
};

}  // namespace gradus::interpreter
