// A warp: 32 lanes that run one decoded instruction at a time.
//
// Lanes that are at the same place of the same call form a group. The group in the deepest call
// runs, of those the one at the lowest instruction; it runs on alone until it comes to where
// another group is, and takes that in. So lanes that parted in an `if` or a loop meet where it
// ends. A group may wait: for lanes that a shuffle's mask names, or at the block's barrier. When
// all wait and none can go on, that is a fault.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/ptx/code.h"
#include "tests/ptx/shadow.h"

namespace gradus::ptx {

class Block;

// A value for each lane.
template <class T>
struct Lanes {
  T v[warp_size];
};

// The registers and parameters of one call, by the lanes that make it.
struct Frame {
  const Function* function = nullptr;
  Frame* caller = nullptr;
  uint32_t return_to = 0;  // instruction of the caller
  uint32_t call = 0;       // number in the caller's calls
  uint32_t depth = 0;
  Mask lanes = 0;  // that have not returned
  std::vector<uint64_t> registers;
  std::vector<Mask> defined;
  std::vector<std::byte> params;  // param_bytes for each lane
  std::vector<uint8_t> params_defined;
  std::array<uint64_t, warp_size> local_base{};
};

// The local memory of a thread: grows with calls.
struct LocalMemory {
  std::vector<std::byte> data;
  std::vector<uint8_t> defined;
};

class Warp {
 public:
  enum class Status : uint8_t { running, at_barrier, done };

  Warp(Block& block, unsigned number, Mask lanes);

  // Runs until every lane has exited or waits at the block's barrier.
  Status run();
  Status status() const { return status_; }

  // What instructions do with registers.
  template <class T>
  Lanes<T> get(Reg r) const {
    Lanes<T> lanes;
    std::memcpy(lanes.v, registers_ + r.offset, sizeof lanes.v);
    return lanes;
  }
  template <class T>
  void put(Reg r, Mask m, const Lanes<T>& value, Mask defined) {
    std::byte* to = registers_ + r.offset;
    if (m == all_lanes) {
      std::memcpy(to, value.v, sizeof value.v);
    } else {
      for (unsigned i = 0; i < warp_size; ++i)
        if (m >> i & 1) std::memcpy(to + i * sizeof(T), &value.v[i], sizeof(T));
    }
    Mask& d = defined_[r.index];
    d = (d & ~m) | (defined & m);
  }
  Mask predicate(Reg r) const {
    Mask m;
    std::memcpy(&m, registers_ + r.offset, sizeof m);
    return m;
  }
  void put_predicate(Reg r, Mask m, Mask value, Mask defined) {
    const Mask now = (predicate(r) & ~m) | (value & m);
    std::memcpy(registers_ + r.offset, &now, sizeof now);
    Mask& d = defined_[r.index];
    d = (d & ~m) | (defined & m);
  }
  Mask defined(Reg r) const { return defined_[r.index]; }
  // One lane's value of a register as wide as it is, zero-extended.
  uint64_t lane(Reg r, unsigned i) const {
    uint64_t x = 0;
    std::memcpy(&x, registers_ + r.offset + size_t{i} * r.width, r.width);
    return x;
  }
  // The low bytes of x, as many as the register holds.
  void put_lane(Reg r, unsigned i, uint64_t x, bool defined) {
    std::memcpy(registers_ + r.offset + size_t{i} * r.width, &x, r.width);
    Mask& d = defined_[r.index];
    d = (d & ~(Mask{1} << i)) | (Mask{defined} << i);
  }
  // A fault if a lane of m has no defined value there.
  void need(Reg r, Mask m, const char* what) const {
    if (Mask bad = m & ~defined_[r.index]) fault_undefined(r, bad, what);
  }

  // Control, for the instruction at hand. `pc` of a branch is in the same function.
  void branch(Mask m, uint32_t pc);
  void exit(Mask m);
  void call(Mask m, uint32_t number);
  void ret(Mask m);
  // These lanes of the group wait at this instruction until others come to it.
  void hold(Mask m);
  void hold_at_barrier(Mask m);
  // Given that the warp waits at a barrier that reduces a predicate: the lanes where it holds.
  Mask barrier_votes() const;
  // All lanes have come to the barrier that this warp waits at: goes on behind it. `result` is
  // for a barrier that has one.
  void release(uint32_t result);

  const Instruction& at() const { return *at_; }
  const Frame& frame() const { return *frame_; }
  Frame& frame() { return *frame_; }
  Block& block() const { return block_; }
  unsigned number() const { return number_; }
  unsigned thread(unsigned lane) const { return number_ * warp_size + lane; }
  Mask group() const { return mask_; }
  Mask live() const { return live_; }
  Mask members() const { return members_; }
  LocalMemory& local(unsigned lane) { return local_[lane]; }
  Mask carry() const { return carry_; }
  void set_carry(Mask m, Mask value) { carry_ = (carry_ & ~m) | (value & m); }
  // Where lanes of the warp are that the group lacks, in words.
  std::string where_are(Mask lanes) const;

  // Error that says where this happened, and in which thread.
  [[noreturn]] void fault(unsigned lane, const std::string& what) const;

  uint64_t instructions = 0;  // times lanes

 private:
  enum class Wait : uint8_t { none, lanes, barrier };
  struct Group {
    Frame* frame;
    uint32_t pc;
    Mask mask;
    Wait wait;
  };

  bool schedule();
  void take(size_t index);
  [[noreturn]] void fault_stuck() const;
  [[noreturn]] void fault_undefined(Reg r, Mask lanes, const char* what) const;
  Mask guarded(const Instruction& in) const;
  Frame* enter(const Function& f, Mask m);
  void fill(Frame& frame) const;
  void select(Frame* frame);
  void copy_params(const Frame& from, const std::vector<uint32_t>& sources, Frame& to,
                   const std::vector<uint32_t>& targets, Mask m) const;

  Block& block_;
  const unsigned number_;
  const Mask members_;  // lanes that have a thread
  Mask live_;
  Status status_ = Status::running;

  // The group that runs.
  Frame* frame_ = nullptr;
  std::byte* registers_ = nullptr;
  Mask* defined_ = nullptr;
  const Instruction* at_ = nullptr;
  uint32_t pc_ = 0;
  Mask mask_ = 0;
  Mask carry_ = 0;
  uint32_t limit_ = 0;         // the next group's instruction
  bool switch_ = false;        // another group may be the one to run
  std::vector<Group> groups_;  // the others

  std::vector<std::unique_ptr<Frame>> frames_, spare_;
  std::array<LocalMemory, warp_size> local_;
};

}  // namespace gradus::ptx
