// What tests of CUDA kernels need of this machine, and how they are skipped where it is not there.
#pragma once

#include <gtest/gtest.h>

#include "fusion/cuda/nvrtc.h"

// At the head of a test: without NVRTC it is skipped, and says where that was looked for.
#define GRADUS_NEEDS_NVRTC()                          \
  if (!::gradus::fusion::cuda::Nvrtc::get().usable()) \
  GTEST_SKIP() << ::gradus::fusion::cuda::Nvrtc::get().library().fault
