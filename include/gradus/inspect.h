// For tools that show the code of a program's kernels, or plans without a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/state.h"

#pragma GCC visibility push(default)

namespace gradus {

// Returns the targets of describe_code: "cuda", and kinds of CPU ("x86-64-v4", "x86-64-v3",
// "aarch64"), which may differ from this machine.
std::vector<std::string_view> code_targets();

// Returns the code of each group of the stages that the state has run, as text: CUDA C++ with the
// program's lines as comments, or assembly. Throws Error for an unknown target, ResourceError if
// there is no compiler for that kind of CPU.
std::string describe_code(const State& state, std::string_view target);

// Instructions of one stage that a plan runs as one kernel.
struct PlannedKernel {
  size_t stage = 0;
  std::vector<uint32_t> nodes;  // nodes of the stage of Code::graph()
  std::string nest;             // the loop nest of the kernel, as FusedGroup::nest
};

// The plans of all stages of a program.
struct PlannedProgram {
  std::vector<PlannedKernel> kernels;            // in the order of the program
  std::map<ir::ValueId, ir::ValueId> memory_of;  // for each view: the value whose memory it is
  size_t host_instructions = 0;  // number of instructions without code for the device
};

// Returns the groups of ranks that the program communicates with or counts, each once, in the order
// of names. The context of a run must have a group for each name (rank_groups).
std::vector<std::string> groups_of(const ir::Graph& graph);

// Plans every stage for these sizes, without compiling or running it. `sizes` must have all of
// Code::dimensions(). `device` is null for the CPU, or a cuda device, which need not exist. Throws
// Error for a size that does not fit, and for another kind of device.
PlannedProgram plan_program(const Code& code, const DimSizes& sizes,
                            std::optional<Device> device = {});

// A group of instructions that the planner has weighed. The groups of loops' bodies are among them.
struct WeighedGroup {
  std::vector<std::string_view> operators;
  std::vector<SourceLocation> places;  // of the operators, in the text of the program
  bool is_kernel = false;
  // What the cost model expects of a kernel in place of single instructions, in nanoseconds of one
  // thread (fusion/cost.h).
  double saved = 0, lost = 0;
  std::string refused;  // why there is no kernel whatever it saves; may be empty
  // The instructions as a program of one stage, and the layouts of its inputs.
  std::shared_ptr<const ir::Graph> program;
  std::vector<Layout> inputs;
};

// Plans every stage for these sizes as plan_program does, for the CPU, and returns what its cost
// model has weighed. Of a group that is weighed several times, each time is an element.
std::vector<WeighedGroup> weigh_groups(const Code& code, const DimSizes& sizes);

// What a group takes as single instructions and as a kernel, in microseconds.
struct GroupTimes {
  double apart = 0, as_kernel = 0;
};
// Measures a group on one thread of a context of its own. Inputs are random numbers, and zeros
// where they are integers. Each time is the median of several rounds, which alternate. Throws Error
// for a group whose program needs a size that its inputs do not have.
GroupTimes measure_group(const WeighedGroup& group);

// Instructions that take a slow path on the CPU.
struct SlowPath {
  std::vector<std::string_view> operators;
  std::vector<SourceLocation> places;  // of the operators, in the text of the program
  std::string reason;                  // how many elements, and what is slow
};

// Plans every stage for these sizes as plan_program does, for the CPU with kernels, and returns
// what has at least 65,536 elements and is slow: groups that run as one loop for each instruction,
// writes in index order on one thread, and functions without vector instructions. Bodies of loops
// are among them.
std::vector<SlowPath> slow_paths(const Code& code, const DimSizes& sizes);

}  // namespace gradus

#pragma GCC visibility pop
