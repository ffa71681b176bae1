// The driver's library, and NVIDIA's for products, convolutions and exchanges, as tables of their
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fusion/cuda/library.h"

namespace gradus::fusion::cuda {

using DevicePointer = uint64_t;
using DriverContext = struct CudaContext*;
using DriverStream = struct CudaStream*;
using DriverEvent = struct CudaEvent*;
using DriverModule = struct CudaModule*;
using DriverFunction = struct CudaFunction*;
using DriverGraph = struct CudaGraph*;
using DriverGraphRun = struct CudaGraphExec*;
struct DriverDeviceId {
  char bytes[16];
};

// The lists of functions: what one returns, the table's member, the library's name, and what it
// takes.
#define GRADUS_TABLE_MEMBER(result, member, name, arguments) result(*member) arguments;

// libcuda.so.1. Every function returns 0, or a fault that error_text() names. The context is the
// one that CUDA's runtime has, too.
#define GRADUS_DRIVER_FUNCTIONS(X)                                                                 \
  X(int, init, cuInit, (unsigned flags))                                                           \
  X(int, version, cuDriverGetVersion, (int*))                                                      \
  X(int, error_name, cuGetErrorName, (int fault, const char**))                                    \
  X(int, error_string, cuGetErrorString, (int fault, const char**))                                \
  X(int, device_count, cuDeviceGetCount, (int*))                                                   \
  X(int, device, cuDeviceGet, (int* device, int ordinal))                                          \
  X(int, device_name, cuDeviceGetName, (char* name, int length, int device))                       \
  X(int, device_attribute, cuDeviceGetAttribute, (int* value, int attribute, int device))          \
  X(int, device_id, cuDeviceGetUuid_v2, (struct DriverDeviceId*, int device))                      \
  X(int, device_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                         \
  X(int, retain_context, cuDevicePrimaryCtxRetain, (DriverContext*, int device))                   \
  X(int, release_context, cuDevicePrimaryCtxRelease_v2, (int device))                              \
  X(int, set_context, cuCtxSetCurrent, (DriverContext))                                            \
  X(int, allocate, cuMemAlloc_v2, (DevicePointer*, size_t bytes))                                  \
  X(int, free, cuMemFree_v2, (DevicePointer))                                                      \
  X(int, allocate_host, cuMemAllocHost_v2, (void**, size_t bytes))                                 \
  X(int, free_host, cuMemFreeHost, (void*))                                                        \
  X(int, copy_to_device, cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, size_t, DriverStream)) \
  X(int, copy_to_host, cuMemcpyDtoHAsync_v2, (void*, DevicePointer, size_t, DriverStream))         \
  X(int, copy, cuMemcpyDtoDAsync_v2, (DevicePointer to, DevicePointer from, size_t, DriverStream)) \
  X(int, copy_between, cuMemcpyPeerAsync,                                                          \
    (DevicePointer to, DriverContext, DevicePointer from, DriverContext, size_t, DriverStream))    \
  X(int, can_access, cuDeviceCanAccessPeer, (int* can, int device, int other))                     \
  X(int, enable_access, cuCtxEnablePeerAccess, (DriverContext other, unsigned flags))              \
  X(int, fill, cuMemsetD8Async, (DevicePointer, unsigned char value, size_t, DriverStream))        \
  X(int, make_stream, cuStreamCreate, (DriverStream*, unsigned flags))                             \
  X(int, destroy_stream, cuStreamDestroy_v2, (DriverStream))                                       \
  X(int, wait_for_stream, cuStreamSynchronize, (DriverStream))                                     \
  X(int, make_event, cuEventCreate, (DriverEvent*, unsigned flags))                                \
  X(int, destroy_event, cuEventDestroy_v2, (DriverEvent))                                          \
  X(int, record_event, cuEventRecord, (DriverEvent, DriverStream))                                 \
  X(int, query_event, cuEventQuery, (DriverEvent))                                                 \
  X(int, stream_waits, cuStreamWaitEvent, (DriverStream, DriverEvent, unsigned flags))             \
  X(int, load_module, cuModuleLoadData, (DriverModule*, const void* image))                        \
  X(int, unload_module, cuModuleUnload, (DriverModule))                                            \
  X(int, find_function, cuModuleGetFunction, (DriverFunction*, DriverModule, const char* name))    \
  X(int, launch, cuLaunchKernel,                                                                   \
    (DriverFunction, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,  \
     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, DriverStream,                  \
     void** parameters, void** extra))                                                             \
  X(int, begin_capture, cuStreamBeginCapture_v2, (DriverStream, int mode))                         \
  X(int, end_capture, cuStreamEndCapture, (DriverStream, DriverGraph*))                            \
  X(int, destroy_graph, cuGraphDestroy, (DriverGraph))                                             \
  X(int, make_graph_run, cuGraphInstantiateWithFlags,                                              \
    (DriverGraphRun*, DriverGraph, unsigned long long flags))                                      \
  X(int, destroy_graph_run, cuGraphExecDestroy, (DriverGraphRun))                                  \
  X(int, launch_graph, cuGraphLaunch, (DriverGraphRun, DriverStream))
struct DriverTable {
  GRADUS_DRIVER_FUNCTIONS(GRADUS_TABLE_MEMBER)
};

// Opened when first asked for, then kept for the process. Thread-safe; throws nothing.
class DriverLibrary {
 public:
  static const DriverLibrary& get();

