// What becomes of a program, for tools that show it: the code of its kernels, and plans that
// nothing is run for.
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

// What describe_code writes code for: "cuda", and kinds of CPU ("x86-64-v4", "x86-64-v3",
// "aarch64"), which need not be this machine's.
std::vector<std::string_view> code_targets();

// The code of each group of the stages that the state has run, for people: CUDA C++ whose comments
// quote the program's lines, or assembly. Throws Error for a name that is no target, ResourceError
// where there is no compiler for that kind of CPU.
std::string describe_code(const State& state, std::string_view target);

// Instructions of one stage that a plan runs as one kernel.
struct PlannedKernel {
  size_t stage = 0;
  std::vector<uint32_t> nodes;  // of the stage of Code::graph()
  std::string nest;             // what it computes, as FusedGroup::nest
};

struct PlannedProgram {
  std::vector<PlannedKernel> kernels;            // in the order of the program
  std::map<ir::ValueId, ir::ValueId> memory_of;  // of a view: the value whose memory it is
  size_t host_instructions = 0;                  // that the device has no code for
};

// The groups whose ranks the program speaks to or counts, each once, in the order of names: what a
// context has to have bound (rank_groups) where it is run.
std::vector<std::string> groups_of(const ir::Graph& graph);

// Plans every stage for these sizes, which are of all of Code::dimensions(), and neither runs nor
// compiles anything: on the CPU, or on a cuda device, which need not be there. Throws Error where a
// size does not fit, and for another kind of device.
PlannedProgram plan_program(const Code& code, const DimSizes& sizes,
                            std::optional<Device> device = {});

}  // namespace gradus

#pragma GCC visibility pop
