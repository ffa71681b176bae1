#include "tests/ptx/warp.h"

#include <algorithm>
#include <bit>

#include "gradus/error.h"
#include "tests/ptx/block.h"

namespace gradus::ptx {

namespace {

constexpr uint32_t max_depth = 200;

}  // namespace

Warp::Warp(Block& block, unsigned number, Mask lanes)
    : block_(block), number_(number), members_(lanes), live_(lanes) {
  Frame* frame = enter(block.grid().kernel, lanes);
  groups_.push_back({frame, 0, lanes, Wait::none});
}

Warp::Status Warp::run() {
  status_ = Status::running;
  while (schedule()) {
    const Instruction* code = frame_->function->code.data();
    uint64_t& steps = block_.grid().steps_left;
    const auto lanes = static_cast<unsigned>(std::popcount(mask_));
    do {
      const Instruction& in = code[pc_++];
      at_ = &in;
      if (steps-- == 0)
        fault(static_cast<unsigned>(std::countr_zero(mask_)),
              "the kernel ran longer than Launch::max_steps allows; it may have no end");
      if (in.guard) {
        const Mask m = guarded(in);
        instructions += static_cast<unsigned>(std::popcount(m));
        if (m) in.run(*this, in, m);
      } else {
        instructions += lanes;
        in.run(*this, in, mask_);
      }
    } while (!switch_ && pc_ < limit_);
  }
  return status_;
}

Mask Warp::guarded(const Instruction& in) const {
  need(in.guard, mask_, "the predicate that guards it");
  const Mask p = predicate(in.guard);
  return mask_ & (in.unless ? ~p : p);
}

// Puts the running group back and picks the one to run. False if there is none: all lanes have
// exited, or wait at the barrier.
bool Warp::schedule() {
  switch_ = false;
  if (mask_) groups_.push_back({frame_, pc_, mask_, Wait::none});
  mask_ = 0;
  size_t best = groups_.size();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& g = groups_[i];
    if (g.wait != Wait::none) continue;
    if (best == groups_.size() || g.frame->depth > groups_[best].frame->depth ||
        (g.frame->depth == groups_[best].frame->depth && g.pc < groups_[best].pc))
      best = i;
  }
  if (best == groups_.size()) {
    if (groups_.empty()) {
      status_ = Status::done;
      return false;
    }
    if (groups_.size() != 1 || groups_[0].wait != Wait::barrier) fault_stuck();
    status_ = Status::at_barrier;
    select(groups_[0].frame);
    at_ = &frame_->function->code[groups_[0].pc];
    return false;
  }
  take(best);
  return true;
}

// Makes this group the running one, with those that are where it is.
void Warp::take(size_t index) {
  const Group g = groups_[index];
  frame_ = g.frame;
  pc_ = g.pc;
  limit_ = ~uint32_t{0};
  std::erase_if(groups_, [&](const Group& o) {
    if (o.frame != g.frame) return false;
    if (o.pc == g.pc) {
      mask_ |= o.mask;
      return true;
    }
    if (o.pc > g.pc) limit_ = std::min(limit_, o.pc);
    return false;
  });
  select(frame_);
}

void Warp::select(Frame* frame) {
  frame_ = frame;
  registers_ = reinterpret_cast<std::byte*>(frame->registers.data());
  defined_ = frame->defined.data();
}

void Warp::branch(Mask m, uint32_t pc) {
  if (m == mask_) {
    pc_ = pc;
    switch_ = !groups_.empty();
    return;
  }
  groups_.push_back({frame_, pc, m, Wait::none});
  mask_ &= ~m;
  switch_ = true;
}

void Warp::hold(Mask m) {
  groups_.push_back({frame_, pc_ - 1, m, Wait::lanes});
  mask_ &= ~m;
  switch_ = true;
}

void Warp::hold_at_barrier(Mask m) {
  groups_.push_back({frame_, pc_ - 1, m, Wait::barrier});
  mask_ &= ~m;
  switch_ = true;
}

Mask Warp::barrier_votes() const {
  const Instruction& in = at();
  need(in.r[3], live_, "the predicate that the barrier reduces");
  const Mask p = predicate(in.r[3]);
  return live_ & (in.count ? ~p : p);
}

void Warp::release(uint32_t result) {
  const Instruction& in = at();
  if (in.r[0] && in.r[0].width == 0)
    put_predicate(in.r[0], live_, result ? all_lanes : 0, all_lanes);
  if (in.r[0] && in.r[0].width == 4)
    for (unsigned i = 0; i < warp_size; ++i)
      if (live_ >> i & 1) put_lane(in.r[0], i, result, true);
  Group& g = groups_[0];
  g.wait = Wait::none;
  ++g.pc;
  status_ = Status::running;
}

void Warp::exit(Mask m) {
  live_ &= ~m;
  mask_ &= ~m;
  switch_ = true;
}

Frame* Warp::enter(const Function& f, Mask m) {
  std::unique_ptr<Frame> frame;
  if (spare_.empty()) {
    frame = std::make_unique<Frame>();
  } else {
    frame = std::move(spare_.back());
    spare_.pop_back();
  }
  frame->function = &f;
  frame->caller = nullptr;
  frame->depth = 0;
  frame->lanes = m;
  // A value that nobody wrote is conspicuous, and the same in each run.
  frame->registers.assign(f.register_bytes / 8, 0xbadbadbadbadbadbu);
  frame->defined.assign(f.registers, 0);
  frame->params.assign(f.param_bytes * warp_size, std::byte{0});
  frame->params_defined.assign(f.param_bytes * warp_size, 0);
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    LocalMemory& local = local_[i];
    const uint64_t base = (local.data.size() + 15) / 16 * 16;
    frame->local_base[i] = base;
    if (base + f.local_bytes > max_local)
      throw Error("ptx: a thread of kernel {} needs more than {} bytes of local memory",
                  block_.grid().kernel.name, max_local);
    local.data.resize(base + f.local_bytes);
    local.defined.resize(base + f.local_bytes);
    std::fill(local.defined.begin() + static_cast<ptrdiff_t>(base), local.defined.end(),
              uint8_t{0});
  }
  frames_.push_back(std::move(frame));
  Frame* entered = frames_.back().get();
  fill(*entered);
  return entered;
}

