// Sums of parts of one value.
#pragma once

#include "gradus/graph.h"

namespace gradus::ir {

// Given   sums whose terms are parts among zeros, as the gradients of selects, slices and unbinds
//         of one value are: ((z + pad(a)) + pad(b)) + pad(c)
// Execute at least three terms in a row that lie beside each other become one `cat`:
//         z + cat(a, b, c)
// Result  the same bits; each element of a part is moved once, and no zeros are added to it
void join_parts(Graph& graph);

}  // namespace gradus::ir
