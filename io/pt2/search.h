// Places in an order.
#pragma once

#include "io/pt2/call.h"

namespace gradus::pt2 {

// For x of a shape (a number has none) the first place in ascending rows whose element is not below
// x, or with `right` is above it. Of several rows each is searched for its own elements of x.
Value place_in_order(const Value& rows, const Value& x, bool right);

}  // namespace gradus::pt2
