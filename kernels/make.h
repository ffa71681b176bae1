// Code for work on the CPU. Loops are chosen and cut by sizes alone, so that results have the same
// bits on any number of threads.
#pragma once

#include "work/work.h"

namespace gradus::kernels {

using namespace work;  // this folder is the CPU's answer to that one

// Code for any work. Throws Error as work that cannot be done does.
Kernel make(const Work& work);

// Among how many threads the code for a write or sum can be divided at most.
int64_t parts_of(const Index& w);

// One kind each, in the kind's own file.
Kernel make_kernel(const Move& w);
Kernel make_kernel(const Index& w);
Kernel make_kernel(const IndexCheck& w);
Kernel make_kernel(const Reduce& w);
Kernel make_kernel(const Extremum& w);
Kernel make_kernel(const Product& w);
Kernel make_kernel(const Convolution& w);
Kernel make_kernel(const Columns& w);
Kernel make_kernel(const MaxPool& w);
Kernel make_kernel(const Triangle& w);
Kernel make_kernel(const Range& w);
Kernel make_kernel(const Spacing& w);
Kernel make_kernel(const OneHot& w);
Kernel make_kernel(const Nonzero& w);
Kernel make_kernel(const RandomBits& w);
Kernel make_kernel(const Sort& w);
Kernel make_kernel(const Scan& w);
Kernel make_kernel(const RunningMax& w);
Kernel make_kernel(const Factor& w);
Kernel make_kernel(const Solve& w);
Kernel make_kernel(const Fourier& w);
Kernel make_kernel(const Collective& w);
Kernel make_kernel(const CollectiveEnd& w);
Kernel make_kernel(const OwnRank& w);
Kernel make_kernel(const OwnBlock& w);
Kernel make_kernel(const Pointwise& w);
Kernel make_kernel(const Loops& w);
Kernel make_kernel(const Foreign& w);

}  // namespace gradus::kernels
