// Element types, and storage for the two 16-bit floating types.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)

// The 16-bit floating types as storage. Arithmetic is done in float.

namespace gradus {

// Converts binary16 bits (IEEE 754) to float, exactly. Without branches, so that loops are
// vectorised.
constexpr float half_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  uint32_t magnitude = h & 0x7fffu;
  // Shift exponent and fraction into place and scale by 2^112, which is also correct for
  // subnormals.
  float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  uint32_t finite = std::bit_cast<uint32_t>(scaled);
  uint32_t special = (magnitude << 13) | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

// Converts float to binary16 bits and rounds to nearest even. Overflow gives infinity, NaN a quiet
// NaN.
constexpr uint16_t float_to_half(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t magnitude = u & 0x7fffffffu;
  // Normal range: change the exponent's bias, then round to nearest even on the 13 dropped bits.
  uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal range: after the addition of 0.5, the low bits are the rounded fraction.
  uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  uint32_t result = magnitude > 0x7f800000u ? 0x7e00u : magnitude >= 0x477ff000u ? 0x7c00u : finite;
  return static_cast<uint16_t>(sign | result);
}

constexpr float bfloat16_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// Converts float to bfloat16 bits and rounds to nearest even. NaN gives the quiet NaN.
constexpr uint16_t float_to_bfloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// A binary16 number (IEEE 754).
struct Half {
  uint16_t bits = 0;
  Half() = default;
  constexpr explicit Half(float x) : bits(float_to_half(x)) {}
  constexpr explicit operator float() const { return half_to_float(bits); }
};

// A bfloat16 number.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float x) : bits(float_to_bfloat16(x)) {}
  constexpr explicit operator float() const { return bfloat16_to_float(bits); }
};

// Element types.

// The numbers of the dtypes are part of the files of states and of the C interface: new dtypes are
// added at the end.
enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i8, u8, boolean, i16, u16, u32, u64 };
inline constexpr int dtype_count = 13;

inline constexpr std::string_view dtype_names[dtype_count] = {
    "f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool", "i16", "u16", "u32", "u64"};

constexpr std::string_view name_of(DType d) { return dtype_names[static_cast<int>(d)]; }
// Returns the dtype of a name of `dtype_names`, or nullopt.
std::optional<DType> dtype_from_name(std::string_view name);

// The size of an element in bytes.
constexpr size_t size_of(DType d) {
  constexpr size_t sizes[dtype_count] = {8, 4, 2, 2, 8, 4, 1, 1, 1, 2, 2, 4, 8};
  return sizes[static_cast<int>(d)];
}
constexpr bool is_floating(DType d) { return d <= DType::bf16; }
constexpr bool is_integral(DType d) { return d > DType::bf16 && d != DType::boolean; }
constexpr bool is_unsigned(DType d) { return d == DType::u8 || d >= DType::u16; }

// The dtype to which two tensor operands of the same category of rank promote, as in PyTorch:
// floating over integral over bool, then the wider one; f16 with bf16 gives f32. One difference: u8
// with i8 gives i32, in PyTorch i16. Throws Error for u16, u32 or u64 with another integer dtype or
// bool, as PyTorch does.
DType promote(DType a, DType b);

// ATen's categories of dtypes, in the order of promotion.
enum class Category : uint8_t { boolean, integral, floating };
constexpr Category category_of(DType d) {
  return is_floating(d)   ? Category::floating
         : is_integral(d) ? Category::integral
                          : Category::boolean;
}

// The type in which arithmetic on a dtype is done: f64; f32 for f32, f16 and bf16; u64 for u64; i64
// for the other integers and bool.
enum class Compute : uint8_t { f64, f32, i64, u64 };
inline constexpr size_t compute_count = 4;
constexpr Compute compute_of(DType d) {
  if (d == DType::f64) return Compute::f64;
  if (d == DType::u64) return Compute::u64;
  return is_floating(d) ? Compute::f32 : Compute::i64;
}
constexpr DType dtype_of(Compute c) {
  constexpr DType dtypes[compute_count] = {DType::f64, DType::f32, DType::i64, DType::u64};
  return dtypes[static_cast<size_t>(c)];
}

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type that stores d: double, float, Half, BFloat16, int64_t,
// int32_t, int8_t, uint8_t, bool, int16_t, uint16_t, uint32_t or uint64_t.
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
    case DType::i16:
      return f(TypeTag<int16_t>{});
    case DType::u16:
      return f(TypeTag<uint16_t>{});
    case DType::u32:
      return f(TypeTag<uint32_t>{});
    case DType::u64:
      return f(TypeTag<uint64_t>{});
    case DType::boolean:
      break;
  }
  return f(TypeTag<bool>{});
}

// Like visit_dtype, but with the signed type of the same size for an unsigned dtype. The bits of
// sums, differences and products are the same.
template <class F>
constexpr decltype(auto) visit_signed(DType d, F&& f) {
  switch (d) {
    case DType::u8:
    case DType::i8:
      return f(TypeTag<int8_t>{});
    case DType::u16:
    case DType::i16:
      return f(TypeTag<int16_t>{});
    case DType::u32:
    case DType::i32:
      return f(TypeTag<int32_t>{});
    case DType::u64:
    case DType::i64:
      return f(TypeTag<int64_t>{});
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f16:
      return f(TypeTag<Half>{});
    case DType::bf16:
      return f(TypeTag<BFloat16>{});
    case DType::boolean:
      break;
  }
  return f(TypeTag<bool>{});
}

// Calls f(TypeTag<T>{}) with double, float, int64_t or uint64_t.
template <class F>
decltype(auto) visit_compute(Compute c, F&& f) {
  switch (c) {
    case Compute::f64:
      return f(TypeTag<double>{});
    case Compute::f32:
      return f(TypeTag<float>{});
    case Compute::u64:
      return f(TypeTag<uint64_t>{});
    case Compute::i64:
      break;
  }
  return f(TypeTag<int64_t>{});
}

}  // namespace gradus

#pragma GCC visibility pop
