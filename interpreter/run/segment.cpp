#include <algorithm>
#include <cstring>

#include "interpreter/run/faults.h"
#include "interpreter/run/limits.h"
#include "interpreter/run/steps.h"
#include "interpreter/run/walk.h"

namespace gradus::interpreter {

namespace {

void patch(const StateData& s, const SegmentPlan& plan, SegmentFrame& frame, uint32_t external) {
  const Tensor& t = s.registers[index_of(plan.externals[external])];
  std::byte* data = const_cast<std::byte*>(t.data());
  for (uint32_t p = plan.patch_begin[external]; p < plan.patch_begin[external + 1]; ++p)
    frame.args[plan.patches[p].arg] = data + plan.patches[p].offset;
}

void patch_blocks(const StateData& s, const SegmentPlan& plan, SegmentFrame& frame) {
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const SegmentPlan::Block& block = plan.blocks[b];
    std::byte* data = s.blocks[block.segment]->data();
    if (frame.blocks[b] == data) continue;
    frame.blocks[b] = data;
    for (uint32_t p = block.first_patch; p < block.first_patch + block.patches; ++p)
      frame.args[plan.patches[p].arg] = data + plan.patches[p].offset;
  }
}

SegmentFrame& prepare_frame(StateData& s, const std::shared_ptr<const SegmentPlan>& plan) {
  SegmentFrame& frame = frame_of(s, plan, static_cast<size_t>(plan->buffer_bytes));
  for (uint32_t e = 0; e < plan->externals.size(); ++e)
    if (plan->external_before[e]) patch(s, *plan, frame, e);
  if (plan->block_bytes) s.blocks[plan->segment] = s.left.take_block(*plan, s.place);
  patch_blocks(s, *plan, frame);
  return frame;
}

// A result lies in the caller's buffer, if that is like it.
Tensor tensor_of(StageRun& run, const Event& e) {
  StateData& s = run.s;
  if (e.result < run.results.size())
    if (const Tensor& buffer = run.results[e.result];
        buffer.defined() && s.place.on_host() && buffer.layout() == e.layout)
      return buffer;
  return s.left.take_tensor(e, s.place);
}

void do_events(StageRun& run, const SegmentPlan& plan, SegmentFrame& frame, uint32_t first,
               uint32_t count) {
  StateData& s = run.s;
  for (uint32_t i = first; i < first + count; ++i) {
    const Event& e = plan.events[i];
    Tensor& t = s.registers[index_of(e.reg)];
    switch (e.kind) {
      case Event::Kind::allocate:
        t = tensor_of(run, e);
        if (plan.external_of_event[i] != UINT32_MAX)
          patch(s, plan, frame, plan.external_of_event[i]);
        break;
      case Event::Kind::view: {
        const Tensor& base = s.value(e.base);
        t = base.view(e.layout, base.offset() + e.offset);
        if (s.code->constant(e.base).defined())
          t = s.place.there(s.place.copy_of(t));  // the program's own values stay out of reach
        break;
      }
      case Event::Kind::take: {
        t = Tensor::empty(e.layout.dtype, e.layout.shape, *s.place.context);
        const std::byte* from = s.blocks[s.code->made_in(e.base)]->data() + e.offset;
        if (t.numel()) copy_elements(e.layout, from, t.layout(), t.mutable_data());
        break;
      }
      case Event::Kind::bring:
        std::memcpy(s.blocks[plan.segment]->data() + e.target,
                    s.blocks[s.code->made_in(e.base)]->data() + e.offset,
                    static_cast<size_t>(e.bytes));
        break;
      case Event::Kind::release:
        s.left.let_go(e.reg, t);
        break;
    }
  }
}

struct StepPart {  // of a step
  static constexpr unsigned before = 1, kernel = 2, after = 4, all = before | kernel | after;
};

// The loop over a plan's steps. Its policy says which parts of each are done, and is told of a step
// before any, and of the end.
template <class Policy>
void for_each_step(StageRun& run, const SegmentPlan& plan, SegmentFrame& frame, Policy policy) {
  work::KernelScope scope{run.s.place.context->workers(), nullptr, run.s.place.context.get()};
  std::byte* const scratch = run.s.buffer->data();
  std::byte* const* const args = frame.args.data();
  const Step* const end = plan.steps.data() + plan.steps.size();
  for (const Step* s = plan.steps.data(); s != end; ++s) {
    policy.reach(run, *s);
    if ((policy.parts & StepPart::before) && s->before)
      do_events(run, plan, frame, s->first_event, s->before);
    if ((policy.parts & StepPart::kernel) && s->run) {
      scope.scratch = scratch + s->scratch;
      s->run(s->parameters, args + s->args, scope);
    }
    if ((policy.parts & StepPart::after) && s->after)
      do_events(run, plan, frame, s->first_event + s->before, s->after);
  }
  policy.end(run);
}

template <unsigned which>
struct Unwatched {
  static constexpr unsigned parts = which;
  static void reach(StageRun& run, const Step& step) {
    if (parts != StepPart::after) run.at = step.instruction;  // what is let go throws nothing
  }
  static void end(StageRun&) {}
};

// Limits are checked and the observer is told at each instruction.
struct Teller {
  StageRun& run;
  const SegmentPlan& plan;

