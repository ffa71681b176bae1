// Reductions' scalar meaning as CUDA C++.
#pragma once

#include <string>
#include <string_view>

#include "gradus/dtype.h"
#include "work/reduce.h"

namespace gradus::fusion::cuda {

// The type of a reduction's values until it is done: no shuffle takes a bool.
std::string_view accumulator_type(DType accumulator);

// A struct with the identity, and what combines two values.
struct ReducerText {
  std::string name, definition;  // Sum_f32
};
ReducerText reducer_text(work::Reducer reducer, DType accumulator);

}  // namespace gradus::fusion::cuda
