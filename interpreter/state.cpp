#include "interpreter/state.h"

#include <algorithm>
#include <unordered_set>

#include "interpreter/plan.h"

namespace gradus {

using interpreter::Arg;
using interpreter::Event;
using interpreter::StagePlan;
using interpreter::Step;

namespace {

// Buffers up to this size are kept between stages; larger ones go back at the end of a stage.
constexpr size_t kept_buffer_bytes = size_t{1} << 20;
constexpr uint32_t no_instruction = UINT32_MAX;

// The pointers of a stage's kernels, valid for one plan and one buffer.
struct Frame {
  std::shared_ptr<const StagePlan> plan;
  const std::byte* buffer = nullptr;
  std::vector<std::byte*> args;
};

}  // namespace

struct State::Impl {
  std::shared_ptr<const Code> code;
  std::shared_ptr<Context> context;
  size_t stage = 0;
  std::vector<Tensor> registers;
  std::vector<uint64_t> versions;  // of held registers, as of the end of their stage
  std::vector<std::shared_ptr<const StagePlan>> plans;  // of the latest round, by stage
  std::vector<Frame> frames;                            // by stage
  Ref<Storage> buffer;
  std::vector<int64_t> key;  // kept to save the allocation
  std::string poison;
  bool poisoned = false;
  std::atomic<bool> running{false};

  Impl(std::shared_ptr<const Code> c, std::shared_ptr<Context> x)
      : code(std::move(c)), context(std::move(x)) {
    registers.resize(code->registers());
    versions.resize(code->registers());
    plans.resize(code->stages());
    frames.resize(code->stages());
  }

  void check_runnable(std::span<const Tensor> inputs) const {
    if (poisoned)
      throw Error(
          "this state cannot go on, because an earlier run failed: {}; restart it or use a "
          "clone taken before",
          poison);
    if (stage == code->stages())
      throw Error("all {} stages of '{}' have run; restart the state, or run a clone taken earlier",
                  code->stages(), code->graph().name);
    if (inputs.size() != code->inputs(stage)) {
      std::string names;
      for (size_t i = 0; i < code->inputs(stage); ++i)
        names += fmt::format("{}{}: {}", i ? ", " : "", code->input_name(stage, i),
                             to_string(code->input_type(stage, i)));
      throw Error("stage {} takes {} inputs ({}), {} are given", stage, code->inputs(stage), names,
                  inputs.size());
    }
  }

  std::shared_ptr<const StagePlan> find_plan(std::span<const Tensor> inputs) {
    key.clear();
    for (const Tensor& t : inputs) interpreter::append_input_key(t, key);
    const std::shared_ptr<const StagePlan> previous = stage ? plans[stage - 1] : nullptr;
    const auto& last = plans[stage];
    if (last && last->previous == previous && last->key == key) return last;
    if (auto plan = code->plans().find(stage, previous.get(), key)) return plan;
    auto plan = interpreter::make_plan(*code, stage, previous, inputs, key);
    code->plans().insert(stage, plan);
    return plan;
  }

  void check_versions(const StagePlan& plan) const {
    for (size_t e = 0; e < plan.externals.size(); ++e) {
      Register r = plan.externals[e];
      if (!plan.external_before[e]) continue;
      const ir::Value& value = code->graph()[code->value_of(r)];
      if (value.stage == stage) continue;
      if (registers[index_of(r)].version() == versions[index_of(r)]) continue;
      // What was written is the tensor that the user knows, not a view of it.
      Register owner = plan.of_stage(value.stage).find_held(r).owner;
      throw Error(
          "'{}' of stage {} was changed in place after that stage ran, and stage {} needs "
          "its values; leave it as it was, or run with copied inputs",
          code->name_of(owner), code->graph()[code->value_of(owner)].stage, stage);
    }
  }

  // A contiguous copy in memory of this state's context.
  Tensor copy_of(const Tensor& t) const {
    Tensor copy = Tensor::empty(t.dtype(), t.shape(), *context);
    if (t.numel()) copy_elements(t.layout(), t.data(), copy.layout(), copy.mutable_data());
    return copy;
  }

