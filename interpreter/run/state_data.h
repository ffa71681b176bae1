// A state as data. What it does are the free functions of steps.h.
#pragma once

#include "interpreter/handle.h"
#include "interpreter/run/memory.h"

namespace gradus::interpreter {

// What a state is between stages, and its clones with it. They share the memory.
struct Snapshot {
  std::shared_ptr<const Code> code;
  Place place;
  size_t stage = 0;
  std::vector<Tensor> registers;
  std::vector<Ref<const Handle>> handles;  // by register; none where code has none
  std::vector<uint64_t> versions;          // of held registers, as of the end of their segment
  std::vector<std::shared_ptr<const SegmentPlan>> plans;  // of the latest round, by segment
  // By segment: carried values that later ones read. Never written after their segment: clones
  // share them.
  std::vector<Ref<Storage>> blocks;
  bool poisoned = false;
  std::string poison;

  Snapshot(std::shared_ptr<const Code> c, Place p);
  // A constant of the program, or what the register holds.
  const Tensor& value(Register r) const {
    const Tensor& constant = code->constant(r);
    return constant.defined() ? constant : registers[index_of(r)];
  }
};

// The pointers of a segment's kernels, valid for one plan and one buffer.
struct SegmentFrame {
  std::shared_ptr<const SegmentPlan> plan;
  const std::byte* buffer = nullptr;
  std::vector<std::byte*> args;
  std::vector<const std::byte*> blocks;  // by SegmentPlan::blocks: where the pointers lead
  // On a device: the pointers of the last run, and its launches, once they came again.
  std::vector<std::byte*> last_args;
  std::shared_ptr<const void> recorded;
};

struct StateData : Snapshot {
  std::vector<SegmentFrame> frames;  // by segment
  Ref<Storage> buffer;
  LeftMemory left;
  std::vector<int64_t> key;  // kept to save the allocation

  explicit StateData(Snapshot snapshot);
  // Work goes on on the calling thread's current stream, after what was asked for before.
  void join_stream();
  // Back to before stage 0; memory is kept for the next round.
  void restart();
  void release_all();
};

}  // namespace gradus::interpreter
