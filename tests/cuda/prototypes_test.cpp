// Our tables of NVIDIA's functions have their prototypes: held by the compiler where the headers
// are there.
#include <type_traits>

#include <gtest/gtest.h>

#include "devices/cuda/convolutions.h"
#include "devices/cuda/driver_library.h"
#include "devices/cuda/exchanges.h"
#include "devices/cuda/products.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define GRADUS_HAS_DRIVER_HEADER 1
#endif
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define GRADUS_HAS_PRODUCT_HEADER 1
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define GRADUS_HAS_CONVOLUTION_HEADER 1
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define GRADUS_HAS_EXCHANGE_HEADER 1
#endif

namespace gradus::fusion::cuda {
namespace {

// Whether a value of the one passes for one of the other: numbers of one size and kind (what is an
// enumeration there is an int here), structures of any name, pointers to such, no more const.
template <class Ours, class Theirs>
constexpr bool agrees();

template <class Ours, class Theirs>
struct Functions : std::false_type {};
template <class R, class... A, class S, class... B>
struct Functions<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return agrees<R, S>() && (agrees<A, B>() && ...);
  }();
};

template <class Ours, class Theirs>
constexpr bool agrees() {
  if constexpr (std::is_function_v<Ours> && std::is_function_v<Theirs>) {
    return Functions<Ours, Theirs>::value;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using To = std::remove_pointer_t<Ours>;
    using From = std::remove_pointer_t<Theirs>;
    return std::is_const_v<To> == std::is_const_v<From> &&
           agrees<std::remove_cv_t<To>, std::remove_cv_t<From>>();
  } else if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>) {
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  } else if constexpr (std::is_class_v<Ours>) {
    return std::is_class_v<Theirs>;
  } else if constexpr (std::is_floating_point_v<Ours>) {
    return std::is_same_v<Ours, Theirs>;
  } else if constexpr (std::is_integral_v<Ours>) {
    return (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>)&&sizeof(Ours) == sizeof(Theirs);
  } else {
    return false;
  }
}

struct Named;
static_assert(agrees<int (*)(Named*, const float*), unsigned (*)(struct Other*, const float*)>());
static_assert(!agrees<int (*)(Named*, float*), int (*)(Named*, const float*)>());
static_assert(!agrees<int (*)(Named*), int (*)(Named**)>());
static_assert(!agrees<int (*)(int), int (*)(int, int)>());
static_assert(!agrees<int (*)(int), int (*)(long)>());