  std::vector<Tensor> run(std::span<const Tensor> inputs, const RunOptions& options) {
    check_runnable(inputs);
    auto plan = find_plan(inputs);
    std::vector<Tensor> copies;
    if (options.copy_inputs && std::ranges::count(plan->held_inputs, true)) {
      copies.assign(inputs.begin(), inputs.end());
      for (size_t i = 0; i < inputs.size(); ++i)
        if (plan->held_inputs[i] && inputs[i].defined()) copies[i] = copy_of(inputs[i]);
      inputs = copies;
      plan = find_plan(inputs);  // copies may lie otherwise
    }
    check_versions(*plan);
    plans[stage] = plan;
    uint32_t at = no_instruction;
    try {
      const StageCode& stage_code = code->stage(stage);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (Register r = stage_code.inputs[i]; r != no_register) registers[index_of(r)] = inputs[i];
      Frame& frame = prepare_frame(plan);
      bool plain = !options.deadline && !options.cancel && !options.observer;
      if (plain)
        run_steps(*plan, frame, at);
      else
        run_checked_steps(*plan, frame, at, options);
      at = no_instruction;
      return finish(*plan);
    } catch (const Error& e) {
      set_poison(e.what());
      if (at == no_instruction || e.where().known()) throw;
      Error placed = code->graph().error_at(code->stage(stage).instructions[at].where, e.bare());
      set_poison(placed.what());
      throw placed;
    } catch (const std::exception& e) {
      set_poison(e.what());
      throw;
    } catch (...) {
      set_poison("an exception that is not a std::exception");
      throw;
    }
  }

  Frame& prepare_frame(const std::shared_ptr<const StagePlan>& plan) {
    size_t bytes = static_cast<size_t>(plan->buffer_bytes);
    if (!buffer || buffer->bytes() < bytes) {
      buffer = nullptr;
      buffer = make_ref<Storage>(context->allocator(), bytes);
    }
    Frame& frame = frames[stage];
    if (frame.plan != plan || frame.buffer != buffer->data()) {
      frame.plan = plan;
      frame.buffer = buffer->data();
      frame.args.resize(plan->args.size());
      for (size_t a = 0; a < plan->args.size(); ++a) {
        const Arg& arg = plan->args[a];
        frame.args[a] = arg.kind == Arg::Kind::slot    ? buffer->data() + arg.offset
                        : arg.kind == Arg::Kind::fixed ? const_cast<std::byte*>(arg.fixed)
                                                       : nullptr;
      }
    }
    for (uint32_t e = 0; e < plan->externals.size(); ++e)
      if (plan->external_before[e]) patch(*plan, frame, e);
    return frame;
  }

  void patch(const StagePlan& plan, Frame& frame, uint32_t external) {
    const Tensor& t = registers[index_of(plan.externals[external])];
    std::byte* data = const_cast<std::byte*>(t.data());
    for (uint32_t p = plan.patch_begin[external]; p < plan.patch_begin[external + 1]; ++p)
      frame.args[plan.patches[p].arg] = data + plan.patches[p].offset;
  }

  void do_events(const StagePlan& plan, Frame& frame, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; ++i) {
      const Event& e = plan.events[i];
      Tensor& t = registers[index_of(e.reg)];
      switch (e.kind) {
        case Event::Kind::allocate:
          t = Tensor::empty(e.layout.dtype, e.layout.shape, *context);
          if (plan.external_of_event[i] != UINT32_MAX)
            patch(plan, frame, plan.external_of_event[i]);
          break;
        case Event::Kind::view: {
          const Tensor& constant = code->constant(e.base);
          const Tensor& base = constant.defined() ? constant : registers[index_of(e.base)];
          t = base.view(e.layout, base.offset() + e.offset);
          if (constant.defined()) t = copy_of(t);  // the program's own values stay out of reach
          break;
        }
        case Event::Kind::release:
          t = Tensor();
          break;
      }
    }
  }

