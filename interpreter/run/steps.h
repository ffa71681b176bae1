// What a state does, as free functions over its data; run_stage (stage.cpp) is the recipe of a run.
#pragma once

#include "gradus/state.h"
#include "interpreter/run/state_data.h"

namespace gradus::interpreter {

// A run of a stage while it goes on.
struct StageRun {
  static constexpr uint32_t no_instruction = UINT32_MAX;
  StateData& s;
  std::span<Tensor> results;  // the caller's: what is defined is a buffer for its result
  const RunOptions& options;
  uint32_t at = no_instruction;  // the instruction that runs, for who catches what it throws
};

// State::run_into. What throws while instructions run poisons the state.
void run_stage(StateData& s, std::span<const Tensor> inputs, std::span<Tensor> results,
               const RunOptions& options);

// Does f, which runs instructions. What it throws poisons the state, and then says where. `plan` is
// that of the segment that runs then.
void run_or_poison(StageRun& run, const std::shared_ptr<const SegmentPlan>& plan,
                   FunctionRef<void()> f);

// What run_stage does but for its checks, and for what follows from an error.
void run_round(StageRun& run, std::span<const Tensor> inputs);

// Given   a tensor for each of `inputs_of`, and the count, where data settles a size
// Result  the state's plan of the latest round if it fits, or one of the code's, or a new one;
//         kernels that it lacks are requested, for states to come
std::shared_ptr<const SegmentPlan> find_plan(StateData& s, size_t segment,
                                             std::span<const Tensor> inputs,
                                             std::optional<int64_t> count = {});

// Given   inputs are in their registers, and the plan fits them
// Result  what later segments and the caller read is in registers, and in the segment's block
void run_segment(StageRun& run, const std::shared_ptr<const SegmentPlan>& plan);
// The plan's pointers, with a buffer of at least so many bytes.
SegmentFrame& frame_of(StateData& s, const std::shared_ptr<const SegmentPlan>& plan,
                       size_t buffer_bytes);

// Whether the run of the only stage could be repeated by its kernels alone, if its inputs and these
// results lie where they did: on the host, with one segment, and by a plan that none replaces.
bool runs_by_kernels(const StateData& s, std::span<const Tensor> results);
// Given   runs_by_kernels
// Result  the results once more
void run_kernels(StateData& s, std::span<Tensor> results);

// Given   an opaque instruction at the beginning of a segment
// Result  what it gives is in registers; the plan of the rest of the segment
std::shared_ptr<const SegmentPlan> run_opaque(StageRun& run, size_t segment);
// Given   a segment of which data settles a size
// Result  its plan, for what there is to be counted
std::shared_ptr<const SegmentPlan> run_count(StageRun& run, size_t segment);

// Checks before anything runs: where one throws, the state is as it was.
// A stage is left, nothing failed before, and so many inputs are its own.
void check_runnable(const Snapshot& s, std::span<const Tensor> inputs);
// The ranks of the program's groups begin the same program, once for each context, device and
// group: they compare its text, and their devices agree how they exchange. Programs that send or
// receive may differ.
void agree_on_program(const StateData& s);
// Nobody wrote in place what an earlier segment than the plan's made: this register, those that the
// plan's kernels read, or all that the stage reads, also where only opaque instructions do.
void check_version(const Snapshot& s, Register r, const SegmentPlan& plan);
void check_versions(const Snapshot& s, const SegmentPlan& plan);
void check_outer(const Snapshot& s, const SegmentPlan& plan);
// The caller's buffers fit what is to be run, as far as that is known before.
void check_buffers(const Snapshot& s, const SegmentPlan& plan, std::span<const Tensor> inputs,
                   std::span<Tensor> results);
// The run may go on with an instruction.
void check_limits(const StageRun& run);

// State::prepare, save, and resume, into a state that nothing ran in.
std::vector<StageMemory> prepare(StateData& s, const DimSizes& sizes);
void save(StateData& s, const std::string& path);
void resume(StateData& s, const std::string& path);

}  // namespace gradus::interpreter
