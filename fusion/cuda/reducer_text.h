// Reductions' scalar meaning as CUDA C++.
#pragma once

#include <string>
#include <string_view>

#include "ops/reduce_kernel.h"
#include "tensor/dtype.h"

namespace gradus::fusion::cuda {

// The type of a reduction's values until it is done: no shuffle takes a bool.
std::string_view accumulator_type(DType accumulator);

// A struct with the identity, and what combines two values.
struct ReducerText {
  std::string name, definition;  // Sum_f32
};
ReducerText reducer_text(ops::Reducer reducer, DType accumulator);

}  // namespace gradus::fusion::cuda
