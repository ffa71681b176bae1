// The driver's library, and NVIDIA's for products and convolutions, as tables of their functions.
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

// libcuda.so.1. Every function returns 0, or a fault that error_text() names.
struct DriverTable {
  int (*init)(unsigned flags);
  int (*version)(int*);
  int (*error_name)(int fault, const char**);
  int (*error_string)(int fault, const char**);
  int (*device_count)(int*);
  int (*device)(int* device, int ordinal);
  int (*device_name)(char* name, int length, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*device_memory)(size_t* bytes, int device);
  int (*retain_context)(DriverContext*, int device);  // the one that CUDA's runtime has, too
  int (*release_context)(int device);
  int (*set_context)(DriverContext);
  int (*allocate)(DevicePointer*, size_t bytes);
  int (*free)(DevicePointer);
  int (*allocate_host)(void**, size_t bytes);
  int (*free_host)(void*);
  int (*copy_to_device)(DevicePointer, const void*, size_t, DriverStream);
  int (*copy_to_host)(void*, DevicePointer, size_t, DriverStream);
  int (*copy)(DevicePointer to, DevicePointer from, size_t, DriverStream);
  int (*copy_between)(DevicePointer to, DriverContext, DevicePointer from, DriverContext, size_t,
                      DriverStream);
  int (*can_access)(int* can, int device, int other);
  int (*enable_access)(DriverContext other, unsigned flags);
  int (*fill)(DevicePointer, unsigned char value, size_t, DriverStream);
  int (*make_stream)(DriverStream*, unsigned flags);
  int (*destroy_stream)(DriverStream);
  int (*wait_for_stream)(DriverStream);
  int (*make_event)(DriverEvent*, unsigned flags);
  int (*destroy_event)(DriverEvent);
  int (*record_event)(DriverEvent, DriverStream);
  int (*query_event)(DriverEvent);
  int (*stream_waits)(DriverStream, DriverEvent, unsigned flags);
  int (*load_module)(DriverModule*, const void* image);
  int (*unload_module)(DriverModule);
  int (*find_function)(DriverFunction*, DriverModule, const char* name);
  int (*launch)(DriverFunction, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                DriverStream, void** parameters, void** extra);
  int (*begin_capture)(DriverStream, int mode);
  int (*end_capture)(DriverStream, DriverGraph*);
  int (*destroy_graph)(DriverGraph);
  int (*make_graph_run)(DriverGraphRun*, DriverGraph, unsigned long long flags);
  int (*destroy_graph_run)(DriverGraphRun);
  int (*launch_graph)(DriverGraphRun, DriverStream);
};

// A table's members, and what the library calls them.
#define GRADUS_DRIVER_FUNCTIONS(X)                 \
  X(init, cuInit)                                  \
  X(version, cuDriverGetVersion)                   \
  X(error_name, cuGetErrorName)                    \
  X(error_string, cuGetErrorString)                \
  X(device_count, cuDeviceGetCount)                \
  X(device, cuDeviceGet)                           \
  X(device_name, cuDeviceGetName)                  \
  X(device_attribute, cuDeviceGetAttribute)        \
  X(device_memory, cuDeviceTotalMem_v2)            \
  X(retain_context, cuDevicePrimaryCtxRetain)      \
  X(release_context, cuDevicePrimaryCtxRelease_v2) \
  X(set_context, cuCtxSetCurrent)                  \
  X(allocate, cuMemAlloc_v2)                       \
  X(free, cuMemFree_v2)                            \
  X(allocate_host, cuMemAllocHost_v2)              \
  X(free_host, cuMemFreeHost)                      \
  X(copy_to_device, cuMemcpyHtoDAsync_v2)          \
  X(copy_to_host, cuMemcpyDtoHAsync_v2)            \
  X(copy, cuMemcpyDtoDAsync_v2)                    \
  X(copy_between, cuMemcpyPeerAsync)               \
  X(can_access, cuDeviceCanAccessPeer)             \
  X(enable_access, cuCtxEnablePeerAccess)          \
  X(fill, cuMemsetD8Async)                         \
  X(make_stream, cuStreamCreate)                   \
  X(destroy_stream, cuStreamDestroy_v2)            \
  X(wait_for_stream, cuStreamSynchronize)          \
  X(make_event, cuEventCreate)                     \
  X(destroy_event, cuEventDestroy_v2)              \
  X(record_event, cuEventRecord)                   \
  X(query_event, cuEventQuery)                     \
  X(stream_waits, cuStreamWaitEvent)               \
  X(load_module, cuModuleLoadData)                 \
  X(unload_module, cuModuleUnload)                 \
  X(find_function, cuModuleGetFunction)            \
  X(launch, cuLaunchKernel)                        \
  X(begin_capture, cuStreamBeginCapture_v2)        \
  X(end_capture, cuStreamEndCapture)               \
  X(destroy_graph, cuGraphDestroy)                 \
  X(make_graph_run, cuGraphInstantiateWithFlags)   \
  X(destroy_graph_run, cuGraphExecDestroy)         \
  X(launch_graph, cuGraphLaunch)

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

