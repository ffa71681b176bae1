// Arithmetic on sizes that have names: what models compute from Shape to feed Reshape.
#pragma once

#include "io/onnx/call.h"

namespace gradus::onnx {

// The result of a node of which an input is made of named sizes, if it can be said in names of
// sizes again; null otherwise.
ItemPtr fold_sizes(Call& call);

}  // namespace gradus::onnx
