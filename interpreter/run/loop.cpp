#include "interpreter/run/loop.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "fusion/cost.h"
#include "interpreter/run/body_state.h"
#include "interpreter/run/faults.h"
#include "interpreter/run/limits.h"
#include "interpreter/run/walk.h"
#include "ops/control_flow.h"

namespace gradus::interpreter {

Layout slice_of(Layout layout) {
  layout.shape.erase(layout.shape.begin());
  layout.strides.erase(layout.strides.begin());
  return layout;
}

Layout LoopCode::step_layout(size_t i) const {
  if (i < carries) return Layout(in[i].dtype, in[i].shape);
  if (i >= carries + sequences) return in[i];
  Layout slice = slice_of(in[i]);
  const bool copied =
      std::ranges::any_of(gathered, [&](const Gathered& g) { return g.input == i; });
  return copied ? Layout(slice.dtype, slice.shape) : slice;
}

void LoopCode::Transfer::run(const std::byte* from, std::byte* to, WorkerPool& workers) const {
  if (!code.run) return;
  std::byte* const args[] = {const_cast<std::byte*>(from), to};
  work::KernelScope scope{workers, nullptr};
  code.run(code.parameters.get(), args, scope);
}

namespace {

using work::KernelScope;
using Chunk = LoopCode::Chunk;
using Copy = LoopCode::Copy;
using Deferred = LoopCode::Deferred;
using Gathered = LoopCode::Gathered;
using Turned = LoopCode::Turned;

// Tells an observer of a step's instructions, and checks the run's limits before each.
struct StepTeller {
  InstructionObserver& observer;
  const Code& body;
  int64_t step;
  uint32_t& at;

  void begin(uint32_t instruction, const Step*) const {
    at = instruction;
    check_current_limits();
    observer.before_in_step({body, step, instruction});
  }
  void end(uint32_t instruction) const { observer.after_in_step({body, step, instruction}); }
};

// Of any two places.
int64_t bytes_between(const std::byte* from, const std::byte* to) {
  return reinterpret_cast<intptr_t>(to) - reinterpret_cast<intptr_t>(from);
}

// A loop while it runs.
class Run {
 public:
  Run(const LoopCode& loop, std::byte* const* args, KernelScope& scope)
      : l_(loop),
        args_(args),
        scope_(scope),
        pointers_(loop.device ? loop.plan->args.size() + loop.places : 0),
        frame_(loop.device ? pointers_.data()
                           : reinterpret_cast<std::byte**>(scope.scratch + loop.frame_at)),
        places_(loop.device ? frame_ + loop.plan->args.size()
                            : reinterpret_cast<std::byte**>(scope.scratch + loop.places_at)),
        buffer_(scope.scratch + loop.buffer_at),
        observer_(current_run() ? current_run()->options.observer : nullptr) {
    if (l_.plan || l_.steps == 0) return;
    state_.emplace(l_.code, l_.kernels);
    for (size_t i = 0; i < l_.inputs; ++i) in_.push_back(l_.step_layout(i));
  }

  void run() {
    if (l_.steps == 0) return give_carries(0);
    begin();
    int64_t n = 0;
    if (l_.chunk && !observer_) {
      run_some(n, l_.steps);  // it may read carries where the operands lie
      run_chunks(n);
    }
    while (n < l_.steps) run_some(n, l_.steps);
    add_held();
  }

  // Step n, after `begin` and the steps before, and of those up to `end` as many as one call of a
  // function takes. n is the next step then; where one fails, that.
  void run_some(int64_t& n, int64_t end) {
    check_current_limits();
    const int64_t most = std::min(end - n, l_.rounds);
    if (n > 0 && most > 1 && !observer_) return run_rounds(n, most);
    step(n, slice_of_step(n), slice_of_step(n));
    ++n;
  }

  // Step n, of slice t, after `begin` and the steps before. Errors call it `name`.
  void step(int64_t n, int64_t t, int64_t name) {
    set_places(n, t);
    do_step(name);
  }

