// What other programs read. The only place of the tool that knows the JSON library.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace gradus::cli {

// An instruction that ran. Times in microseconds.
struct TraceEvent {
  std::string op;
  size_t stage, instruction;
  SourceLocation where;
  double begin, duration;
};

// In the format of chrome://tracing and Perfetto: a complete event per instruction, with the
// program's line (`source` may be null).
std::string trace_json(const std::vector<TraceEvent>& events, const ir::Source* source);

// An array of {name, signature, operands, attributes, results, differentiable, doc}.
std::string operators_json();

}  // namespace gradus::cli
