#include "interpreter/plan/loop.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "fusion/cost.h"
#include "interpreter/run/body_state.h"
#include "interpreter/run/limits.h"
#include "interpreter/run/walk.h"
#include "interpreter/whole_stage.h"
#include "ops/control_flow.h"

namespace gradus::interpreter {

namespace {

using work::KernelScope;

// Where a value of a step lies: behind one of the pointers that a step has, or in the program.
struct Source {
  size_t place = 0;
  const std::byte* fixed = nullptr;  // the program's: no place
  int64_t offset = 0;                // in bytes
  Layout layout;
};

// A result that no kernel writes where it belongs: what it is a copy of. None: it is absent.
struct Copy {
  size_t result = 0;
  std::optional<Source> from;
};

// A constant that the steps read column by column: a copy that is made once.
struct Turned {
  size_t input = 0;
  Layout given;
  size_t at = 0;  // in the scratch memory
};

struct LoopCode {
  std::shared_ptr<const Code> code;
  // A step's; or nothing, and what a state chooses from that runs the steps: data decide sizes.
  std::shared_ptr<const SegmentPlan> plan;
  KernelChoice kernels;
  int64_t steps = 0;
  bool is_scan = false, reverse = false;
  size_t carries = 0, sequences = 0, inputs = 0, results = 0;
  std::vector<Layout> in;                 // of the loop's operands
  std::vector<Layout> out;                // of a step's results
  std::vector<int64_t> slice_bytes;       // by operand, of a sequence: from slice to slice
  std::vector<size_t> place_of_external;  // by the plan's externals
  std::vector<Copy> copies;
  std::vector<Turned> turned;
  // Places: inputs, results, then tensors that only the step sees. In the scratch memory: pointers
  // of kernels, of places, the step's buffer, second places of carries, those tensors.
  size_t places = 0;
  size_t frame_at = 0, places_at = 0, buffer_at = 0, bytes = 0;
  std::vector<size_t> spare_at;                   // by carry
  std::vector<std::pair<size_t, size_t>> own_at;  // places, and where they lie

  // Of an input, in a step.
  Layout step_layout(size_t i) const;
  void find_sources();
  void lay_out();

