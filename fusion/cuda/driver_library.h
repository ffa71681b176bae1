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
struct ConvolutionTable {  // libcudnn
  size_t (*version)();
  int (*create)(struct CudnnHandle**);
  int (*destroy)(struct CudnnHandle*);
};
template <class Table>
struct LateLibrary {
  Library library;
  Table table{};
};
const LateLibrary<ProductTable>& product_library();
const LateLibrary<ConvolutionTable>& convolution_library();

}  // namespace gradus::fusion::cuda
