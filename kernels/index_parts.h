// The parts that kernels for indices are made of.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// Where no index tensor has a say: sums over places that overlap.
Kernel make_sums(const Index& w);

}  // namespace gradus::kernels