  void begin(uint32_t instruction, const Step* step) const {
    run.at = instruction;
    check_limits(run);
    InstructionObserver* observer = run.options.observer;
    if (!observer) return;
    const size_t stage = run.s.stage;
    if (step && step->group != UINT32_MAX)
      observer->group(stage, plan.groups[step->group].instructions);
    if (step && step->host) observer->host(stage, run.at);
    observer->before(stage, run.at);
  }
  void end(uint32_t instruction) const {
    if (run.options.observer) run.options.observer->after(run.s.stage, instruction);
  }
};

class Watched {
 public:
  static constexpr unsigned parts = StepPart::all;
  Watched(StageRun& run, const SegmentPlan& plan, const Segment& segment)
      : walk_(segment.first, segment.end, Teller{run, plan}) {}
  void reach(StageRun& run, const Step& step) {
    walk_.reach(step);
    run.at = step.instruction;
  }
  void end(StageRun&) { walk_.end(); }

 private:
  Walk<Teller> walk_;
};

void call_whole(StageRun& run, const SegmentPlan& plan, SegmentFrame& frame) {
  const SegmentPlan::Whole& whole = *plan.whole;
  size_t item = 0;
  try {
    whole.code->run_once(frame.args.data(), whole.calls, run.s.place.context->workers(),
                         run.s.buffer->data(), item);
  } catch (...) {
    run.at = whole.instructions[item];
    throw;
  }
}

// The launches, by themselves or, where the pointers are those of the run before, as one.
void launch(StageRun& run, const SegmentPlan& plan, SegmentFrame& frame) {
  auto each = [&] { for_each_step(run, plan, frame, Unwatched<StepPart::kernel>()); };
  if (frame.last_args != frame.args) {
    frame.recorded = nullptr;
    frame.last_args = frame.args;
    each();
    return;
  }
  devices::Backend& backend = *run.s.place.kernels.backend;
  if (!frame.recorded) frame.recorded = backend.record(each);
  backend.replay(frame.recorded);
}

void run_plan(StageRun& run, const SegmentPlan& plan, SegmentFrame& frame) {
  const RunOptions& options = run.options;
  const bool watched = options.deadline || options.cancel || options.observer;
  std::optional<CurrentRun> current;
  // A run within a callback of another one has its own limits and observer, or none.
  if (watched || plan.runs_states || current_run()) current.emplace(run);
  if (watched)
    return for_each_step(run, plan, frame, Watched(run, plan, run.s.code->segment(plan.segment)));
  if (!plan.recordable && !plan.whole)
    return for_each_step(run, plan, frame, Unwatched<StepPart::all>());
  // Memory first, so that all pointers are known; then the kernels as one; then what is let go.
  for_each_step(run, plan, frame, Unwatched<StepPart::before>());
  plan.recordable ? launch(run, plan, frame) : call_whole(run, plan, frame);
  for_each_step(run, plan, frame, Unwatched<StepPart::after>());
}

}  // namespace