// cuBLASLt and cuDNN are large: nobody loads them before a product or a convolution wants them, or
// somebody asks what is there.
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
struct ProductTable {  // libcublasLt. 0 is success
  size_t (*version)();
  int (*create)(struct CublasLtHandle**);
  int (*destroy)(struct CublasLtHandle*);
  int (*make_what)(LtDescriptor**, int compute_type, int scale_type);
  int (*destroy_what)(LtDescriptor*);
  int (*set_what)(LtDescriptor*, int attribute, const void* value, size_t bytes);
  int (*make_layout)(LtLayout**, int type, uint64_t rows, uint64_t columns, int64_t step);
  int (*destroy_layout)(LtLayout*);
  int (*set_layout)(LtLayout*, int attribute, const void* value, size_t bytes);
  int (*make_wishes)(LtWishes**);
  int (*destroy_wishes)(LtWishes*);
  int (*set_wishes)(LtWishes*, int attribute, const void* value, size_t bytes);
  int (*find)(struct CublasLtHandle*, LtDescriptor*, LtLayout* a, LtLayout* b, LtLayout* c,
              LtLayout* d, LtWishes*, int most, LtFound*, int* found);
  int (*multiply)(struct CublasLtHandle*, LtDescriptor*, const void* alpha, const void* a,
                  LtLayout*, const void* b, LtLayout*, const void* beta, const void* c, LtLayout*,
                  void* d, LtLayout*, const LtAlgorithm*, void* workspace, size_t workspace_bytes,
                  DriverStream);
};
#define GRADUS_PRODUCT_FUNCTIONS(X)                   \
  X(version, cublasLtGetVersion)                      \
  X(create, cublasLtCreate)                           \
  X(destroy, cublasLtDestroy)                         \
  X(make_what, cublasLtMatmulDescCreate)              \
  X(destroy_what, cublasLtMatmulDescDestroy)          \
  X(set_what, cublasLtMatmulDescSetAttribute)         \
  X(make_layout, cublasLtMatrixLayoutCreate)          \
  X(destroy_layout, cublasLtMatrixLayoutDestroy)      \
  X(set_layout, cublasLtMatrixLayoutSetAttribute)     \
  X(make_wishes, cublasLtMatmulPreferenceCreate)      \
  X(destroy_wishes, cublasLtMatmulPreferenceDestroy)  \
  X(set_wishes, cublasLtMatmulPreferenceSetAttribute) \
  X(find, cublasLtMatmulAlgoGetHeuristic)             \
  X(multiply, cublasLtMatmul)

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
struct ConvolutionTable {  // libcudnn. 0 is success
  size_t (*version)();
  const char* (*status_name)(int status);
  int (*create)(CudnnHandle**);
  int (*destroy)(CudnnHandle*);
  int (*set_stream)(CudnnHandle*, DriverStream);
  int (*make_tensor)(CudnnTensor**);
  int (*destroy_tensor)(CudnnTensor*);
  int (*set_tensor)(CudnnTensor*, int type, int rank, const int* sizes, const int* strides);
  int (*make_filter)(CudnnFilter**);
  int (*destroy_filter)(CudnnFilter*);
  int (*set_filter)(CudnnFilter*, int type, int format, int rank, const int* sizes);
  int (*make_what)(CudnnWhat**);
  int (*destroy_what)(CudnnWhat*);
  int (*set_what)(CudnnWhat*, int axes, const int* padding, const int* stride, const int* dilation,
                  int mode, int compute_type);
  int (*set_groups)(CudnnWhat*, int);
  int (*set_math)(CudnnWhat*, int);
  // Of the result y, of the image's gradient dx and of the kernel's, dw.
  int (*find_result)(CudnnHandle*, CudnnTensor* x, CudnnFilter* w, CudnnWhat*, CudnnTensor* y,
                     int most, int* count, CudnnFound*);
  int (*find_image)(CudnnHandle*, CudnnFilter* w, CudnnTensor* dy, CudnnWhat*, CudnnTensor* dx,
                    int most, int* count, CudnnFound*);
  int (*find_kernel)(CudnnHandle*, CudnnTensor* x, CudnnTensor* dy, CudnnWhat*, CudnnFilter* dw,
                     int most, int* count, CudnnFound*);
  int (*room_for_result)(CudnnHandle*, CudnnTensor* x, CudnnFilter* w, CudnnWhat*, CudnnTensor* y,
                         int algorithm, size_t* bytes);
  int (*room_for_image)(CudnnHandle*, CudnnFilter* w, CudnnTensor* dy, CudnnWhat*, CudnnTensor* dx,
                        int algorithm, size_t* bytes);
  int (*room_for_kernel)(CudnnHandle*, CudnnTensor* x, CudnnTensor* dy, CudnnWhat*, CudnnFilter* dw,
                         int algorithm, size_t* bytes);
  int (*run_result)(CudnnHandle*, const void* alpha, CudnnTensor*, const void* x, CudnnFilter*,
                    const void* w, CudnnWhat*, int algorithm, void* workspace,
                    size_t workspace_bytes, const void* beta, CudnnTensor*, void* y);
  int (*run_image)(CudnnHandle*, const void* alpha, CudnnFilter*, const void* w, CudnnTensor*,
                   const void* dy, CudnnWhat*, int algorithm, void* workspace,
                   size_t workspace_bytes, const void* beta, CudnnTensor*, void* dx);
  int (*run_kernel)(CudnnHandle*, const void* alpha, CudnnTensor*, const void* x, CudnnTensor*,
                    const void* dy, CudnnWhat*, int algorithm, void* workspace,
                    size_t workspace_bytes, const void* beta, CudnnFilter*, void* dw);
};
#define GRADUS_CONVOLUTION_FUNCTIONS(X)                              \
  X(version, cudnnGetVersion)                                        \
  X(status_name, cudnnGetErrorString)                                \
  X(create, cudnnCreate)                                             \
  X(destroy, cudnnDestroy)                                           \
  X(set_stream, cudnnSetStream)                                      \
  X(make_tensor, cudnnCreateTensorDescriptor)                        \
  X(destroy_tensor, cudnnDestroyTensorDescriptor)                    \
  X(set_tensor, cudnnSetTensorNdDescriptor)                          \
  X(make_filter, cudnnCreateFilterDescriptor)                        \
  X(destroy_filter, cudnnDestroyFilterDescriptor)                    \
  X(set_filter, cudnnSetFilterNdDescriptor)                          \
  X(make_what, cudnnCreateConvolutionDescriptor)                     \
  X(destroy_what, cudnnDestroyConvolutionDescriptor)                 \
  X(set_what, cudnnSetConvolutionNdDescriptor)                       \
  X(set_groups, cudnnSetConvolutionGroupCount)                       \
  X(set_math, cudnnSetConvolutionMathType)                           \
  X(find_result, cudnnGetConvolutionForwardAlgorithm_v7)             \
  X(find_image, cudnnGetConvolutionBackwardDataAlgorithm_v7)         \
  X(find_kernel, cudnnGetConvolutionBackwardFilterAlgorithm_v7)      \
  X(room_for_result, cudnnGetConvolutionForwardWorkspaceSize)        \
  X(room_for_image, cudnnGetConvolutionBackwardDataWorkspaceSize)    \
  X(room_for_kernel, cudnnGetConvolutionBackwardFilterWorkspaceSize) \
  X(run_result, cudnnConvolutionForward)                             \
  X(run_image, cudnnConvolutionBackwardData)                         \
  X(run_kernel, cudnnConvolutionBackwardFilter)

template <class Table>
struct LateLibrary {
  Library library;
  Table table{};
};
const LateLibrary<ProductTable>& product_library();
const LateLibrary<ConvolutionTable>& convolution_library();

}  // namespace gradus::fusion::cuda