  // Where step n finds a carry.
  std::byte* carry_before(size_t i, int64_t n) const {
    return n == 0 && lies_as_read(i) ? args_[i] : carry_after(i, n - 1);
  }

  // After so many steps: the carries are where the results lie.
  void give_carries(int64_t steps) const {
    for (size_t i = 0; i < l_.carries; ++i) {
      std::byte* const to = args_[l_.inputs + i];
      if (steps == 0)
        l_.first[i].run(args_[i], to, scope_.workers);
      else if (const std::byte* from = carry_after(i, steps - 1); from != to)
        l_.last[i].run(from, to, scope_.workers);
    }
  }

  void begin() {
    if (l_.plan) set_pointers();
    if (l_.device) clear_faults(*l_.device, *l_.plan, buffer_);
    for (size_t i = l_.carries + l_.sequences; i < l_.inputs; ++i) places_[i] = args_[i];
    for (const Turned& t : l_.turned) {
      places_[t.input] = scope_.scratch + t.at;
      copy_elements(t.given, args_[t.input], l_.in[t.input], places_[t.input]);
    }
    for (auto [place, at] : l_.own_at) places_[place] = scope_.scratch + at;
    // The first step reads a carry where it lies, if it lies as the others do.
    for (size_t i = 0; i < l_.carries; ++i)
      if (!lies_as_read(i)) l_.first[i].run(args_[i], carry_after(i, -1), scope_.workers);
  }

 private:
  // A step, by the places that are set.
  void do_step(int64_t name) {
    try {
      run_step(name);
      if (l_.device) check_faults(*l_.device, *l_.plan, buffer_, at_);
    } catch (...) {
      rethrow_at(name);
    }
    for (const Copy& c : l_.copies) copy(c);
  }

  // As many steps from n on, none of them the first, as are chunks. A device has done nothing yet
  // when it was asked: where the run has limits, it is waited for before each chunk.
  void run_chunks(int64_t& n) {
    const Chunk& chunk = *l_.chunk;
    const StageRun* const run = current_run();
    const bool limited = run && (run->options.deadline || run->options.cancel);
    std::shared_ptr<const void> steps;
    for (; l_.steps - n >= chunk.steps; n += chunk.steps) {
      if (limited) l_.device->synchronize(l_.device->stream());
      check_current_limits();
      if (!steps) steps = l_.device->record([&] { run_staged(n); });
      const int64_t slice = std::min(slice_of_step(n), slice_of_step(n + chunk.steps - 1));
      for (const Chunk::Staged& s : chunk.read)
        s.transfer.run(args_[s.place] + slice * s.stride, scope_.scratch + s.at, scope_.workers);
      l_.device->replay(steps);
      for (const Chunk::Staged& s : chunk.written)
        s.transfer.run(scope_.scratch + s.at, args_[s.place] + slice * s.stride, scope_.workers);
    }
  }

  // The steps of a chunk, the first of which is n, on the slices in the scratch memory.
  void run_staged(int64_t n) {
    const Chunk& chunk = *l_.chunk;
    for (int64_t k = 0; k < chunk.steps; ++k) {
      place_values(n + k, slice_of_step(n + k));
      const int64_t slice = l_.reverse ? chunk.steps - 1 - k : k;
      for (const auto* all : {&chunk.read, &chunk.written})
        for (const Chunk::Staged& s : *all)
          places_[s.place] = scope_.scratch + s.at + slice * s.bytes;
      set_frame();
      do_step(slice_of_step(n + k));
    }
  }

  // Steps n to n + steps, none of them the first, in one call.
  void run_rounds(int64_t& n, int64_t steps) {
    fusion::Rounds rounds{steps, moves_from(n)};
    const SegmentPlan::Whole& whole = *l_.plan->whole;
    const int64_t end = n + steps;
    size_t item = 0;
    try {
      whole.code->run(frame_, rounds, whole.calls, scope_.workers, buffer_, item);
    } catch (...) {
      at_ = whole.instructions[item];
      n = end - rounds.left;
      rethrow_at(slice_of_step(n));
    }
    n = end;
  }

