// Exchanges tensors with other libraries through DLPack, without copies. Specification:
// github.com/dmlc/dlpack, version 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradus/tensor.h"

// The C ABI of version 1. It is declared here because the header in Linux distributions is older
// and has neither bool nor the versioned struct. A program that also includes the official header
// must include it before this one.
#ifdef DLPACK_DLPACK_H_
#ifndef DLPACK_FLAG_BITMASK_READ_ONLY
#error "this dlpack.h is older than version 1: leave it out, gradus/dlpack.h declares the ABI"
#endif
#else
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 0
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
extern "C" {

struct DLPackVersion {
  uint32_t major;  // the layout of DLManagedTensorVersioned
  uint32_t minor;  // further dtypes and devices, with the same layout
};

enum DLDeviceType : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
};

struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};

enum DLDataTypeCode {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U,
};

struct DLDataType {
  uint8_t code;  // a DLDataTypeCode
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;      // in elements; null: row-major
  uint64_t byte_offset;  // from `data` to the first element
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  // may be null
  uint64_t flags;
  DLTensor dl_tensor;
};

}  // extern "C"
#endif

#pragma GCC visibility push(default)

namespace gradus {

// Export a tensor. The result shares the tensor's storage and keeps it alive until its deleter is
// called. The receiver must call the deleter once, on any thread. Both functions throw Error for an
// undefined tensor and for a tensor on a device that DLPack cannot name.
//
// The work that computes a tensor on a cuda device may still be pending: the consumer's stream has
// to wait for this thread's stream (gradus::let_wait in gradus/devices.h; Python's __dlpack__ does
// so with its `stream` argument). Writes of the consumer do not raise the version. Export a tensor
// that a later stage still reads as `read_only`, or export a copy. The unversioned struct has no
// such flag.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, bool read_only = false);
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Import a tensor without a copy: the tensor is a view of the foreign memory, with its strides.
// After success the struct belongs to the tensor. Its deleter is called when the last view of the
// storage is destroyed, on that thread (a deleter that needs a lock, such as Python's, must take
// it). After an exception the struct still belongs to the caller.
//
// Memory of a cuda device, also managed memory, becomes a tensor on that device. Operators run
// there after gradus::use_device was called for the device. The producer must order the pending
// work of its streams before this thread's stream (the `stream` of __dlpack__ is
// gradus::native_stream). The deleter is called after the streams of Gradus have finished their
// work. Pinned memory (cuda_host) becomes a tensor on the CPU.
//
// Throws Error for null, for another major version, for memory of other devices, for a dtype that
// gradus/dtype.h does not have, and for lanes other than 1. Throws Error also for negative sizes or
// strides, sizes that overflow, null data with elements, and elements that are not aligned to their
// size. On the CPU, bools other than 0 and 1 are an Error; on a device the caller must ensure that
// bools are 0 or 1.
//
// Read-only tensors are accepted, because Gradus does not write to its inputs. Writes of the owner
// do not raise the version.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

// Sets the function that waits until a kind of device has finished all work of Gradus, so that
// foreign memory may be released. The backend of the device sets it. The function must not throw.
// There is none by default.
using DeviceFence = void (*)(Device device) noexcept;
void set_device_fence(DeviceKind kind, DeviceFence fence);

}  // namespace gradus

#pragma GCC visibility pop
