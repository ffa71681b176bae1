// Registers that read as constants, addresses and special registers: filled when a call begins.
#include <bit>

#include "tests/ptx/block.h"

namespace gradus::ptx {

namespace {

uint64_t special(Special what, Block& block, const Warp& warp, unsigned lane) {
  const unsigned thread = warp.thread(lane);
  const Dim3 t = block.position_of(thread), b = block.position();
  const Launch& l = block.grid().launch;
  const Mask bit = Mask{1} << lane;
  switch (what) {
    case Special::tid_x:
      return t.x;
    case Special::tid_y:
      return t.y;
    case Special::tid_z:
      return t.z;
    case Special::ntid_x:
      return l.block.x;
    case Special::ntid_y:
      return l.block.y;
    case Special::ntid_z:
      return l.block.z;
    case Special::ctaid_x:
      return b.x;
    case Special::ctaid_y:
      return b.y;
    case Special::ctaid_z:
      return b.z;
    case Special::nctaid_x:
      return l.grid.x;
    case Special::nctaid_y:
      return l.grid.y;
    case Special::nctaid_z:
      return l.grid.z;
    case Special::laneid:
      return lane;
    case Special::warpid:
      return warp.number();
    case Special::nwarpid:
      return block.warps();
    case Special::smid:
      return 0;
    case Special::nsmid:
      return 1;
    case Special::gridid:
      return 1;
    case Special::lanemask_eq:
      return bit;
    case Special::lanemask_lt:
      return bit - 1;
    case Special::lanemask_le:
      return bit | (bit - 1);
    case Special::lanemask_ge:
      return ~(bit - 1);
    case Special::lanemask_gt:
      return ~(bit | (bit - 1));
    case Special::dynamic_smem_size:
      return l.shared_bytes;
    case Special::total_smem_size:
      return block.shared().size();
    case Special::value:
    case Special::variable:
      break;
  }
  return 0;
}

uint64_t address(const Fill& f, const Frame& frame, Block& block, unsigned lane) {
  if (f.own) {
    const Variable& v = frame.function->variables[f.variable];
    if (v.space == Space::local) return frame.local_base[lane] + v.offset + f.value;
    return (v.space == Space::entry_param ? param_window : frame_window) + v.offset + f.value;
  }
  Grid& grid = block.grid();
  const Variable& v = grid.module.code().variables[f.variable];
  const auto& base = v.space == Space::shared ? grid.shared : grid.globals;
  return base[f.variable] + f.value;
}

}  // namespace

void Warp::fill(Frame& frame) const {
  auto* bytes = reinterpret_cast<std::byte*>(frame.registers.data());
  for (const Fill& f : frame.function->fills) {
    frame.defined[f.reg.index] = all_lanes;
    if (f.reg.width == 0) {
      const Mask m = f.value ? all_lanes : 0;
      std::memcpy(bytes + f.reg.offset, &m, sizeof m);
      continue;
    }
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      uint64_t x = f.value;
      if (f.what == Special::variable) {
        x = address(f, frame, block_, lane);
      } else if (f.what != Special::value) {
        x = special(f.what, block_, *this, lane);
      }
      std::memcpy(bytes + f.reg.offset + size_t{lane} * f.reg.width, &x, f.reg.width);
    }
  }
}

}  // namespace gradus::ptx
