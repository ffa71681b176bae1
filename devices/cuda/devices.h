// What there is of CUDA on this machine, early and in words: not at the first kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fusion/cuda/library.h"

namespace gradus::fusion::cuda {

struct DeviceFacts {
  std::string name;              // "NVIDIA H200"
  int number = 0;                // of cuda:0
  std::array<uint64_t, 2> id{};  // that no other device has, of any machine
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  // sm_90: what machine code for it is called; empty for a device that is none (planned_device).
  std::string architecture() const;
};

struct DeviceReport {
  Library driver, compiler, products, convolutions, exchanges;
  std::vector<DeviceFacts> devices;
  std::string no_device;  // why there is none that can be used, and what to do; empty if there is
};

// Loads all of them. Throws nothing; thread-safe.
DeviceReport probe_devices();
std::string to_string(const DeviceReport& report);

// The same of the driver, its devices and the compiler alone.
DeviceReport probe_kernels();

// Why cuda:`number` cannot be used, and what to do; empty if it can. Loads what kernels want, and
// none of cuBLASLt, cuDNN and NCCL.
std::string why_no_device(int number);

}  // namespace gradus::fusion::cuda
