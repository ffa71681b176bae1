// Matrix products by cuBLASLt.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "devices/cuda/driver_library.h"
#include "work/product.h"

namespace gradus::fusion::cuda {

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
namespace cublaslt {
inline constexpr int type_f32 = 0, type_f64 = 1, type_f16 = 2, type_bf16 = 14;
inline constexpr int compute_f32 = 68, compute_f64 = 70;
inline constexpr int32_t as_it_is = 0, transposed = 1;
inline constexpr int what_first_transposed = 3, what_second_transposed = 4;
inline constexpr int what_epilogue = 7, what_bias = 8;
inline constexpr uint32_t epilogue_bias = 4;
inline constexpr int layout_batch_count = 5, layout_batch_stride = 6;
inline constexpr int wish_workspace = 1, wish_alignment = 5;  // of a, then of b, c and d
}  // namespace cublaslt

// One call of the library, for operands that lie so. Thread-safe.
class Product {
 public:
  ~Product();
  Product(const Product&) = delete;
  // Of the scratch memory, which is aligned to 256 bytes.
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Pointers are the device's, aligned as the product was made for. Returns the library's status.
  // `row`: what is added to each row of c, if it was made for that.
  int run(DevicePointer a, DevicePointer b, DevicePointer row, DevicePointer c,
          DevicePointer workspace, DriverStream stream) const;

 private:
  friend class Products;
  explicit Product(const ProductTable& table, struct CublasLtHandle* handle)
      : t_(table), handle_(handle) {}
  bool describe(const work::Gemm& g, int64_t batch);
  bool describe_row(uint32_t alignment);
  bool find_algorithm(uint32_t alignment);

  const ProductTable& t_;
  struct CublasLtHandle* const handle_;
  LtDescriptor* what_ = nullptr;
  // The library knows columns: it computes the transpose of c, from b (its first) and a.
  LtLayout *first_ = nullptr, *second_ = nullptr, *result_ = nullptr;
  bool f64_ = false, adds_row_ = false;
  mutable std::mutex mutex_;  // of what_, which holds the row's address for a call
  LtAlgorithm algorithm_{};
  size_t workspace_bytes_ = 0;
};

// The library on one device, whose context is current where it is made. Thread-safe.
class Products {
 public:
  // Throws ResourceError where the library does not start.
  // `always`: is asked for small products, too. For tests.
  explicit Products(const ProductTable& table, bool always = false);
  ~Products();
  Products(const Products&) = delete;

  // Whether a product is worth a call.
  bool wants(const work::Gemm& g) const;
  // A product of at most one batch dimension, of pointers that are multiples of `alignment` bytes.
  // Null where the library has none of this dtype and these strides. `adds_row`: c = a b + row, of
  // f32 and f64, where the sum is rounded as if it were done after the product.
  std::shared_ptr<const Product> make(const work::Gemm& g, uint32_t alignment,
                                      bool adds_row = false) const;

 private:
  const ProductTable& t_;
  const bool always_;
  struct CublasLtHandle* handle_ = nullptr;
};

}  // namespace gradus::fusion::cuda
