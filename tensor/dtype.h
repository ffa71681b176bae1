// Element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/half.h"

#pragma GCC visibility push(default)

namespace gradus {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i8, u8, boolean };
inline constexpr int dtype_count = 9;

inline constexpr std::string_view dtype_names[dtype_count] = {"f64", "f32", "f16", "bf16", "i64",
                                                              "i32", "i8",  "u8",  "bool"};

constexpr std::string_view name_of(DType d) { return dtype_names[static_cast<int>(d)]; }
std::optional<DType> dtype_from_name(std::string_view name);

// Bytes an element takes.
constexpr size_t size_of(DType d) {
  constexpr size_t sizes[dtype_count] = {8, 4, 2, 2, 8, 4, 1, 1, 1};
  return sizes[static_cast<int>(d)];
}
constexpr bool is_floating(DType d) { return d <= DType::bf16; }
constexpr bool is_integral(DType d) { return d > DType::bf16 && d != DType::boolean; }

// The dtype that two tensor operands of the same rank of importance promote to, as ATen's table:
// floating beats integral beats bool; f16 with bf16 is f32; u8 with a signed type widens.
DType promote(DType a, DType b);

// ATen's categories, in promotion order.
enum class Category : uint8_t { boolean, integral, floating };
constexpr Category category_of(DType d) {
  return is_floating(d)   ? Category::floating
         : is_integral(d) ? Category::integral
                          : Category::boolean;
}

// The type arithmetic on a dtype is done in: f64, f32 (for f32, f16, bf16) or i64 (integers, bool).
enum class Compute : uint8_t { f64, f32, i64 };
constexpr Compute compute_of(DType d) {
  return d == DType::f64 ? Compute::f64 : is_floating(d) ? Compute::f32 : Compute::i64;
}
constexpr DType dtype_of(Compute c) {
  return c == Compute::f64 ? DType::f64 : c == Compute::f32 ? DType::f32 : DType::i64;
}

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type that stores d: double, float, Half, BFloat16, int64_t,
// int32_t, int8_t, uint8_t, bool.
template <class F>
constexpr decltype(auto) visit_dtype(DType d, F&& f) {
  switch (d) {
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f16:
      return f(TypeTag<Half>{});
    case DType::bf16:
      return f(TypeTag<BFloat16>{});
    case DType::i64:
      return f(TypeTag<int64_t>{});
    case DType::i32:
      return f(TypeTag<int32_t>{});
    case DType::i8:
      return f(TypeTag<int8_t>{});
    case DType::u8:
      return f(TypeTag<uint8_t>{});
    case DType::boolean:
      break;
  }
  return f(TypeTag<bool>{});
}

// Calls f with double, float or int64_t.
template <class F>
decltype(auto) visit_compute(Compute c, F&& f) {
  switch (c) {
    case Compute::f64:
      return f(TypeTag<double>{});
    case Compute::f32:
      return f(TypeTag<float>{});
    case Compute::i64:
      break;
  }
  return f(TypeTag<int64_t>{});
}

}  // namespace gradus

#pragma GCC visibility pop
