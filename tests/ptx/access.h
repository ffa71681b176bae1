// From an address to memory, with every check.
#pragma once

#include "tests/ptx/block.h"
#include "tests/ptx/warp.h"

namespace gradus::ptx {

struct Target {
  std::byte* data;
  uint8_t* defined;
  bool strict;  // what is read there has to be defined; else undefined values go around
};

// The bytes that a lane is about to access; notes the access. A fault if the address is not
// aligned to `bytes`, or leaves what it is for, or if there is a race.
Target locate(Warp& w, unsigned lane, Space space, uint64_t address, unsigned bytes, Access access);

// A lane's address: of the register r, with the instruction's offset.
inline uint64_t address_of(const Warp& w, const Instruction& in, Reg r, unsigned lane) {
  const uint64_t sum = w.lane(r, lane) + static_cast<uint64_t>(in.immediate);
  return r.width == 4 ? static_cast<uint32_t>(sum) : sum;
}

}  // namespace gradus::ptx
