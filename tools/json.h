// What other programs read. With view/model_json.cpp the only places of the tool that know the JSON
// library.
#pragma once

#include <string>
#include <vector>

#include "gradus/graph.h"

namespace gradus::cli {

// An instruction that ran, or several that ran as one kernel: the event is the last one's then.
// Times in microseconds.
struct TraceEvent {
  std::string op;
  size_t stage = 0, instruction = 0;
  SourceLocation where;
  double begin = 0, duration = 0;
  std::vector<size_t> group;  // all instructions of the kernel; empty: there is none
  std::string label;          // of a kernel: "mul @4, tanh @5"
  bool host = false;          // the host did it, between copies: the device has no code for it
  std::string body;  // the graph that a loop or a branch ran; empty: none, it is the stage's
  int64_t step = 0;  // of that loop
};

// In the format of chrome://tracing and Perfetto: a complete event per instruction, with the
// program's line (`source` may be null).
std::string trace_json(const std::vector<TraceEvent>& events, const ir::Source* source);
// What such a trace says of operators, stages, instructions, groups and times. Throws Error for a
// file that cannot be read or was not written by `trace_json`.
std::vector<TraceEvent> read_trace(const std::string& path);

// An array of {name, signature, operands, attributes, results, differentiable, doc}.
std::string operators_json();

}  // namespace gradus::cli
