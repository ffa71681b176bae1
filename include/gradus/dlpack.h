// DLPack: tensors in and out without copies. Specification: github.com/dmlc/dlpack, version 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradus/tensor.h"

// The C ABI of version 1, declared here because what distributions install is older and knows
// neither bool nor the versioned struct. A program that includes the official header too does so
// before this one.
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
  uint32_t minor;  // more dtypes and devices, the layout stays
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

// Out. The result shares the tensor's storage and keeps it alive until its deleter is called, once,
// on any thread; whoever receives it calls it. Throw Error for undefined tensors and those on a
// device that DLPack has no name for. Of a tensor on a cuda device the work that makes it may
// still be waiting: the consumer's stream has to wait for ours (gradus::let_wait in
// gradus/devices.h, as Python's __dlpack__ does with the stream that it is given). What a
// consumer writes raises no version: export with `read_only` what a later stage still needs, or a
// copy. The old struct has no such flag.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, bool read_only = false);
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// In, without a copy: the tensor views the foreign memory, strides included. On success the struct
// belongs to the tensor, and its deleter is called when the last view of the storage goes, on the
// thread that drops it (a deleter that needs a lock, as Python's, takes it itself). On an exception
// nothing was taken: the struct is still the caller's, who calls the deleter.
//
// Memory of a cuda device is taken as that, also if it is managed: operators run there once
// gradus::use_device was called for it. What its producer's streams still do there is for the
// producer to order before ours (__dlpack__'s `stream` is gradus::native_stream). Before its
// deleter is called, our streams have done what they were given. Pinned memory (cuda_host) is the
// cpu's.
//
// Throws Error for null, another major version, memory of other devices, dtypes without a
// counterpart (dtype.h's list is what there is), lanes other than 1, negative sizes or strides,
// sizes that overflow, null data with elements, elements that are not aligned to their size, and,
// on the cpu, bools other than 0 and 1: on a device nobody looks, and whoever gives them has to.
//
// Read-only tensors are taken: Gradus does not write to what it is given. Writes that the owner
// makes behind the tensor cannot be watched: its version stays.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

// Set by who runs work on a kind of device: returns when the device has done all that it was given,
// so that memory of others may go. Throws nothing. None is set at first.
using DeviceFence = void (*)(Device device) noexcept;
void set_device_fence(DeviceKind kind, DeviceFence fence);

}  // namespace gradus

#pragma GCC visibility pop
