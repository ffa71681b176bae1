// A double of cuDNN, which convolves on the memory of a device of the interpreter's and checks what
// it is given as the library's headers say it must be.
#pragma once

#include <string>
#include <vector>

#include "devices/cuda/convolutions.h"
#include "tests/cuda/device.h"

namespace gradus::fusion::test {

// What one call was.
struct ConvolutionCall {
  work::Direction direction;
  std::vector<int> image, kernel, result;  // sizes
  std::vector<int> padding, stride, dilation;
  int groups, type, compute, math, algorithm;
};

struct ConvolutionDouble {
  ptx::Memory* memory = nullptr;
  std::vector<ConvolutionCall> calls;
  std::vector<std::string> faults;  // what of a call no library would take
  int left = 0;                     // descriptors that nobody destroyed
  int searches = 0;
  size_t workspace_bytes = 1000;          // that it asks for
  std::vector<cuda::CudnnFound> offered;  // instead of what it lists else
  // Statuses that calls return instead of doing what they are for.
  int create_status = 0, find_status = 0, run_status = 0;
};

// The one that the table's functions work on. Tests run one at a time.
ConvolutionDouble& convolution_double();
// Its functions.
const cuda::ConvolutionTable& convolution_double_table();

}  // namespace gradus::fusion::test