 private:
  void note(const Event& e);
  std::unordered_map<Register, Source> sources_;
};

size_t bytes_of(const Layout& l) { return static_cast<size_t>(l.numel()) * size_of(l.dtype); }

size_t rounded(size_t bytes) {
  return static_cast<size_t>(SlotAllocator::rounded(static_cast<int64_t>(bytes)));
}

void LoopCode::note(const Event& e) {
  if (e.kind == Event::Kind::allocate) {
    const bool direct = e.result != UINT32_MAX && e.layout == out[e.result];
    const size_t place = direct ? inputs + e.result : places++;
    if (!direct) own_at.emplace_back(place, bytes_of(e.layout));
    sources_[e.reg] = {place, nullptr, 0, e.layout};
  } else if (e.kind == Event::Kind::view) {
    Source s;
    if (const Tensor& constant = code->constant(e.base); constant.defined())
      s.fixed = constant.data();
    else
      s = sources_.at(e.base);
    s.offset += e.offset * static_cast<int64_t>(size_of(e.layout.dtype));
    s.layout = e.layout;
    sources_[e.reg] = std::move(s);
  } else {
    GRADUS_CHECK(e.kind == Event::Kind::release);
  }
}

// The sizes of a step's value: of a whole sequence or stack, without the first.
Layout slice_of(Layout layout) {
  layout.shape.erase(layout.shape.begin());
  layout.strides.erase(layout.strides.begin());
  return layout;
}

Layout LoopCode::step_layout(size_t i) const {
  if (i < carries) return Layout(in[i].dtype, in[i].shape);
  return i < carries + sequences ? slice_of(in[i]) : in[i];
}

void LoopCode::find_sources() {
  const StageCode& stage = code->stage(0);
  for (size_t i = 0; i < inputs; ++i)
    if (stage.inputs[i] != no_register) sources_[stage.inputs[i]] = {i, nullptr, 0, step_layout(i)};
  for (const Event& e : plan->events) note(e);
  for (Register r : plan->externals) place_of_external.push_back(sources_.at(r).place);
  for (size_t i = 0; i < results; ++i) {
    const Register r = stage.returns[i];
    if (plan->absent_returns[i]) {
      copies.push_back({i, std::nullopt});
    } else if (const Tensor& constant = code->constant(r); constant.defined()) {
      copies.push_back({i, Source{0, constant.data(), 0, constant.layout()}});
    } else if (const Source& s = sources_.at(r); s.place != inputs + i || s.fixed) {
      copies.push_back({i, s});
    }
  }
}

void LoopCode::lay_out() {
  auto take = [&](size_t size) {
    const size_t at = bytes;
    bytes += rounded(size);
    return at;
  };
  frame_at = take(plan ? plan->args.size() * sizeof(std::byte*) : 0);
  places_at = take(places * sizeof(std::byte*));
  buffer_at = take(plan ? static_cast<size_t>(plan->buffer_bytes) : 0);
  for (size_t i = 0; i < carries; ++i)
    spare_at.push_back(take(steps > 1 || !in[i].contiguous() ? bytes_of(out[i]) : 0));
  for (auto& [place, at] : own_at) at = take(at);
  for (Turned& t : turned) t.at = take(bytes_of(t.given));
}

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

// A loop while it runs.
class Run {
 public:
  Run(const LoopCode& loop, std::byte* const* args, KernelScope& scope)
      : l_(loop),
        args_(args),
        scope_(scope),
        frame_(reinterpret_cast<std::byte**>(scope.scratch + loop.frame_at)),
        places_(reinterpret_cast<std::byte**>(scope.scratch + loop.places_at)),
        buffer_(scope.scratch + loop.buffer_at),
        observer_(current_run() ? current_run()->options.observer : nullptr) {
    if (l_.plan || l_.steps == 0) return;
    state_.emplace(l_.code, l_.kernels);
    for (size_t i = 0; i < l_.inputs; ++i) in_.push_back(l_.step_layout(i));
  }

  void run() {
    if (l_.steps == 0) return give_carries(0);
    begin();
    for (int64_t n = 0; n < l_.steps; ++n) {
      check_current_limits();
      const int64_t t = l_.reverse ? l_.steps - 1 - n : n;
      step(n, t, t);
    }
  }

  // Step n, of slice t, after `begin` and the steps before. Errors call it `name`.
  void step(int64_t n, int64_t t, int64_t name) {
    set_places(n, t);
    try {
      run_step(name);
    } catch (const Error& e) {
      throw_at(name, e);
    }
    for (const Copy& c : l_.copies) copy(c);
  }

  // Where step n finds a carry.
  std::byte* carry_before(size_t i, int64_t n) const {
    return n == 0 && l_.in[i].contiguous() ? args_[i] : carry_after(i, n - 1);
  }

  // After so many steps: the carries are where the results lie.
  void give_carries(int64_t steps) const {
    for (size_t i = 0; i < l_.carries; ++i) {
      std::byte* const to = args_[l_.inputs + i];
      if (steps == 0) {
        if (l_.in[i].numel()) copy_first(i, to);
      } else if (const std::byte* from = carry_after(i, steps - 1); from != to) {
        std::memcpy(to, from, bytes_of(l_.out[i]));
      }
    }
  }

  void begin() {
    if (l_.plan) set_pointers();
    for (size_t i = l_.carries + l_.sequences; i < l_.inputs; ++i) places_[i] = args_[i];
    for (const Turned& t : l_.turned) {
      places_[t.input] = scope_.scratch + t.at;
      copy_elements(t.given, args_[t.input], l_.in[t.input], places_[t.input]);
    }
    for (auto [place, at] : l_.own_at) places_[place] = scope_.scratch + at;
    // The first step reads a carry where it lies, if it lies as the others do.
    for (size_t i = 0; i < l_.carries; ++i)
      if (!l_.in[i].contiguous() && l_.in[i].numel()) copy_first(i, carry_after(i, -1));
  }

 private:
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
    const bool in_result = (l_.steps - 1 - n) % 2 == 0;
    return in_result ? args_[l_.inputs + i] : scope_.scratch + l_.spare_at[i];
  }

