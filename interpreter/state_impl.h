// A state's insides.
#pragma once

#include "interpreter/handle.h"
#include "interpreter/plan.h"
#include "interpreter/state.h"

namespace gradus {

// One run at a time: a second thread, or a run from inside the run, is refused.
class State::Occupy {
 public:
  explicit Occupy(std::atomic<bool>& running) : running_(running) {
    if (running_.exchange(true, std::memory_order_acquire))
      throw Error(
          "this state is running already, on another thread or further up this one; use a "
          "clone");
  }
  ~Occupy() { running_.store(false, std::memory_order_release); }
  Occupy(const Occupy&) = delete;

 private:
  std::atomic<bool>& running_;
};

struct State::Impl {
  using SegmentPlan = interpreter::SegmentPlan;
  using Event = interpreter::Event;
  static constexpr uint32_t no_instruction = UINT32_MAX;

  // The pointers of a segment's kernels, valid for one plan and one buffer.
  struct Frame {
    std::shared_ptr<const SegmentPlan> plan;
    const std::byte* buffer = nullptr;
    std::vector<std::byte*> args;
    std::vector<const std::byte*> blocks;  // by SegmentPlan::blocks: where the pointers lead
    // On a device: the pointers of the last run, and its launches, once they came again.
    std::vector<std::byte*> last_args;
    std::shared_ptr<const void> recorded;
  };

  std::shared_ptr<const Code> code;
  std::shared_ptr<Context> context;
  interpreter::KernelChoice kernels;
  size_t stage = 0;
  std::vector<Tensor> registers;
  std::vector<Ref<const interpreter::Handle>> handles;  // by register; none where code has none
  std::vector<uint64_t> versions;  // of held registers, as of the end of their segment
  std::vector<std::shared_ptr<const SegmentPlan>> plans;  // of the latest round, by segment
  std::vector<Frame> frames;                              // by segment
  Ref<Storage> buffer;
  // By segment: carried values that later ones read. Never written after their segment: clones
  // share them.
  std::vector<Ref<Storage>> blocks;
  std::vector<int64_t> key;  // kept to save the allocation
  std::string poison;
  bool poisoned = false;
  bool prepared = false;  // keeps its memory
  // Of a prepared state: what stages of the last round left, for the next one's; by register and by
  // segment.
  std::vector<Tensor> spare_tensors;
  std::vector<Ref<Storage>> spare_blocks;
  std::vector<bool> is_left;  // by register: a tensor of the state's own that is no result
  std::span<Tensor> into;     // while a stage runs: the caller's buffers, by result; may be empty
  // Of the device, where what the state holds was made or used last.
  devices::Backend::Stream stream = 0;
  std::atomic<bool> running{false};

  Impl(std::shared_ptr<const Code> c, std::shared_ptr<Context> x, interpreter::KernelChoice k);

  void run(std::span<const Tensor> inputs, std::span<Tensor> results, const RunOptions& options);

  // Before anything runs.
  void check_runnable(std::span<const Tensor> inputs) const;
  std::shared_ptr<const SegmentPlan> find_plan(size_t segment, std::span<const Tensor> inputs,
                                               std::optional<int64_t> count = {});
  void check_version(Register r, const SegmentPlan& plan) const;
  void check_versions(const SegmentPlan& plan) const;
  void check_outer(const SegmentPlan& plan) const;

  // A segment. `at` is the instruction that is running, for who catches what it throws.
  void run_segment(const std::shared_ptr<const SegmentPlan>& plan, uint32_t& at,
                   const RunOptions& options);
  std::vector<StageMemory> prepare(const DimSizes& sizes);
  Frame& prepare_frame(const std::shared_ptr<const SegmentPlan>& plan);
  Frame& frame_of(const std::shared_ptr<const SegmentPlan>& plan, size_t buffer_bytes);
  void patch(const SegmentPlan& plan, Frame& frame, uint32_t external);
  void patch_blocks(const SegmentPlan& plan, Frame& frame);
  void do_events(const SegmentPlan& plan, Frame& frame, uint32_t first, uint32_t count);
  void run_steps(const SegmentPlan& plan, Frame& frame, uint32_t& at);
  void run_whole(const SegmentPlan& plan, Frame& frame, uint32_t& at);
  void run_recorded(const SegmentPlan& plan, Frame& frame, uint32_t& at);
  void run_checked_steps(const SegmentPlan& plan, Frame& frame, uint32_t& at,
                         const RunOptions& options);
  // Whether code of a device found anything wrong.
  void clear_faults(const SegmentPlan& plan) const;
  void check_faults(const SegmentPlan& plan, uint32_t& at) const;
  void check_limits(const RunOptions& options, size_t instruction) const;
  void finish(const SegmentPlan& plan, std::span<Tensor> results, const RunOptions& options);

  // The caller's buffers: whether they fit what is to be run, as far as that is known before.
  void check_buffers(const SegmentPlan& plan, std::span<const Tensor> inputs,
                     std::span<Tensor> results) const;
  // The result, in its buffer.
  void fill_buffer(size_t result, const Tensor& value, Tensor& buffer) const;

  // Memory that stages leave for later ones: of the round before, where the state is prepared.
  Tensor tensor_to_leave(const Event& e);
  Ref<Storage> block_to_leave(const SegmentPlan& plan);
  void let_go(Register r);
  void let_block_go(size_t segment);
  std::string lines_of_group(const SegmentPlan& plan, uint32_t at) const;

  // The opaque instruction that a segment begins with. Its results are in their registers then.
  // Returns the plan of the rest of the segment.
  std::shared_ptr<const SegmentPlan> run_opaque(size_t segment, uint32_t& at,
                                                const RunOptions& options);
  // The plan of a segment that begins with a count, for what there is to be counted.
  std::shared_ptr<const SegmentPlan> count(size_t segment, uint32_t& at);
  SmallVector<Tensor, 4> opaque_operands(const Instruction& i, const SegmentPlan& before) const;
  interpreter::OpaqueResults apply_opaque(const Instruction& i,
                                          std::span<const Tensor> operands) const;
  void check_opaque_results(const Instruction& i, std::span<const Tensor> results,
                            const SegmentPlan& before) const;

  // Work goes on on the calling thread's current stream, after what was asked for before.
  void join_stream();
  // The memory is in use by that stream.
  void record_use(const Ref<Storage>& memory) const;
  // A contiguous copy in memory of this state's context.
  Tensor copy_of(const Tensor& t) const;
  // Where the state runs: on its device, or here.
  Ref<Storage> memory_there(size_t bytes) const;
  Tensor empty_there(const Layout& layout) const;
  // A copy where the state runs, if the tensor is not there. `exactly`: with the same strides.
  Tensor there(const Tensor& t, bool exactly = false) const;
  // A copy here, if the tensor is on the state's device.
  Tensor here(const Tensor& t) const;
  void release_all();
  // Holds also where there is no memory for the reason.
  void set_poison(uint32_t at, const char* why) noexcept;
};

}  // namespace gradus
