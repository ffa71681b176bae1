// What stands between the opcode of a memory instruction and its type.
#pragma once

#include "tests/ptx/decoder.h"

namespace gradus::ptx {

struct Qualifiers {
  Space space = Space::generic;
  bool strong = false;        // volatile, or of a memory model stronger than weak
  bool non_coherent = false;  // .nc
  bool cache_hint = false;    // an operand of its own
  uint8_t count = 1;          // .v2, .v4, .v8
};

// As far as they are known; the next part is left to whoever asks.
Qualifiers take_qualifiers(Decoder&);

}  // namespace gradus::ptx