  void copy_first(size_t i, std::byte* to) const {
    copy_elements(l_.in[i], args_[i], l_.out[i], to);
  }

  void set_places(int64_t n, int64_t t) {
    for (size_t i = 0; i < l_.carries; ++i) {
      places_[i] = carry_before(i, n);
      places_[l_.inputs + i] = carry_after(i, n);
    }
    for (size_t i = l_.carries; i < l_.carries + l_.sequences; ++i)
      places_[i] = args_[i] + t * l_.slice_bytes[i];
    for (size_t r = l_.carries; r < l_.results; ++r)
      places_[l_.inputs + r] = args_[l_.inputs + r] + t * static_cast<int64_t>(bytes_of(l_.out[r]));
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
        plan.whole->code->run(frame_, plan.whole->calls, scope_.workers, buffer_, item);
      } catch (...) {
        at_ = plan.whole->instructions[item];
        throw;
      }
      return;
    }
    for (const Step& s : plan.steps) {
      at_ = s.instruction;
      run_kernel(s);
    }
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
    KernelScope scope{scope_.workers, buffer_ + s.scratch};
    s.run(s.parameters, frame_ + s.args, scope);
  }

  void copy(const Copy& c) const {
    const Layout& to = l_.out[c.result];
    std::byte* const target = places_[l_.inputs + c.result];
    if (to.numel() == 0) return;
    if (!c.from) {
      std::memset(target, 0, bytes_of(to));
      return;
    }
    const std::byte* base = c.from->fixed ? c.from->fixed : places_[c.from->place];
    copy_elements(c.from->layout, base + c.from->offset, to, target);
  }

  [[noreturn]] void throw_at(int64_t name, const Error& e) const {
    if (e.where().known()) throw;
    const ir::Graph& graph = l_.code->graph();
    throw graph.error_at(l_.code->stage(0).instructions[at_].where,
                         fmt::format("step {} of '{}': {}", name, graph.name, e.bare()));
  }

  const LoopCode& l_;
  std::byte* const* const args_;
  KernelScope& scope_;
  std::byte** const frame_;
  std::byte** const places_;
  std::byte* const buffer_;
  InstructionObserver* const observer_;  // null where nobody watches
  uint32_t at_ = 0;                      // the instruction that runs
  // Where data decide sizes in a step.
  std::optional<BodyState> state_;
  std::vector<Layout> in_;  // what it takes
};

// The condition takes the carries and constants where they lie.
struct DataLoopCode {
  LoopCode condition, body;
  std::optional<int64_t> max_trips;
  std::optional<std::string> failure;
  size_t condition_at = 0, args_at = 0, holds_at = 0, bytes = 0;  // in the scratch memory
};

void run_data_loop(const DataLoopCode& loop, std::byte* const* args, KernelScope& scope) {
  const LoopCode& body = loop.body;
  auto** const given = reinterpret_cast<std::byte**>(scope.scratch + loop.args_at);
  std::byte* const holds = scope.scratch + loop.holds_at;
  std::copy(args, args + body.inputs, given);
  given[body.inputs] = holds;
  KernelScope behind{scope.workers, scope.scratch + loop.condition_at};
  Run condition(loop.condition, given, behind), steps(body, args, scope);
  steps.begin();
  int64_t n = 0;
  for (;; ++n) {
    check_current_limits();
    for (size_t i = 0; i < body.carries; ++i) given[i] = steps.carry_before(i, n);
    condition.begin();
    condition.step(0, 0, n);
    if (*holds == std::byte{0}) break;
    if (n == loop.max_trips) ops::fail_after_most_trips(n, loop.failure);
    steps.step(n, n, n);
  }
  steps.give_carries(n);
}

void run_loop(const LoopCode& loop, std::byte* const* args, KernelScope& scope) {
  Run(loop, args, scope).run();
}

// A tensor that lies so, without memory.
Tensor stand_in(Layout layout) {
  alignas(64) static std::byte place[64];
  const auto bytes = static_cast<size_t>(layout.extent()) * size_of(layout.dtype);
  return Tensor(make_ref<Storage>(place, bytes, Device(), [] {}), std::move(layout));
}

