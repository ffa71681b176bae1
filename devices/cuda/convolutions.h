// Convolutions by cuDNN.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "devices/cuda/driver_library.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// Numbers of cudnn_graph.h and cudnn_ops.h.
namespace cudnn {
inline constexpr int type_f32 = 0, type_f64 = 1, type_f16 = 2, type_bf16 = 9;
inline constexpr int format_nchw = 0, cross_correlation = 1;
// `fma` forbids TF32. Tensor cores add up products of 16-bit floats in f32.
inline constexpr int default_math = 0, tensor_core_math = 1, fma_math = 3;
// Those that are a sum of products, in the same order at every run. The others go by transforms,
// whose error is not that of a sum, or add up by atomic additions.
inline constexpr int result_gemms[] = {0, 1, 2};  // implicit, with precomputed indices, explicit
inline constexpr int image_gemm = 1, kernel_gemm = 1;
}  // namespace cudnn

class Convolutions;

// One call of the library, for tensors without gaps. Immutable.
class Convolution {
 public:
  ~Convolution();
  Convolution(const Convolution&) = delete;
  // Of the scratch memory, which is aligned to 256 bytes.
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Pointers are the device's, aligned to 16 bytes, in the order of the form's operands. Returns
  // the library's status. Allocates nothing, and asks nothing of the device but launches.
  int run(DevicePointer first, DevicePointer second, DevicePointer result, DevicePointer workspace,
          DriverStream stream) const;
  // "CUDNN_STATUS_EXECUTION_FAILED"
  std::string name_of(int status) const;

 private:
  friend class Convolutions;
  using Direction = work::Direction;
  explicit Convolution(const Convolutions& library, Direction direction)
      : library_(library), direction_(direction) {}
  bool describe(const work::Convolution& w);
  bool find_algorithm();
  bool is_sum(int algorithm) const;
  int find(int most, int* count, CudnnFound* found) const;
  int room_for(int algorithm, size_t* bytes) const;

  const Convolutions& library_;
  const Direction direction_;
  CudnnTensor *image_ = nullptr, *result_ = nullptr;  // x and y, or their gradients
  CudnnFilter* kernel_ = nullptr;
  CudnnWhat* what_ = nullptr;
  bool f64_ = false, f32_ = false;
  int algorithm_ = 0;
  size_t workspace_bytes_ = 0;
};

// The library on one device, whose context is current where it is made. Thread-safe: its handle
// serves one thread at a time, for as long as a launch takes.
class Convolutions {
 public:
  // Throws ResourceError where the library does not start.
  explicit Convolutions(const ConvolutionTable& table);
  ~Convolutions();
  Convolutions(const Convolutions&) = delete;

  // As if the form's tensors had no gaps. Null where the library has no algorithm for it that is a
  // sum of products, the same at every run, in the memory that it is offered.
  std::shared_ptr<const Convolution> make(const work::Convolution& w) const;

 private:
  friend class Convolution;
  const ConvolutionTable& t_;
  CudnnHandle* handle_ = nullptr;
  mutable std::mutex mutex_;  // of the handle
};

}  // namespace gradus::fusion::cuda