SegmentFrame& frame_of(StateData& s, const std::shared_ptr<const SegmentPlan>& plan,
                       size_t buffer_bytes) {
  if (!s.buffer || s.buffer->bytes() < buffer_bytes) {
    s.buffer = nullptr;
    s.buffer = s.place.memory(buffer_bytes);
  }
  SegmentFrame& frame = s.frames[plan->segment];
  if (frame.plan != plan || frame.buffer != s.buffer->data()) {
    frame.plan = plan;
    frame.recorded = nullptr;
    frame.last_args.clear();
    frame.buffer = s.buffer->data();
    frame.args.resize(plan->args.size());
    frame.blocks.assign(plan->blocks.size(), nullptr);
    for (size_t a = 0; a < plan->args.size(); ++a) {
      const Arg& arg = plan->args[a];
      frame.args[a] = arg.kind == Arg::Kind::slot    ? s.buffer->data() + arg.offset
                      : arg.kind == Arg::Kind::fixed ? const_cast<std::byte*>(arg.fixed)
                                                     : nullptr;
    }
  }
  return frame;
}

void run_segment(StageRun& run, const std::shared_ptr<const SegmentPlan>& plan) {
  StateData& s = run.s;
  s.plans[plan->segment] = plan;
  run.at = StageRun::no_instruction;  // until the first step: memory is the stage's
  SegmentFrame& frame = prepare_frame(s, plan);
  for (const Ref<Storage>& memory : plan->sent) s.place.record_use(memory);
  devices::Backend& backend = *s.place.kernels.backend;
  clear_faults(backend, *plan, s.buffer->data());
  run_plan(run, *plan, frame);
  check_faults(backend, *plan, s.buffer->data(), run.at);
  for (const auto& [r, held] : plan->held)
    if (!held.absent && !held.carried) s.versions[index_of(r)] = s.registers[index_of(r)].version();
  for (uint32_t i : s.code->settled_after(plan->segment)) s.left.let_block_go(i, s.blocks[i]);
}

bool runs_by_kernels(const StateData& s, std::span<const Tensor> results) {
  if (s.code->segments() != 1 || s.code->rank_program() || !s.place.on_host()) return false;
  const SegmentPlan* plan = s.plans[0].get();
  if (!plan || plan->may_be_whole || plan->awaits_bodies || plan->block_bytes) return false;
  const SegmentFrame& frame = s.frames[0];
  if (frame.plan.get() != plan || !s.buffer || frame.buffer != s.buffer->data()) return false;
  // Each result is made where its buffer lies, itself or as what it is a view of; nothing else is.
  std::vector<bool> made(results.size());
  std::vector<Register> in_buffers;
  for (const Event& e : plan->events) {
    if (e.kind == Event::Kind::release) continue;
    if (e.kind == Event::Kind::view && std::ranges::count(in_buffers, e.base)) continue;
    if (e.kind != Event::Kind::allocate || e.result >= results.size()) return false;
    const Tensor& buffer = results[e.result];
    if (!buffer.defined() || buffer.layout() != e.layout) return false;
    made[e.result] = true;
    in_buffers.push_back(e.reg);
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (!made[i] && !plan->absent_returns[i]) return false;
  return true;
}

void run_kernels(StateData& s, std::span<Tensor> results) {
  const std::shared_ptr<const SegmentPlan> plan = s.plans[0];
  for (Tensor& t : results)
    if (t.defined()) t.mutable_data();  // who else reads it there notices
  s.stage = 0;
  const RunOptions options;
  StageRun run{s, results, options};
  run_or_poison(run, plan, [&] {
    SegmentFrame& frame = s.frames[0];
    std::optional<CurrentRun> current;
    if (plan->runs_states) current.emplace(run);
    if (plan->whole)
      call_whole(run, *plan, frame);
    else
      for_each_step(run, *plan, frame, Unwatched<StepPart::kernel>());
  });
  s.stage = 1;
}

}  // namespace gradus::interpreter
