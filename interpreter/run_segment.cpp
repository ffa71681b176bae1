// Running a segment: its pointers, then its kernels, one by one or as one.
#include <algorithm>
#include <cstring>

#include "interpreter/state_impl.h"

namespace gradus {

using interpreter::Arg;
using interpreter::Event;
using interpreter::SegmentPlan;
using interpreter::Step;

void State::Impl::run_segment(const std::shared_ptr<const SegmentPlan>& plan, uint32_t& at,
                              const RunOptions& options) {
  plans[plan->segment] = plan;
  at = no_instruction;  // until the first step: memory is the stage's
  Frame& frame = prepare_frame(plan);
  for (const Ref<Storage>& memory : plan->on_device) record_use(memory);
  clear_faults(*plan);
  bool plain = !options.deadline && !options.cancel && !options.observer;
  if (plain && plan->recordable)
    run_recorded(*plan, frame, at);
  else if (plain && plan->whole)
    run_whole(*plan, frame, at);
  else if (plain)
    run_steps(*plan, frame, at);
  else
    run_checked_steps(*plan, frame, at, options);
  check_faults(*plan, at);
  for (const auto& [r, held] : plan->held)
    if (!held.absent && !held.carried) versions[index_of(r)] = registers[index_of(r)].version();
  for (uint32_t s : code->settled_after(plan->segment)) let_block_go(s);
}

// The plan's frame, with a buffer of at least so many bytes.
State::Impl::Frame& State::Impl::frame_of(const std::shared_ptr<const SegmentPlan>& plan,
                                          size_t buffer_bytes) {
  if (!buffer || buffer->bytes() < buffer_bytes) {
    buffer = nullptr;
    buffer = memory_there(buffer_bytes);
  }
  Frame& frame = frames[plan->segment];
  if (frame.plan != plan || frame.buffer != buffer->data()) {
    frame.plan = plan;
    frame.recorded = nullptr;
    frame.last_args.clear();
    frame.buffer = buffer->data();
    frame.args.resize(plan->args.size());
    frame.blocks.assign(plan->blocks.size(), nullptr);
    for (size_t a = 0; a < plan->args.size(); ++a) {
      const Arg& arg = plan->args[a];
      frame.args[a] = arg.kind == Arg::Kind::slot    ? buffer->data() + arg.offset
                      : arg.kind == Arg::Kind::fixed ? const_cast<std::byte*>(arg.fixed)
                                                     : nullptr;
    }
  }
  return frame;
}

State::Impl::Frame& State::Impl::prepare_frame(const std::shared_ptr<const SegmentPlan>& plan) {
  Frame& frame = frame_of(plan, static_cast<size_t>(plan->buffer_bytes));
  for (uint32_t e = 0; e < plan->externals.size(); ++e)
    if (plan->external_before[e]) patch(*plan, frame, e);
  if (plan->block_bytes) blocks[plan->segment] = block_to_leave(*plan);
  patch_blocks(*plan, frame);
  return frame;
}

void State::Impl::patch_blocks(const SegmentPlan& plan, Frame& frame) {
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const SegmentPlan::Block& block = plan.blocks[b];
    std::byte* data = blocks[block.segment]->data();
    if (frame.blocks[b] == data) continue;
    frame.blocks[b] = data;
    for (uint32_t p = block.first_patch; p < block.first_patch + block.patches; ++p)
      frame.args[plan.patches[p].arg] = data + plan.patches[p].offset;
  }
}

void State::Impl::patch(const SegmentPlan& plan, Frame& frame, uint32_t external) {
  const Tensor& t = registers[index_of(plan.externals[external])];
  std::byte* data = const_cast<std::byte*>(t.data());
  for (uint32_t p = plan.patch_begin[external]; p < plan.patch_begin[external + 1]; ++p)
    frame.args[plan.patches[p].arg] = data + plan.patches[p].offset;
}

void State::Impl::do_events(const SegmentPlan& plan, Frame& frame, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    const Event& e = plan.events[i];
    Tensor& t = registers[index_of(e.reg)];
    switch (e.kind) {
      case Event::Kind::allocate:
        t = tensor_to_leave(e);
        if (plan.external_of_event[i] != UINT32_MAX) patch(plan, frame, plan.external_of_event[i]);
        break;
      case Event::Kind::view: {
        const Tensor& constant = code->constant(e.base);
        const Tensor& base = constant.defined() ? constant : registers[index_of(e.base)];
        t = base.view(e.layout, base.offset() + e.offset);
        if (constant.defined())
          t = there(copy_of(t));  // the program's own values stay out of reach
        break;
      }
      case Event::Kind::take: {
        t = Tensor::empty(e.layout.dtype, e.layout.shape, *context);
        const std::byte* from = blocks[code->made_in(e.base)]->data() + e.offset;
        if (t.numel()) copy_elements(e.layout, from, t.layout(), t.mutable_data());
        break;
      }
      case Event::Kind::bring:
        std::memcpy(blocks[plan.segment]->data() + e.target,
                    blocks[code->made_in(e.base)]->data() + e.offset, static_cast<size_t>(e.bytes));
        break;
      case Event::Kind::release:
        let_go(e.reg);
        break;
    }
  }
}

