#include "tests/ptx/launch.h"

#include <algorithm>
#include <bit>

#include "gradus/error.h"
#include "tests/ptx/block.h"

namespace gradus::ptx {

namespace {

// The kernel and what it calls.
std::vector<const Function*> reachable(const Grid& grid) {
  const Code& code = grid.module.code();
  std::vector<const Function*> all{&grid.kernel};
  for (size_t i = 0; i < all.size(); ++i)
    for (const Call& c : all[i]->calls) {
      const Function* f = &code.functions[c.function];
      if (std::find(all.begin(), all.end(), f) == all.end()) all.push_back(f);
    }
  return all;
}

void refuse_approximate(const Grid& grid) {
  for (const Function* f : reachable(grid)) {
    if (!f->approximate) continue;
    throw Error(
        "ptx:{}: {} has an instruction without an exact result, so that it depends on the "
        "device; Launch::allow_approximate runs it all the same\n  {}",
        f->approximate, f->name, grid.module.code().line(f->approximate));
  }
}

// The variables in shared memory that these functions name, laid out one behind the other;
// dynamic ones lie behind all others, and all at the same place.
void lay_out_shared(Grid& grid) {
  const Code& code = grid.module.code();
  grid.shared.assign(code.variables.size(), 0);
  std::vector<bool> used(code.variables.size());
  for (const Function* f : reachable(grid))
    for (uint32_t v : f->shared) used[v] = true;
  uint64_t at = shared_base, dynamic_align = 16;
  for (size_t i = 0; i < used.size(); ++i) {
    const Variable& v = code.variables[i];
    if (!used[i]) continue;
    if (v.dynamic) {
      dynamic_align = std::max(dynamic_align, v.align);
      continue;
    }
    at = (at + v.align - 1) / v.align * v.align;
    grid.shared[i] = at;
    at += v.bytes;
  }
  if (grid.launch.shared_bytes) at = (at + dynamic_align - 1) / dynamic_align * dynamic_align;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i] && code.variables[i].dynamic) grid.shared[i] = at;
  grid.static_shared = at - shared_base;
}

void check(const Grid& grid) {
  const Launch& l = grid.launch;
  const Function& k = grid.kernel;
  if (l.grid.count() == 0 || l.block.count() == 0)
    throw Error("a launch of {} needs at least one block and one thread", k.name);
  if (l.block.count() > 1024 || l.block.z > 64)
    throw Error("a block of {} x {} x {} threads is too large: 1024 at most, 64 of them in z",
                l.block.x, l.block.y, l.block.z);
  if (l.grid.x > 0x7fffffffu || l.grid.y > 65535 || l.grid.z > 65535)
    throw Error("a grid of {} x {} x {} blocks is too large", l.grid.x, l.grid.y, l.grid.z);
  if (k.max_threads && l.block.count() > k.max_threads)
    throw Error("{} is compiled for {} threads a block at most, not {}", k.name, k.max_threads,
                l.block.count());
  const std::array<uint32_t, 3> block{l.block.x, l.block.y, l.block.z};
  if (k.required_threads[0] && block != k.required_threads)
    throw Error("{} is compiled for blocks of {} x {} x {} threads alone", k.name,
                k.required_threads[0], k.required_threads[1], k.required_threads[2]);
  if (grid.static_shared + l.shared_bytes > max_shared)
    throw Error("{} needs {} bytes of shared memory; {} is the most", k.name,
                grid.static_shared + l.shared_bytes, max_shared);
  if (l.args.size() != k.params.size())
    throw Error("{} has {} parameters, and {} are given", k.name, k.params.size(), l.args.size());
}

}  // namespace

Block::Block(Grid& grid, Dim3 position)
    : grid_(grid), position_(position), threads_(static_cast<unsigned>(grid.launch.block.count())) {
  shared_.base = shared_base;
  shared_.reset(grid.static_shared + grid.launch.shared_bytes);
}

Dim3 Block::position_of(unsigned thread) const {
  const Dim3 b = grid_.launch.block;
  return {thread % b.x, thread / b.x % b.y, thread / b.x / b.y};
}

uint64_t Block::run() {
  clock().begin_block();
  const unsigned warps = (threads_ + warp_size - 1) / warp_size;
  warps_.resize(warps);  // a warp asks how many there are
  for (unsigned w = 0; w < warps; ++w) {
    const unsigned lanes = std::min(threads_ - w * warp_size, warp_size);
    const Mask mask = lanes == warp_size ? all_lanes : (Mask{1} << lanes) - 1;
    warps_[w] = std::make_unique<Warp>(*this, w, mask);
  }
  for (;;) {
    bool done = true;
    for (size_t w = 0; w < warps_.size(); ++w)
      done &=
          warps_[grid_.launch.backwards ? warps_.size() - 1 - w : w]->run() == Warp::Status::done;
    if (done) break;
    pass_barrier();
  }
  uint64_t instructions = 0;
  for (auto& w : warps_) instructions += w->instructions;
  return instructions;
}

// Given that each warp has exited or waits at a barrier.
void Block::pass_barrier() {
  const Instruction* barrier = nullptr;
  for (auto& w : warps_)
    if (w->status() == Warp::Status::at_barrier) barrier = &w->at();
  for (auto& w : warps_)
    if (w->status() == Warp::Status::done || w->live() != w->members() || &w->at() != barrier)
      fault_divergent();
  clock().pass_barrier();
  uint32_t result = 0;
  if (barrier->mode) {
    uint32_t votes = 0;
    for (auto& w : warps_) votes += static_cast<uint32_t>(std::popcount(w->barrier_votes()));
    const auto kind = static_cast<BarrierKind>(barrier->mode);
    result = kind == BarrierKind::popc  ? votes
             : kind == BarrierKind::all ? votes == threads_
                                        : votes != 0;
  }
  for (auto& w : warps_) w->release(result);
}

void Block::fault_divergent() const {
  const Warp* waiting = nullptr;
  std::string others;
  for (auto& w : warps_) {
    if (w->status() == Warp::Status::at_barrier && !waiting) waiting = w.get();
    if (w->live() != w->members())
      others += fmt::format(
          "; warp {}: {} have exited", w->number(),
          w->live() ? fmt::format("lanes {:#010x}", w->members() & ~w->live()) : "all lanes");
    else if (waiting && &w->at() != &waiting->at())
      others += fmt::format("; warp {} waits at the barrier of line {}", w->number(), w->at().line);
  }
  waiting->fault(0, "divergent barrier: not all threads of the block come to it" + others);
}

LaunchCounts launch(const Module& module, std::string_view kernel, const Launch& l,
                    Memory& memory) {
  Grid grid{module, module.kernel(kernel), l, memory, memory.addresses_of(module), {}, 0, {}, 0};
  if (!l.allow_approximate) refuse_approximate(grid);
  lay_out_shared(grid);
  check(grid);
  grid.params.resize(grid.kernel.argument_bytes);
  for (size_t i = 0; i < l.args.size(); ++i) {
    const Variable& v = grid.kernel.variables[grid.kernel.params[i]];
    if (v.bytes) std::memcpy(grid.params.data() + v.offset, l.args[i], v.bytes);
  }
  grid.steps_left = l.max_steps;
  memory.clock.begin_launch();
  LaunchCounts counts;
  for (uint32_t z = 0; z < l.grid.z; ++z)
    for (uint32_t y = 0; y < l.grid.y; ++y)
      for (uint32_t x = 0; x < l.grid.x; ++x)
        counts.instructions += Block(grid, {l.backwards ? l.grid.x - 1 - x : x, y, z}).run();
  return counts;
}

}  // namespace gradus::ptx