  // How the pointers move from step n on, where they are then. After the first step the places of
  // carries take turns, and slices lie at one distance from each other.
  std::span<fusion::PointerMove> moves_from(int64_t n) {
    const size_t args = l_.plan->args.size();
    auto* const moves = reinterpret_cast<fusion::PointerMove*>(scope_.scratch + l_.moves_at);
    auto* const later = reinterpret_cast<std::byte**>(moves + args);
    for (int64_t ahead : {2, 1}) {
      set_places(n + ahead, slice_of_step(n + ahead));
      std::copy_n(frame_, args, later + (ahead - 1) * static_cast<int64_t>(args));
    }
    set_places(n, slice_of_step(n));
    size_t count = 0;
    for (size_t a = 0; a < args; ++a) {
      const fusion::PointerMove move{static_cast<int64_t>(a), bytes_between(frame_[a], later[a]),
                                     bytes_between(later[a], later[args + a])};
      if (move.next || move.after) moves[count++] = move;
    }
    return {moves, count};
  }

  int64_t slice_of_step(int64_t n) const { return l_.reverse ? l_.steps - 1 - n : n; }

  // A carry, before the first step.
  bool lies_as_read(size_t i) const { return l_.in[i].contiguous() && !l_.is_in_place(i); }

  void set_pointers() const {
    for (size_t a = 0; a < l_.plan->args.size(); ++a) {
      const Arg& arg = l_.plan->args[a];
      frame_[a] = arg.kind == Arg::Kind::slot    ? buffer_ + arg.offset
                  : arg.kind == Arg::Kind::fixed ? const_cast<std::byte*>(arg.fixed)
                                                 : nullptr;
    }
  }

  // Where step n leaves a carry: the last one where the result lies.
  std::byte* carry_after(size_t i, int64_t n) const {
    const bool in_result = l_.is_in_place(i) || (l_.steps - 1 - n) % 2 == 0;
    return in_result ? args_[l_.inputs + i] : scope_.scratch + l_.spare_at[i];
  }

  void set_places(int64_t n, int64_t t) {
    place_values(n, t);
    for (const Gathered& g : l_.gathered) {
      std::byte* const to = scope_.scratch + g.at;
      g.transfer.run(std::exchange(places_[g.input], to), to, scope_.workers);
    }
    set_frame();
  }

  void place_values(int64_t n, int64_t t) {
    for (size_t i = 0; i < l_.carries; ++i) {
      places_[i] = carry_before(i, n);
      places_[l_.inputs + i] = carry_after(i, n);
    }
    for (size_t i = l_.carries; i < l_.carries + l_.sequences; ++i)
      places_[i] = args_[i] + t * l_.slice_bytes[i];
    for (size_t r = l_.carries; r < l_.results; ++r)
      places_[l_.inputs + r] =
          args_[l_.inputs + r] + t * static_cast<int64_t>(bytes_of_elements(l_.out[r]));
  }

  // The kernels' pointers to places.
  void set_frame() {
    if (!l_.plan) return;
    const SegmentPlan& plan = *l_.plan;
    for (size_t e = 0; e < l_.place_of_external.size(); ++e) {
      std::byte* const data = places_[l_.place_of_external[e]];
      for (uint32_t p = plan.patch_begin[e]; p < plan.patch_begin[e + 1]; ++p)
        frame_[plan.patches[p].arg] = data + plan.patches[p].offset;
    }
  }