  const Library& library() const { return library_; }
  bool usable() const { return static_cast<bool>(library_); }
  const DriverTable& table() const { return table_; }
  // "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  std::string error_text(int fault) const;

 private:
  DriverLibrary();
  Library library_;
  DriverTable table_{};
};

// cuBLASLt, cuDNN and NCCL are large: nobody loads them before a product, a convolution or a group
// of ranks wants them, or somebody asks what is there.
// What libcublasLt hands out, and what it fills in: as cublasLt.h lays it out.
using LtDescriptor = struct CublasLtMatmulDesc;
using LtLayout = struct CublasLtMatrixLayout;
using LtWishes = struct CublasLtMatmulPreference;
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtFound {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
// libcublasLt. 0 is success.
#define GRADUS_PRODUCT_FUNCTIONS(X)                                                               \
  X(size_t, version, cublasLtGetVersion, ())                                                      \
  X(int, create, cublasLtCreate, (struct CublasLtHandle**))                                       \
  X(int, destroy, cublasLtDestroy, (struct CublasLtHandle*))                                      \
  X(int, make_what, cublasLtMatmulDescCreate, (LtDescriptor**, int compute_type, int scale_type)) \
  X(int, destroy_what, cublasLtMatmulDescDestroy, (LtDescriptor*))                                \
  X(int, set_what, cublasLtMatmulDescSetAttribute,                                                \
    (LtDescriptor*, int attribute, const void* value, size_t bytes))                              \
  X(int, make_layout, cublasLtMatrixLayoutCreate,                                                 \
    (LtLayout**, int type, uint64_t rows, uint64_t columns, int64_t step))                        \
  X(int, destroy_layout, cublasLtMatrixLayoutDestroy, (LtLayout*))                                \
  X(int, set_layout, cublasLtMatrixLayoutSetAttribute,                                            \
    (LtLayout*, int attribute, const void* value, size_t bytes))                                  \
  X(int, make_wishes, cublasLtMatmulPreferenceCreate, (LtWishes**))                               \
  X(int, destroy_wishes, cublasLtMatmulPreferenceDestroy, (LtWishes*))                            \
  X(int, set_wishes, cublasLtMatmulPreferenceSetAttribute,                                        \
    (LtWishes*, int attribute, const void* value, size_t bytes))                                  \
  X(int, find, cublasLtMatmulAlgoGetHeuristic,                                                    \
    (struct CublasLtHandle*, LtDescriptor*, LtLayout * a, LtLayout * b, LtLayout * c,             \
     LtLayout * d, LtWishes*, int most, LtFound*, int* found))                                    \
  X(int, multiply, cublasLtMatmul,                                                                \
    (struct CublasLtHandle*, LtDescriptor*, const void* alpha, const void* a, LtLayout*,          \
     const void* b, LtLayout*, const void* beta, const void* c, LtLayout*, void* d, LtLayout*,    \
     const LtAlgorithm*, void* workspace, size_t workspace_bytes, DriverStream))
struct ProductTable {
  GRADUS_PRODUCT_FUNCTIONS(GRADUS_TABLE_MEMBER)
};

// What libcudnn hands out, and what it fills in: as cudnn_cnn.h lays it out.
using CudnnHandle = struct CudnnContext;
using CudnnTensor = struct CudnnTensorDescriptor;
using CudnnFilter = struct CudnnFilterDescriptor;
using CudnnWhat = struct CudnnConvolutionDescriptor;
struct CudnnFound {
  int algorithm;
  int status;
  float seconds;
  size_t workspace_bytes;
  int deterministic;
  int math;
  int reserved[3];
};
// libcudnn. 0 is success. Of the result y, of the image's gradient dx and of the kernel's, dw.
#define GRADUS_CONVOLUTION_FUNCTIONS(X)                                                            \
  X(size_t, version, cudnnGetVersion, ())                                                          \
  X(const char*, status_name, cudnnGetErrorString, (int status))                                   \
  X(int, create, cudnnCreate, (CudnnHandle**))                                                     \
  X(int, destroy, cudnnDestroy, (CudnnHandle*))                                                    \
  X(int, set_stream, cudnnSetStream, (CudnnHandle*, DriverStream))                                 \
  X(int, make_tensor, cudnnCreateTensorDescriptor, (CudnnTensor**))                                \
  X(int, destroy_tensor, cudnnDestroyTensorDescriptor, (CudnnTensor*))                             \
  X(int, set_tensor, cudnnSetTensorNdDescriptor,                                                   \
    (CudnnTensor*, int type, int rank, const int* sizes, const int* strides))                      \
  X(int, make_filter, cudnnCreateFilterDescriptor, (CudnnFilter**))                                \
  X(int, destroy_filter, cudnnDestroyFilterDescriptor, (CudnnFilter*))                             \
  X(int, set_filter, cudnnSetFilterNdDescriptor,                                                   \
    (CudnnFilter*, int type, int format, int rank, const int* sizes))                              \
  X(int, make_what, cudnnCreateConvolutionDescriptor, (CudnnWhat**))                               \
  X(int, destroy_what, cudnnDestroyConvolutionDescriptor, (CudnnWhat*))                            \
  X(int, set_what, cudnnSetConvolutionNdDescriptor,                                                \
    (CudnnWhat*, int axes, const int* padding, const int* stride, const int* dilation, int mode,   \
     int compute_type))                                                                            \
  X(int, set_groups, cudnnSetConvolutionGroupCount, (CudnnWhat*, int))                             \
  X(int, set_math, cudnnSetConvolutionMathType, (CudnnWhat*, int))                                 \
  X(int, find_result, cudnnGetConvolutionForwardAlgorithm_v7,                                      \
    (CudnnHandle*, CudnnTensor * x, CudnnFilter * w, CudnnWhat*, CudnnTensor * y, int most,        \
     int* count, CudnnFound*))                                                                     \
  X(int, find_image, cudnnGetConvolutionBackwardDataAlgorithm_v7,                                  \
    (CudnnHandle*, CudnnFilter * w, CudnnTensor * dy, CudnnWhat*, CudnnTensor * dx, int most,      \
     int* count, CudnnFound*))                                                                     \
  X(int, find_kernel, cudnnGetConvolutionBackwardFilterAlgorithm_v7,                               \
    (CudnnHandle*, CudnnTensor * x, CudnnTensor * dy, CudnnWhat*, CudnnFilter * dw, int most,      \
     int* count, CudnnFound*))                                                                     \
  X(int, room_for_result, cudnnGetConvolutionForwardWorkspaceSize,                                 \
    (CudnnHandle*, CudnnTensor * x, CudnnFilter * w, CudnnWhat*, CudnnTensor * y, int algorithm,   \
     size_t* bytes))                                                                               \
  X(int, room_for_image, cudnnGetConvolutionBackwardDataWorkspaceSize,                             \
    (CudnnHandle*, CudnnFilter * w, CudnnTensor * dy, CudnnWhat*, CudnnTensor * dx, int algorithm, \
     size_t* bytes))                                                                               \
  X(int, room_for_kernel, cudnnGetConvolutionBackwardFilterWorkspaceSize,                          \
    (CudnnHandle*, CudnnTensor * x, CudnnTensor * dy, CudnnWhat*, CudnnFilter * dw, int algorithm, \
     size_t* bytes))                                                                               \
  X(int, run_result, cudnnConvolutionForward,                                                      \
    (CudnnHandle*, const void* alpha, CudnnTensor*, const void* x, CudnnFilter*, const void* w,    \
     CudnnWhat*, int algorithm, void* workspace, size_t workspace_bytes, const void* beta,         \
     CudnnTensor*, void* y))                                                                       \
  X(int, run_image, cudnnConvolutionBackwardData,                                                  \
    (CudnnHandle*, const void* alpha, CudnnFilter*, const void* w, CudnnTensor*, const void* dy,   \
     CudnnWhat*, int algorithm, void* workspace, size_t workspace_bytes, const void* beta,         \
     CudnnTensor*, void* dx))                                                                      \
  X(int, run_kernel, cudnnConvolutionBackwardFilter,                                               \
    (CudnnHandle*, const void* alpha, CudnnTensor*, const void* x, CudnnTensor*, const void* dy,   \
     CudnnWhat*, int algorithm, void* workspace, size_t workspace_bytes, const void* beta,         \
     CudnnFilter*, void* dw))
struct ConvolutionTable {
  GRADUS_CONVOLUTION_FUNCTIONS(GRADUS_TABLE_MEMBER)
};

// What libnccl hands out, and what it is given, as nccl.h lays it out. The options are those of
// NCCL 2.14: later versions take an older layout, which `bytes` and `version` name.
using NcclGroup = struct NcclCommunicator;
struct NcclId {
  char bytes[128];
};
struct NcclOptions {
  size_t bytes;
  unsigned magic, version;
  int blocking;
};
// libnccl, from 2.14 on. 0 is success.
#define GRADUS_EXCHANGE_FUNCTIONS(X)                                                             \
  X(int, version, ncclGetVersion, (int*))                                                        \
  X(const char*, status_name, ncclGetErrorString, (int status))                                  \
  X(const char*, last_fault, ncclGetLastError, (NcclGroup*))                                     \
  X(int, make_id, ncclGetUniqueId, (NcclId*))                                                    \
  X(int, join, ncclCommInitRankConfig, (NcclGroup**, int ranks, NcclId, int rank, NcclOptions*)) \
  X(int, state, ncclCommGetAsyncError, (NcclGroup*, int* status))                                \
  X(int, finalize, ncclCommFinalize, (NcclGroup*))                                               \
  X(int, destroy, ncclCommDestroy, (NcclGroup*))                                                 \
  X(int, abort, ncclCommAbort, (NcclGroup*))                                                     \
  X(int, all_reduce, ncclAllReduce,                                                              \
    (const void* in, void* out, size_t count, int type, int reducer, NcclGroup*, DriverStream))  \
  X(int, reduce_scatter, ncclReduceScatter,                                                      \
    (const void* in, void* out, size_t count, int type, int reducer, NcclGroup*, DriverStream))  \
  X(int, all_gather, ncclAllGather,                                                              \
    (const void* in, void* out, size_t count, int type, NcclGroup*, DriverStream))               \
  X(int, broadcast, ncclBroadcast,                                                               \
    (const void* in, void* out, size_t count, int type, int root, NcclGroup*, DriverStream))     \
  X(int, send, ncclSend,                                                                         \
    (const void* in, size_t count, int type, int peer, NcclGroup*, DriverStream))                \
  X(int, receive, ncclRecv,                                                                      \
    (void* out, size_t count, int type, int peer, NcclGroup*, DriverStream))                     \
  X(int, begin_calls, ncclGroupStart, ())                                                        \
  X(int, end_calls, ncclGroupEnd, ())
struct ExchangeTable {
  GRADUS_EXCHANGE_FUNCTIONS(GRADUS_TABLE_MEMBER)
};

template <class Table>
struct LateLibrary {
  Library library;
  Table table{};
};
const LateLibrary<ProductTable>& product_library();
const LateLibrary<ConvolutionTable>& convolution_library();
const LateLibrary<ExchangeTable>& exchange_library();

}  // namespace gradus::fusion::cuda