  // `at` is the instruction that is running, for who catches what it throws.
  void run_steps(const StagePlan& plan, Frame& frame, uint32_t& at) {
    ir::KernelScope scope{context->workers(), nullptr};
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

  void check_limits(const RunOptions& options, size_t instruction) const {
    const char* what = options.cancel && options.cancel->cancelled() ? "was cancelled"
                       : options.deadline && std::chrono::steady_clock::now() >= *options.deadline
                           ? "passed its deadline"
                           : nullptr;
    if (what)
      throw Error("the run {} in stage {}, before instruction {} of {}", what, stage, instruction,
                  code->stage(stage).instructions.size());
  }

  // Instructions that need no step (views inside the stage, constants) are told of like the others.
  void run_checked_steps(const StagePlan& plan, Frame& frame, uint32_t& at,
                         const RunOptions& options) {
    ir::KernelScope scope{context->workers(), nullptr};
    const Step* s = plan.steps.data();
    const Step* const end = s + plan.steps.size();
    const size_t count = code->stage(stage).instructions.size();
    for (at = 0; at < count; ++at) {
      check_limits(options, at);
      if (options.observer) options.observer->before(stage, at);
      if (s != end && s->instruction == at) {
        if (s->before) do_events(plan, frame, s->first_event, s->before);
        if (s->run) {
          scope.scratch = buffer->data() + s->scratch;
          s->run(s->parameters, frame.args.data() + s->args, scope);
        }
        if (s->after) do_events(plan, frame, s->first_event + s->before, s->after);
        ++s;
      }
      if (options.observer) options.observer->after(stage, at);
    }
  }

  std::vector<Tensor> finish(const StagePlan& plan) {
    const StageCode& stage_code = code->stage(stage);
    std::vector<Tensor> results(stage_code.returns.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (plan.absent_returns[i]) continue;
      Register r = stage_code.returns[i];
      const Tensor& constant = code->constant(r);
      results[i] = constant.defined() ? copy_of(constant) : registers[index_of(r)];
    }
    for (Register r : stage_code.returns)
      if (r != no_register && code->last_stage(r) == stage) registers[index_of(r)] = Tensor();
    for (Register r : stage_code.inputs)
      if (r != no_register && code->last_stage(r) == stage) registers[index_of(r)] = Tensor();
    for (const auto& [r, held] : plan.held)
      if (!held.absent) versions[index_of(r)] = registers[index_of(r)].version();
    if (buffer->bytes() > kept_buffer_bytes) buffer = nullptr;
    ++stage;
    return results;
  }

  void release_all() {
    for (Tensor& t : registers) t = Tensor();
    for (Frame& f : frames) f = Frame();
    buffer = nullptr;
  }
  // Holds also where there is no memory for the reason.
  void set_poison(const char* why) noexcept {
    release_all();
    poisoned = true;
    try {
      poison = why;
    } catch (...) {
      poison.clear();
    }
  }
};

namespace {

// One run at a time: a second thread, or a run from inside the run, is refused.
class Occupy {
 public:
  explicit Occupy(std::atomic<bool>& running) : running_(running) {
    if (running_.exchange(true, std::memory_order_acquire))
      throw Error(
          "this state is running already, on another thread or further up this one; use a "
          "clone");
  }
  ~Occupy() { running_.store(false, std::memory_order_release); }
  Occupy(const Occupy&) = delete;

 private:
  std::atomic<bool>& running_;
};

}  // namespace

State::State(std::shared_ptr<const Code> code, std::shared_ptr<Context> context)
    : impl_(std::make_unique<Impl>(std::move(code), std::move(context))) {}
State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

std::vector<Tensor> State::run(std::span<const Tensor> inputs, const RunOptions& options) {
  Occupy occupy(impl_->running);
  return impl_->run(inputs, options);
}

State State::clone() const {
  Occupy occupy(impl_->running);
  auto copy = std::make_unique<Impl>(impl_->code, impl_->context);
  copy->stage = impl_->stage;
  copy->registers = impl_->registers;
  copy->versions = impl_->versions;
  copy->plans = impl_->plans;
  copy->poison = impl_->poison;
  copy->poisoned = impl_->poisoned;
  return State(std::move(copy));
}

void State::restart() {
  Occupy occupy(impl_->running);
  for (Tensor& t : impl_->registers) t = Tensor();
  impl_->stage = 0;
  impl_->poisoned = false;
  impl_->poison.clear();
}

const std::shared_ptr<const Code>& State::code() const { return impl_->code; }
size_t State::next_stage() const { return impl_->stage; }
bool State::poisoned() const { return impl_->poisoned; }

const ir::Type& State::input_type(size_t i) const {
  if (finished()) throw Error("all {} stages have run: there is no next input", impl_->stage);
  if (i >= impl_->code->inputs(impl_->stage))
    throw Error("stage {} takes {} inputs; input {} was asked for", impl_->stage,
                impl_->code->inputs(impl_->stage), i);
  return impl_->code->input_type(impl_->stage, i);
}
const std::string& State::input_name(size_t i) const {
  input_type(i);
  return impl_->code->input_name(impl_->stage, i);
}

size_t State::held_registers() const {
  return static_cast<size_t>(std::count_if(impl_->registers.begin(), impl_->registers.end(),
                                           [](const Tensor& t) { return t.defined(); }));
}

size_t State::held_bytes() const {
  std::unordered_set<const Storage*> seen;
  size_t bytes = 0;
  for (const Tensor& t : impl_->registers)
    if (t.defined() && seen.insert(t.storage().get()).second) bytes += t.storage()->bytes();
  return bytes;
}

std::optional<int64_t> State::dimension(std::string_view name) const {
  if (impl_->stage == 0) return std::nullopt;
  auto index = impl_->code->dimension_index(name);
  return index ? impl_->plans[impl_->stage - 1]->sizes[*index] : std::nullopt;
}

}  // namespace gradus