// The kernels that a body may have: those of the stage that the loop stands in, on the host.
KernelChoice body_choice(const KernelChoice& stage) {
  KernelChoice choice = stage.bodies ? *stage.bodies : stage;
  if (choice.traits().host_memory) return choice;
  choice.backend = devices::cpu();
  choice.mode = FusionMode::off;
  choice.source = nullptr;
  choice.set = nullptr;
  return choice;
}

// The loop's plan is made anew when code is there that its body waits for.
void note_missing(SegmentPlan& plan, const SegmentPlan& body) {
  for (const auto& nest : body.missing)
    if (std::ranges::none_of(plan.missing, [&](const auto& m) { return m.second == nest.second; }))
      plan.missing.push_back(nest);
  plan.awaits_bodies |= body.awaits_bodies || body.may_be_whole;
  plan.runs_states |= body.runs_states;
}

// What a loop takes and how often, without its body's plan.
LoopCode form_of(const Draft& d, const Instruction& i, std::span<const Layout> in) {
  LoopCode loop;
  loop.steps = 1;
  if (const auto data = ops::data_loop_in(*i.op, i.attributes)) {
    loop.carries = data->carries;
    loop.steps = 2;  // some
  } else if (const auto parts = ops::loop_in(*i.op, i.attributes, in.size())) {
    loop.is_scan = true;
    loop.reverse = parts->form->reverse;
    loop.carries = parts->carries;
    loop.sequences = parts->sequences;
    loop.steps =
        parts->form->length ? parts->form->length->evaluate(d.sizes) : in[loop.carries].shape[0];
    if (loop.steps < 0)
      throw Error("{}: its length {} is {}, which is negative", i.op->name,
                  parts->form->length->to_string(), loop.steps);
  }
  return loop;
}

// Stand-ins for what a step takes.
std::vector<Tensor> step_inputs(const LoopCode& loop) {
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < loop.in.size(); ++k) inputs.push_back(stand_in(loop.step_layout(k)));
  return inputs;
}

std::shared_ptr<const SegmentPlan> plan_of_step(const LoopCode& loop,
                                                std::span<const Tensor> inputs,
                                                const KernelChoice& choice) {
  std::vector<int64_t> key;
  for (const Tensor& t : inputs) append_input_key(t, key);
  return find_or_make_plan(*loop.code, 0, nullptr, inputs, key, choice);
}

// Large matrices that could lie column by column for all steps. Where products would pack them anew
// in each step otherwise, a step then needs less memory.
std::vector<Turned> turned_constants(const LoopCode& loop) {
  constexpr int64_t least_steps = 8, least_size = 16, least_elements = 64 * 64;
  std::vector<Turned> turned;
  if (loop.steps < least_steps) return turned;
  for (size_t i = loop.carries + loop.sequences; i < loop.in.size(); ++i)
    if (const Layout& l = loop.in[i]; l.rank() == 2 && l.contiguous() &&
                                      l.numel() >= least_elements &&
                                      std::min(l.shape[0], l.shape[1]) >= least_size)
      turned.push_back({i, l, 0});
  return turned;
}