  void run_step(int64_t name) {
    if (state_) return state_->run(in_, places_, l_.out, places_ + l_.inputs, name, at_);
    if (observer_) return run_told(StepTeller{*observer_, *l_.code, name, at_});
    const SegmentPlan& plan = *l_.plan;
    if (plan.whole) {
      at_ = plan.whole->instructions.empty() ? 0 : plan.whole->instructions[0];
      size_t item = 0;
      try {
        plan.whole->code->run_once(frame_, plan.whole->calls, scope_.workers, buffer_, item);
      } catch (...) {
        at_ = plan.whole->instructions[item];
        throw;
      }
      return;
    }
    auto deferred = l_.deferred.begin();
    for (const Step& s : plan.steps) {
      at_ = s.instruction;
      if (deferred != l_.deferred.end() && &s == &plan.steps[deferred->step])
        hold(*deferred++, s);
      else
        run_kernel(s);
    }
    if (!l_.deferred.empty() && ++held_ == Deferred::most_steps) add_held();
  }

  std::byte** held_pointers(const Deferred& d, int64_t step) const {
    auto* const all = reinterpret_cast<std::byte**>(scope_.scratch + d.at);
    return all + step * static_cast<int64_t>(d.pointers.size());
  }

  // What a deferred kernel would read in this step.
  void hold(const Deferred& d, const Step& s) const {
    std::byte** const held = held_pointers(d, held_);
    for (size_t k = 0; k < d.pointers.size(); ++k) {
      const Deferred::Pointer& p = d.pointers[k];
      held[k] = frame_[s.args + k];
      if (!p.copied) continue;
      std::byte* const copy = scope_.scratch + p.at + static_cast<size_t>(held_) * p.copied;
      held[k] = static_cast<std::byte*>(std::memcpy(copy, held[k], p.copied));
    }
  }

  // Runs the deferred kernels for the steps that are held.
  void add_held() {
    if (held_ == 0) return;
    for (const Deferred& d : l_.deferred)
      scope_.workers.parallel_for(d.blocks, [&](int64_t block) { add_block(d, block); });
    held_ = 0;
  }

  void add_block(const Deferred& d, int64_t block) const {
    int64_t step = 0;
    for (const Deferred::Code& code : d.codes)
      for (; held_ - step >= code.steps; step += code.steps) add_steps(d, code, step, block);
  }

  void add_steps(const Deferred& d, const Deferred::Code& code, int64_t step, int64_t block) const {
    std::array<std::byte*, fusion::most_slots> pointers;
    size_t count = 0;
    auto give = [&](int64_t of_step, size_t k) {
      pointers[count++] = held_pointers(d, of_step)[k] + block * d.pointers[k].block_bytes;
    };
    for (size_t k = 0; k < d.loads; ++k) give(step, k);
    for (int64_t later = step + 1; later < step + code.steps; ++later)
      for (size_t k = 0; k < d.loads; ++k)
        if (!d.pointers[k].in_place) give(later, k);
    for (size_t k = d.loads; k < d.pointers.size(); ++k) give(step, k);
    const work::Kernel& kernel = block + 1 < d.blocks ? code.block : code.rest;
    KernelScope scope = scope_.with(nullptr);
    kernel.run(kernel.parameters.get(), pointers.data(), scope);
  }

  void run_told(const StepTeller& teller) {
    Walk<StepTeller> walk(0, static_cast<uint32_t>(l_.code->stage(0).instructions.size()), teller);
    for (const Step& s : l_.plan->steps) {
      walk.reach(s);
      run_kernel(s);
    }
    walk.end();
  }

  void run_kernel(const Step& s) const {
    if (!s.run) return;
    KernelScope scope = scope_.with(buffer_ + s.scratch);
    s.run(s.parameters, frame_ + s.args, scope);
  }

  void copy(const Copy& c) const {
    std::byte* const to = places_[l_.inputs + c.result];
    const std::byte* from = to;
    if (c.from) from = (c.from->fixed ? c.from->fixed : places_[c.from->place]) + c.from->offset;
    c.transfer.run(from, to, scope_.workers);
  }

