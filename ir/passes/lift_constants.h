// Weights that stand in a program as constants, taken out of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Given   a verified program, as a trace is, with weights as constants
// Execute each constant of at least so many elements becomes an input of stage 0, behind those that
//         are there, named as the constant's value is, or w0, w1, …; equal tensors become one input
// Result  what the inputs have to be given, by name: for write_safetensors, and `gradus run
//         --weights`. Later stages stay as they are: no gradient of the new inputs is among them
std::vector<std::pair<std::string, Tensor>> lift_constants(Graph& graph, int64_t elements = 16);

}  // namespace gradus::ir

#pragma GCC visibility pop