// The form's code. `out` are the loop's results.
LoopCode make_loop(Draft& d, LoopCode loop, std::shared_ptr<const Code> body,
                   std::span<const Layout> in, std::span<const Layout> out) {
  loop.code = std::move(body);
  loop.inputs = in.size();
  loop.results = out.size();
  loop.in.assign(in.begin(), in.end());
  loop.slice_bytes.resize(in.size());
  for (size_t k = loop.carries; k < loop.carries + loop.sequences; ++k)
    loop.slice_bytes[k] = in[k].strides[0] * static_cast<int64_t>(size_of(in[k].dtype));
  for (size_t r = 0; r < out.size(); ++r) {
    const Layout layout(out[r].dtype, out[r].shape);
    loop.out.push_back(loop.is_scan && r >= loop.carries ? slice_of(layout) : layout);
  }
  loop.places = loop.inputs + loop.results;
  const KernelChoice choice = body_choice(d.choice);
  if (loop.code->segments() > 1) {
    loop.kernels = choice;
    loop.kernels.dump = nullptr;  // the plan outlives the state that it is made for
    d.plan->runs_states = true;
    loop.lay_out();
    return loop;
  }
  std::vector<Tensor> inputs = step_inputs(loop);
  loop.plan = plan_of_step(loop, inputs, choice);
  if (std::vector<Turned> turned = turned_constants(loop); !turned.empty()) {
    LoopCode other = loop;
    for (const Turned& t : turned) other.in[t.input].strides = {1, t.given.shape[0]};
    std::vector<Tensor> other_inputs = step_inputs(other);
    other.plan = plan_of_step(other, other_inputs, choice);
    int64_t least = INT64_MAX;
    for (const Turned& t : turned) least = std::min(least, static_cast<int64_t>(bytes_of(t.given)));
    if (other.plan->buffer_bytes + least <= loop.plan->buffer_bytes) {
      loop = std::move(other);
      inputs = std::move(other_inputs);
      loop.turned = std::move(turned);
    }
  }
  if (loop.plan->may_be_whole &&
      loop.plan->runs.exchange(fusion::runs_before_stage) < fusion::runs_before_stage)
    request_whole(*loop.code, *loop.plan, inputs, choice);
  note_missing(*d.plan, *loop.plan);
  loop.find_sources();
  loop.lay_out();
  return loop;
}

// A step of its own: the carries are where and as they lie in the body's steps.
LoopCode make_condition(Draft& d, std::shared_ptr<const Code> graph, std::span<const Layout> in,
                        size_t carries) {
  std::vector<Layout> given(in.begin(), in.end());
  for (size_t i = 0; i < carries; ++i) given[i] = Layout(in[i].dtype, in[i].shape);
  LoopCode once;
  once.steps = 1;
  return make_loop(d, std::move(once), std::move(graph), given,
                   std::array{Layout(DType::boolean, Sizes())});
}

std::optional<int64_t> most_trips(const Draft& d, const ops::DataLoop& loop) {
  if (!*loop.max_trips) return std::nullopt;
  const int64_t most = (*loop.max_trips)->evaluate(d.sizes);
  if (most < 0)
    throw Error("while: its max_trips {} is {}, which is negative", (*loop.max_trips)->to_string(),
                most);
  return most;
}

struct BranchCode {
  LoopCode then, otherwise;
};
void run_branch(const BranchCode& branch, std::byte* const* args, KernelScope& scope) {
  run_loop(*args[0] != std::byte{0} ? branch.then : branch.otherwise, args + 1, scope);
}

}  // namespace

work::WorkRef loop_work(Draft& d, const Instruction& i, std::span<const Layout> in,
                        std::span<const Layout> out) {
  LoopCode form = form_of(d, i, in);
  if (i.bodies.size() == 1) {
    LoopCode loop = make_loop(d, std::move(form), i.bodies[0], in, out);
    const size_t bytes = loop.bytes;
    return work::share(work::foreign(work::Kernel::of<run_loop>(std::move(loop), bytes)));
  }
  if (const auto data = ops::data_loop_in(*i.op, i.attributes)) {
    DataLoopCode loop{make_condition(d, i.bodies[0], in, form.carries),
                      make_loop(d, form, i.bodies[1], in, out), most_trips(d, *data),
                      *data->failure};
    loop.condition_at = loop.body.bytes;
    loop.args_at = loop.condition_at + loop.condition.bytes;
    loop.holds_at = loop.args_at + rounded((in.size() + 1) * sizeof(std::byte*));
    loop.bytes = loop.holds_at + rounded(1);
    const size_t bytes = loop.bytes;
    return work::share(work::foreign(work::Kernel::of<run_data_loop>(std::move(loop), bytes)));
  }
  BranchCode branch{make_loop(d, form, i.bodies[0], in.subspan(1), out),
                    make_loop(d, form, i.bodies[1], in.subspan(1), out)};
  const size_t bytes = std::max(branch.then.bytes, branch.otherwise.bytes);
  return work::share(work::foreign(work::Kernel::of<run_branch>(std::move(branch), bytes)));
}

}  // namespace gradus::interpreter