  // What is being handled: an Error gets the step and the place of the instruction that runs.
  [[noreturn]] void rethrow_at(int64_t name) const {
    try {
      throw;
    } catch (const Error& e) {
      if (e.where().known()) throw;
      const ir::Graph& graph = l_.code->graph();
      throw graph.error_at(l_.code->stage(0).instructions[at_].where,
                           fmt::format("step {} of '{}': {}", name, graph.name, e.bare()));
    }
  }

  const LoopCode& l_;
  std::byte* const* const args_;
  KernelScope& scope_;
  std::vector<std::byte*> pointers_;  // where the scratch memory is a device's
  std::byte** const frame_;
  std::byte** const places_;
  std::byte* const buffer_;
  InstructionObserver* const observer_;  // null where nobody watches
  uint32_t at_ = 0;                      // the instruction that runs
  int64_t held_ = 0;                     // steps whose deferred kernels have not run
  // Where data decide sizes in a step.
  std::optional<BodyState> state_;
  std::vector<Layout> in_;  // what it takes
};

// The steps on all workers. Of several errors it is that of the step that would run first.
void run_apart(const LoopCode& loop, std::byte* const* args, KernelScope& scope) {
  const int64_t parts = std::min<int64_t>(loop.steps, 2 * scope.workers.workers());
  const StageRun* const run = current_run();
  std::atomic<int64_t> failed{loop.steps};
  std::exception_ptr error;
  std::mutex mutex;
  run_in_slots(scope.workers, parts, [&](int64_t part, int64_t slot) {
    std::optional<CurrentRun> here;
    if (run) here.emplace(*run);
    KernelScope own = scope.with(scope.scratch + static_cast<size_t>(slot) * loop.bytes);
    Run steps(loop, args, own);
    steps.begin();
    const int64_t end = loop.steps * (part + 1) / parts;
    int64_t n = loop.steps * part / parts;
    try {
      while (n < end && n < failed) steps.run_some(n, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (n >= failed) return;
      failed = n;
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

// A bool, where the steps run.
bool is_set(const LoopCode& loop, const std::byte* address) {
  std::byte value{};
  if (loop.device)
    loop.device->to_host(&value, address, 1);
  else
    value = *address;
  return value != std::byte{0};
}

}  // namespace

void run_data_loop(const DataLoopCode& loop, std::byte* const* args, KernelScope& scope) {
  const LoopCode& body = loop.body;
  std::vector<std::byte*> pointers(body.device ? body.inputs + 1 : 0);
  auto** const given =
      body.device ? pointers.data() : reinterpret_cast<std::byte**>(scope.scratch + loop.args_at);
  std::byte* const holds = scope.scratch + loop.holds_at;
  std::copy(args, args + body.inputs, given);
  given[body.inputs] = holds;
  KernelScope behind = scope.with(scope.scratch + loop.condition_at);
  Run condition(loop.condition, given, behind), steps(body, args, scope);
  steps.begin();
  int64_t n = 0;
  for (;; ++n) {
    check_current_limits();
    for (size_t i = 0; i < body.carries; ++i) given[i] = steps.carry_before(i, n);
    condition.begin();
    condition.step(0, 0, n);
    if (!is_set(body, holds)) break;
    if (n == loop.max_trips) ops::fail_after_most_trips(n, loop.failure);
    steps.step(n, n, n);
  }
  steps.give_carries(n);
}

void run_loop(const LoopCode& loop, std::byte* const* args, KernelScope& scope) {
  const StageRun* const run = current_run();
  if (loop.apart && scope.workers.workers() > 1 && !(run && run->options.observer))
    run_apart(loop, args, scope);
  else
    Run(loop, args, scope).run();
}

void run_branch(const BranchCode& branch, std::byte* const* args, KernelScope& scope) {
  run_loop(is_set(branch.then, args[0]) ? branch.then : branch.otherwise, args + 1, scope);
}

}  // namespace gradus::interpreter