void Warp::call(Mask m, uint32_t number) {
  const Call& c = frame_->function->calls[number];
  const Function& callee = block_.grid().module.code().functions[c.function];
  if (!callee.defined)
    fault(static_cast<unsigned>(std::countr_zero(m)),
          fmt::format("calls {}, which the module only declares", callee.name));
  if (frame_->depth + 1 > max_depth)
    fault(static_cast<unsigned>(std::countr_zero(m)),
          fmt::format("calls are nested more than {} deep", max_depth));
  Frame* caller = frame_;
  Frame* frame = enter(callee, m);
  frame->caller = caller;
  frame->return_to = pc_;
  frame->call = number;
  frame->depth = caller->depth + 1;
  copy_params(*caller, c.arguments, *frame, callee.params, m);
  mask_ &= ~m;
  groups_.push_back({frame, 0, m, Wait::none});
  switch_ = true;
}

void Warp::ret(Mask m) {
  Frame* frame = frame_;
  if (!frame->caller) return exit(m);
  const Call& c = frame->caller->function->calls[frame->call];
  copy_params(*frame, frame->function->results, *frame->caller, c.results, m);
  groups_.push_back({frame->caller, frame->return_to, m, Wait::none});
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    local_[i].data.resize(frame->local_base[i]);
    local_[i].defined.resize(frame->local_base[i]);
  }
  frame->lanes &= ~m;
  mask_ &= ~m;
  switch_ = true;
  if (frame->lanes) return;
  const auto it =
      std::find_if(frames_.begin(), frames_.end(), [&](const auto& f) { return f.get() == frame; });
  spare_.push_back(std::move(*it));
  frames_.erase(it);
}

void Warp::copy_params(const Frame& from, const std::vector<uint32_t>& sources, Frame& to,
                       const std::vector<uint32_t>& targets, Mask m) const {
  const size_t from_bytes = from.params.size() / warp_size, to_bytes = to.params.size() / warp_size;
  for (size_t k = 0; k < sources.size(); ++k) {
    const Variable& a = from.function->variables[sources[k]];
    const Variable& b = to.function->variables[targets[k]];
    for (unsigned i = 0; i < warp_size; ++i) {
      if (!(m >> i & 1)) continue;
      const size_t x = i * from_bytes + a.offset, y = i * to_bytes + b.offset;
      std::copy_n(from.params.begin() + static_cast<ptrdiff_t>(x), a.bytes,
                  to.params.begin() + static_cast<ptrdiff_t>(y));
      std::copy_n(from.params_defined.begin() + static_cast<ptrdiff_t>(x), a.bytes,
                  to.params_defined.begin() + static_cast<ptrdiff_t>(y));
    }
  }
}

std::string Warp::where_are(Mask lanes) const {
  std::string s;
  const auto add = [&](Mask m, const std::string& where) {
    if (!m) return;
    if (!s.empty()) s += ", ";
    s += fmt::format("{:#010x} {}", m, where);
  };
  add(lanes & ~members_, "have no thread");
  add(lanes & members_ & ~live_, "have exited");
  for (const Group& g : groups_)
    add(lanes & g.mask, fmt::format("{} at line {}",
                                    g.wait == Wait::none      ? "run"
                                    : g.wait == Wait::barrier ? "wait at the block's barrier"
                                                              : "wait",
                                    g.frame->function->code[g.pc].line));
  return s;
}

// Given that every group waits and they are not one group at the block's barrier.
void Warp::fault_stuck() const {
  const auto first = std::find_if(groups_.begin(), groups_.end(),
                                  [](const Group& g) { return g.wait == Wait::lanes; });
  const Group& g = first == groups_.end() ? groups_[0] : *first;
  Warp& self = const_cast<Warp&>(*this);  // for the message alone: this warp runs no more
  self.at_ = &g.frame->function->code[g.pc];
  self.frame_ = g.frame;
  self.mask_ = 0;
  const auto lane = static_cast<unsigned>(std::countr_zero(g.mask));
  if (g.wait == Wait::barrier)
    fault(lane, fmt::format("divergent barrier: lanes of the warp {}", where_are(all_lanes)));
  fault(lane, fmt::format("waits for lanes that its mask names and that do not come: lanes {}",
                          where_are(all_lanes)));
}

void Warp::fault_undefined(Reg, Mask lanes, const char* what) const {
  fault(static_cast<unsigned>(std::countr_zero(lanes)),
        fmt::format("{} was never written, or comes from what was not", what));
}

void Warp::fault(unsigned lane, const std::string& what) const {
  const Code& code = block_.grid().module.code();
  const Instruction& in = at();
  std::string source;
  if (const Place& p = code.places[in.place]; p.line) {
    const auto file = code.files.find(p.file);
    source = fmt::format(" ({}:{})", file == code.files.end() ? "?" : file->second, p.line);
  }
  const Dim3 b = block_.position(), t = block_.position_of(thread(lane));
  throw Error("ptx:{}: {}\n  {}\n  in {}{}, block ({}, {}, {}), thread ({}, {}, {})", in.line, what,
              code.line(in.line), frame_->function->name, source, b.x, b.y, b.z, t.x, t.y, t.z);
}

}  // namespace gradus::ptx
