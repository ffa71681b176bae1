// A block of a launch: its shared memory, its warps, and how they find memory.
#pragma once

#include <memory>
#include <vector>

#include "tests/ptx/launch.h"
#include "tests/ptx/warp.h"

namespace gradus::ptx {

// Generic addresses of memory that is not global.
inline constexpr uint64_t shared_window = uint64_t{0x0100} << 32;
inline constexpr uint64_t local_window = uint64_t{0x0200} << 32;
inline constexpr uint64_t param_window = uint64_t{0x0300} << 32;  // the kernel's
inline constexpr uint64_t frame_window = uint64_t{0x0400} << 32;  // of calls: only named
inline constexpr uint64_t window_size = uint64_t{1} << 32;
// Addresses of shared memory start here: nothing lies at 0, and alignments up to this hold.
inline constexpr uint64_t shared_base = 1024;
inline constexpr uint64_t max_shared = 227 * 1024;
inline constexpr uint64_t max_local = 512 * 1024;

// What a barrier gives, by Instruction::mode: a count of threads, or whether all or any hold.
enum class BarrierKind : uint8_t { sync, popc, all, any };

// What is the same for all blocks of a launch.
struct Grid {
  const Module& module;
  const Function& kernel;
  const Launch& launch;
  Memory& memory;
  const std::vector<uint64_t>& globals;  // of the module's variables
  std::vector<uint64_t> shared;          // likewise, in shared memory
  uint64_t static_shared = 0;            // bytes, with what aligns them
  std::vector<std::byte> params;
  uint64_t steps_left = 0;
};

class Block {
 public:
  Block(Grid& grid, Dim3 position);

  // Runs all its threads to their end.
  uint64_t run();

  Grid& grid() { return grid_; }
  Dim3 position() const { return position_; }
  Dim3 position_of(unsigned thread) const;
  Region& shared() { return shared_; }
  Clock& clock() { return grid_.memory.clock; }
  unsigned threads() const { return threads_; }
  unsigned warps() const { return static_cast<unsigned>(warps_.size()); }

 private:
  void pass_barrier();
  [[noreturn]] void fault_divergent() const;

  Grid& grid_;
  Dim3 position_;
  unsigned threads_;
  Region shared_;
  std::vector<std::unique_ptr<Warp>> warps_;
};

}  // namespace gradus::ptx
