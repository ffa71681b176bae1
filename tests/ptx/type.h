// The types that PTX instructions and registers name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradus::ptx {

enum class Type : uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  u16x2,
  s16x2,
};

// The type of this name, without its dot.
std::optional<Type> find_type(std::string_view name);
std::string_view name_of(Type);

// Bytes of a value; 0 for predicates, which live in lane masks.
unsigned width_of(Type);

bool is_signed(Type);    // s8 to s64
bool is_floating(Type);  // f16 to f64, packed ones as well
bool is_bits(Type);      // b8 to b64

}  // namespace gradus::ptx
