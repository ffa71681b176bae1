// y and dx of convolutions by our own loops.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// Of direction `result` or `image`, in the order of sums that work/convolution.h says.
Kernel make_gather(const Convolution& w);

}  // namespace gradus::kernels
