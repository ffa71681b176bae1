// Arithmetic of f16, bf16 and pairs of them; and instructions that have no exact definition.
#pragma once

#include "tests/ptx/decoder.h"

namespace gradus::ptx {

enum class PackedOp : uint8_t { add, sub, mul, fma, neg, abs, min, max };

// Given that the modifiers before the type are read: FloatMode's bits.
void decode_packed(Decoder&, PackedOp, uint8_t mode);

// Given that .approx or .full is read. A launch refuses a kernel with such an instruction, unless
// it allows them; then the C library's function stands in.
void decode_approximate(Decoder&);

}  // namespace gradus::ptx