#if GRADUS_HAS_DRIVER_HEADER
#define GRADUS_AGREES_WITH_DRIVER(result, member, name, arguments) \
  static_assert(agrees<decltype(DriverTable::member), decltype(&name)>(), #name);
GRADUS_DRIVER_FUNCTIONS(GRADUS_AGREES_WITH_DRIVER)
#endif

#if GRADUS_HAS_PRODUCT_HEADER
#define GRADUS_AGREES_WITH_PRODUCTS(result, member, name, arguments) \
  static_assert(agrees<decltype(ProductTable::member), decltype(&name)>(), #name);
GRADUS_PRODUCT_FUNCTIONS(GRADUS_AGREES_WITH_PRODUCTS)
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtFound) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtFound, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtFound, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(cublaslt::type_f32 == CUDA_R_32F && cublaslt::type_f64 == CUDA_R_64F &&
              cublaslt::type_f16 == CUDA_R_16F && cublaslt::type_bf16 == CUDA_R_16BF);
static_assert(cublaslt::compute_f32 == CUBLAS_COMPUTE_32F &&
              cublaslt::compute_f64 == CUBLAS_COMPUTE_64F);
static_assert(cublaslt::as_it_is == CUBLAS_OP_N && cublaslt::transposed == CUBLAS_OP_T);
static_assert(cublaslt::what_first_transposed == CUBLASLT_MATMUL_DESC_TRANSA &&
              cublaslt::what_second_transposed == CUBLASLT_MATMUL_DESC_TRANSB &&
              cublaslt::what_epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              cublaslt::what_bias == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              cublaslt::epilogue_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(cublaslt::layout_batch_count == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              cublaslt::layout_batch_stride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(cublaslt::wish_workspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              cublaslt::wish_alignment == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              cublaslt::wish_alignment + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
#endif

#if GRADUS_HAS_CONVOLUTION_HEADER
#define GRADUS_AGREES_WITH_CONVOLUTIONS(result, member, name, arguments) \
  static_assert(agrees<decltype(ConvolutionTable::member), decltype(&name)>(), #name);
GRADUS_CONVOLUTION_FUNCTIONS(GRADUS_AGREES_WITH_CONVOLUTIONS)

template <class Theirs>
constexpr bool is_found = sizeof(CudnnFound) == sizeof(Theirs) &&
                          offsetof(CudnnFound, algorithm) == offsetof(Theirs, algo) &&
                          offsetof(CudnnFound, status) == offsetof(Theirs, status) &&
                          offsetof(CudnnFound, seconds) == offsetof(Theirs, time) &&
                          offsetof(CudnnFound, workspace_bytes) == offsetof(Theirs, memory) &&
                          offsetof(CudnnFound, deterministic) == offsetof(Theirs, determinism) &&
                          offsetof(CudnnFound, math) == offsetof(Theirs, mathType);
static_assert(is_found<cudnnConvolutionFwdAlgoPerf_t>);
static_assert(is_found<cudnnConvolutionBwdDataAlgoPerf_t>);
static_assert(is_found<cudnnConvolutionBwdFilterAlgoPerf_t>);

static_assert(CUDNN_STATUS_SUCCESS == 0 && CUDNN_DETERMINISTIC == 1);
static_assert(cudnn::type_f32 == CUDNN_DATA_FLOAT && cudnn::type_f64 == CUDNN_DATA_DOUBLE &&
              cudnn::type_f16 == CUDNN_DATA_HALF && cudnn::type_bf16 == CUDNN_DATA_BFLOAT16);
static_assert(cudnn::format_nchw == CUDNN_TENSOR_NCHW &&
              cudnn::cross_correlation == CUDNN_CROSS_CORRELATION);
static_assert(cudnn::default_math == CUDNN_DEFAULT_MATH &&
              cudnn::tensor_core_math == CUDNN_TENSOR_OP_MATH && cudnn::fma_math == CUDNN_FMA_MATH);
static_assert(cudnn::result_gemms[0] == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM &&
              cudnn::result_gemms[1] == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM &&
              cudnn::result_gemms[2] == CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
static_assert(cudnn::image_gemm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 &&
              cudnn::kernel_gemm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
#endif

#if GRADUS_HAS_EXCHANGE_HEADER
#define GRADUS_AGREES_WITH_EXCHANGES(result, member, name, arguments) \
  static_assert(agrees<decltype(ExchangeTable::member), decltype(&name)>(), #name);
GRADUS_EXCHANGE_FUNCTIONS(GRADUS_AGREES_WITH_EXCHANGES)
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclOptions, bytes) == offsetof(ncclConfig_t, size) &&
              offsetof(NcclOptions, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclOptions, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclOptions, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclOptions) <= sizeof(ncclConfig_t));
static_assert(nccl::options_version == NCCL_VERSION(2, 14, 0));
static_assert(ncclSuccess == 0 && nccl::in_progress == ncclInProgress);
static_assert(nccl::type_i8 == ncclInt8 && nccl::type_u8 == ncclUint8 &&
              nccl::type_i32 == ncclInt32 && nccl::type_u32 == ncclUint32 &&
              nccl::type_i64 == ncclInt64 && nccl::type_u64 == ncclUint64 &&
              nccl::type_f32 == ncclFloat32 && nccl::type_f64 == ncclFloat64);
static_assert(nccl::sum == ncclSum && nccl::largest == ncclMax && nccl::smallest == ncclMin);
#endif

TEST(Prototypes, AreThoseOfTheHeaders) {
#if !(GRADUS_HAS_DRIVER_HEADER && GRADUS_HAS_PRODUCT_HEADER && GRADUS_HAS_CONVOLUTION_HEADER && \
      GRADUS_HAS_EXCHANGE_HEADER)
  GTEST_SKIP() << "compiled without some of cuda.h, cublasLt.h, cudnn.h and nccl.h";
#endif
}

// The magic number is in the macro alone.
TEST(Prototypes, HaveTheOptionsOfNccl) {
#if GRADUS_HAS_EXCHANGE_HEADER
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::options_magic, theirs.magic);
#else
  GTEST_SKIP() << "compiled without nccl.h";
#endif
}

// The functions are looked up by their names.
TEST(Prototypes, AreFoundInNccl) {
  const Library& library = exchange_library().library;
  if (!library) GTEST_SKIP() << library.fault;
  EXPECT_TRUE(library.version.starts_with("2.")) << library.version;
  EXPECT_STREQ(exchange_library().table.status_name(nccl::in_progress),
               "NCCL operation in progress");
}

}  // namespace
}  // namespace gradus::fusion::cuda
