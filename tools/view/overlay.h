// What is known of a program beside its graph: which instructions run as one kernel, whose memory a
// value is, how long each instruction took.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gradus/code.h"
#include "gradus/inputs.h"
#include "tools/json.h"

namespace gradus::view {

// Instructions that run as one kernel.
struct Kernel {
  std::vector<uint32_t> nodes;  // of the stage
  std::string nest;             // what it computes, see work/nest.h; empty: not known
};

// All but `weights` of the lowered graph, `Code::graph()`.
struct Overlay {
  std::vector<std::vector<Kernel>> kernels;       // by stage
  std::vector<std::map<uint32_t, double>> times;  // by stage and node, in microseconds
  std::map<ir::ValueId, ir::ValueId> memory_of;   // of a view: whose memory it is
  DimSizes sizes;                                 // that plans were made for
  std::vector<std::string> notes;
  std::set<std::string, std::less<>> weights;  // inputs that are drawn where no call reads them
};

// Plans every stage for these sizes, others being `size_of_names`, without running or compiling
// anything: on the CPU, or on cuda:`device`, which need not be there. Where that cannot be done a
// note says why, and groups and views stay unknown.
Overlay overlay_of(const Code& code, const DimSizes& sizes, std::optional<int> device = {});

inline constexpr int64_t size_of_names = 256;

// Times, and the groups that ran, from a profile that `gradus run` wrote. Throws Error where it is
// of another program.
void add_profile(Overlay& overlay, const Code& code, const std::vector<cli::TraceEvent>& events,
                 const std::string& path);

}  // namespace gradus::view
