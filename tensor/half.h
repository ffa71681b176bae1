// The two 16-bit floating types, as storage: arithmetic is done in float.
#pragma once

#include <bit>
#include <cstdint>

#pragma GCC visibility push(default)

namespace gradus {

// IEEE binary16 bits -> float, exact. Branch-free, so that loops over it vectorise.
constexpr float half_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  uint32_t magnitude = h & 0x7fffu;
  // Shift exponent and fraction into place and rescale by 2^112: subnormals come out right too.
  float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  uint32_t finite = std::bit_cast<uint32_t>(scaled);
  uint32_t special = (magnitude << 13) | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

// float -> binary16 bits, round to nearest even; overflow gives infinity, NaN stays a quiet NaN.
constexpr uint16_t float_to_half(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t magnitude = u & 0x7fffffffu;
  // Normal range: rebias, then round to nearest even on the 13 dropped bits.
  uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal range: adding 0.5 leaves the rounded fraction in the low bits.
  uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  uint32_t result = magnitude > 0x7f800000u ? 0x7e00u : magnitude >= 0x477ff000u ? 0x7c00u : finite;
  return static_cast<uint16_t>(sign | result);
}

constexpr float bfloat16_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// float -> bfloat16 bits, round to nearest even; NaN becomes the quiet NaN.
constexpr uint16_t float_to_bfloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

struct Half {
  uint16_t bits = 0;
  Half() = default;
  constexpr explicit Half(float x) : bits(float_to_half(x)) {}
  constexpr explicit operator float() const { return half_to_float(bits); }
};

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float x) : bits(float_to_bfloat16(x)) {}
  constexpr explicit operator float() const { return bfloat16_to_float(bits); }
};

}  // namespace gradus

#pragma GCC visibility pop
