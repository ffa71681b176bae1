// If, Loop and Scan as branches and loops of the program.
#pragma once

#include <functional>

#include "io/onnx/call.h"

namespace gradus::onnx {

// All throw Unsupported for what a loop of the program cannot be: states that are no tensors or
// change their types, values that have to be known while importing.

// The results of a node If whose condition the program computes.
void branch_by_data(Call& c);
// The results of a Loop of so many rounds at most, of sizes with names, or of data.
void loop_by_data(Call& c);
// The results of a Scan of version 9.
struct ScanForm {
  size_t states = 0;
  Ints in_axes, out_axes;
  std::vector<bool> in_backwards, out_backwards;
};
void scan_by_steps(Call& c, const ScanForm& form);

// A loop over the first dimension of a sequence, of what a rule emits for one step.
// Given   what the loop carries, and `step` from the carries and one element to the next carries
//         and what the step gives
// Result  the last carries, and what the steps give, along a new first dimension
std::vector<Value> scan_over(Call& c, std::span<const Value> carries, const Value& sequence,
                             bool backwards,
                             const std::function<std::vector<Value>(std::span<const Value>)>& step);

}  // namespace gradus::onnx
