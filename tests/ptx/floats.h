// Opcodes that integers and floats share: each of these decodes the instruction if its type is
// floating, and says whether it did.
#pragma once

#include "tests/ptx/decoder.h"

namespace gradus::ptx {

bool decode_float_sum(Decoder&, bool subtract);
bool decode_float_product(Decoder&);
bool decode_float_mad(Decoder&);
bool decode_float_quotient(Decoder&);
bool decode_float_sign(Decoder&, bool negate);  // else the absolute value
bool decode_float_extreme(Decoder&, bool largest);

// Bits of Instruction::mode of floating instructions; the lowest two are the Rounding.
enum FloatMode : uint8_t {
  mode_rounding = 3,
  mode_flush = 4,
  mode_saturate = 8,
  mode_relu = 16,
  mode_nan = 32,
  mode_xorsign = 64,
};

}  // namespace gradus::ptx