void State::Impl::run_steps(const SegmentPlan& plan, Frame& frame, uint32_t& at) {
  work::KernelScope scope{context->workers(), nullptr};
  std::byte* const scratch = buffer->data();
  std::byte* const* const args = frame.args.data();
  const Step* const end = plan.steps.data() + plan.steps.size();
  for (const Step* s = plan.steps.data(); s != end; ++s) {
    at = s->instruction;
    if (s->before) do_events(plan, frame, s->first_event, s->before);
    if (s->run) {
      scope.scratch = scratch + s->scratch;
      s->run(s->parameters, args + s->args, scope);
    }
    if (s->after) do_events(plan, frame, s->first_event + s->before, s->after);
  }
}

// Memory first, so that all pointers are known; then the function; then what is let go.
void State::Impl::run_whole(const SegmentPlan& plan, Frame& frame, uint32_t& at) {
  for (const Step& s : plan.steps) {
    at = s.instruction;
    if (s.before) do_events(plan, frame, s.first_event, s.before);
  }
  const SegmentPlan::Whole& whole = *plan.whole;
  size_t item = 0;
  try {
    whole.code->run(frame.args.data(), whole.calls, context->workers(), buffer->data(), item);
  } catch (...) {
    at = whole.instructions[item];
    throw;
  }
  for (const Step& s : plan.steps)
    if (s.after) do_events(plan, frame, s.first_event + s.before, s.after);
}

// Memory first, so that all pointers are known; then the launches, by themselves or, where the
// pointers are those of the run before, as one; then what is let go.
void State::Impl::run_recorded(const SegmentPlan& plan, Frame& frame, uint32_t& at) {
  for (const Step& s : plan.steps) {
    at = s.instruction;
    if (s.before) do_events(plan, frame, s.first_event, s.before);
  }
  work::KernelScope scope{context->workers(), nullptr};
  auto launch = [&] {
    for (const Step& s : plan.steps) {
      if (!s.run) continue;
      at = s.instruction;
      scope.scratch = buffer->data() + s.scratch;
      s.run(s.parameters, frame.args.data() + s.args, scope);
    }
  };
  if (frame.last_args != frame.args) {
    frame.recorded = nullptr;
    frame.last_args = frame.args;
    launch();
  } else {
    if (!frame.recorded) frame.recorded = kernels.device->record(launch);
    kernels.device->replay(frame.recorded);
  }
  for (const Step& s : plan.steps)
    if (s.after) do_events(plan, frame, s.first_event + s.before, s.after);
}

void State::Impl::clear_faults(const SegmentPlan& plan) const {
  if (plan.faults.empty()) return;
  const std::vector<std::byte> none(plan.faults.size() * SegmentPlan::fault_bytes);
  kernels.device->to_device(buffer->data() + plan.faults_at, none.data(), none.size());
}

// The first instruction's counts: what others met may follow from it.
void State::Impl::check_faults(const SegmentPlan& plan, uint32_t& at) const {
  if (plan.faults.empty()) return;
  std::vector<std::array<int64_t, 2>> met(plan.faults.size());
  static_assert(sizeof met[0] == SegmentPlan::fault_bytes);
  kernels.device->to_host(reinterpret_cast<std::byte*>(met.data()), buffer->data() + plan.faults_at,
                          met.size() * SegmentPlan::fault_bytes);
  for (size_t f = 0; f < met.size(); ++f) {
    if (met[f][0] == 0) continue;
    at = plan.faults[f].instruction;
    throw plan.faults[f].error(met[f][1]);
  }
}

void State::Impl::check_limits(const RunOptions& options, size_t instruction) const {
  const char* what = options.cancel && options.cancel->cancelled() ? "was cancelled"
                     : options.deadline && std::chrono::steady_clock::now() >= *options.deadline
                         ? "passed its deadline"
                         : nullptr;
  if (what)
    throw Error("the run {} in stage {}, before instruction {} of {}", what, stage, instruction,
                code->stage(stage).instructions.size());
}

// Instructions that need no step (views inside the stage, constants, all of a group but the last)
// are told of like the others.
void State::Impl::run_checked_steps(const SegmentPlan& plan, Frame& frame, uint32_t& at,
                                    const RunOptions& options) {
  work::KernelScope scope{context->workers(), nullptr};
  const Step* s = plan.steps.data();
  const Step* const end = s + plan.steps.size();
  const Segment& segment = code->segment(plan.segment);
  for (at = segment.first; at < segment.end; ++at) {
    check_limits(options, at);
    const bool has_step = s != end && s->instruction == at;
    if (options.observer) {
      if (has_step && s->group != UINT32_MAX)
        options.observer->group(stage, plan.groups[s->group].instructions);
      if (has_step && s->host) options.observer->host(stage, at);
      options.observer->before(stage, at);
    }
    for (; s != end && s->instruction == at; ++s) {
      if (s->before) do_events(plan, frame, s->first_event, s->before);
      if (s->run) {
        scope.scratch = buffer->data() + s->scratch;
        s->run(s->parameters, frame.args.data() + s->args, scope);
      }
      if (s->after) do_events(plan, frame, s->first_event + s->before, s->after);
    }
    if (options.observer) options.observer->after(stage, at);
  }
}

}  // namespace gradus
