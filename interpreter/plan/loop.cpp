#include "interpreter/plan/loop.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "fusion/cost.h"
#include "interpreter/plan/loop_chunks.h"
#include "interpreter/plan/loop_sums.h"
#include "interpreter/run/loop.h"
#include "interpreter/whole_stage.h"
#include "ops/control_flow.h"

namespace gradus::interpreter {

namespace {

using Chunk = LoopCode::Chunk;
using Source = LoopCode::Source;
using Copy = LoopCode::Copy;
using Gathered = LoopCode::Gathered;
using Turned = LoopCode::Turned;

size_t rounded(size_t bytes) {
  return static_cast<size_t>(SlotAllocator::rounded(static_cast<int64_t>(bytes)));
}

// Where a step of a loop finds what its kernels read, and leaves what they write.
class StepPlacer {
 public:
  explicit StepPlacer(LoopCode& loop) : l(loop), stage_(loop.code->stage(0)) {}
  void find_sources();
  void lay_out();
  // False where the backend has no code for one.
  bool find_transfers(devices::Backend& backend);
  // The program's own values that results are copies of, where the steps run.
  std::vector<Ref<Storage>> send_constants();

 private:
  void note(const Event& e);

  LoopCode& l;
  const StageCode& stage_;
  std::unordered_map<Register, Source> sources_;
};

void StepPlacer::note(const Event& e) {
  if (e.kind == Event::Kind::allocate) {
    const bool direct = e.result != UINT32_MAX && e.layout == l.out[e.result];
    const size_t place = direct ? l.inputs + e.result : l.places++;
    if (!direct) l.own_at.emplace_back(place, bytes_of_elements(e.layout));
    sources_[e.reg] = {place, nullptr, 0, e.layout};
  } else if (e.kind == Event::Kind::view) {
    Source s;
    if (const Tensor& constant = l.code->constant(e.base); constant.defined())
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

void StepPlacer::find_sources() {
  for (size_t i = 0; i < l.inputs; ++i)
    if (stage_.inputs[i] != no_register)
      sources_[stage_.inputs[i]] = {i, nullptr, 0, l.step_layout(i)};
  for (const Event& e : l.plan->events) note(e);
  for (Register r : l.plan->externals) l.place_of_external.push_back(sources_.at(r).place);
  for (size_t i = 0; i < l.results; ++i) {
    const Register r = stage_.returns[i];
    if (l.plan->absent_returns[i]) {
      l.copies.push_back({i, std::nullopt});
    } else if (const Tensor& constant = l.code->constant(r); constant.defined()) {
      l.copies.push_back({i, Source{0, constant.data(), 0, constant.layout()}});
    } else if (const Source& s = sources_.at(r); s.place != l.inputs + i || s.fixed) {
      l.copies.push_back({i, s});
    }
  }
}

bool StepPlacer::find_transfers(devices::Backend& backend) {
  auto add = [&](std::vector<LoopCode::Transfer>& to, std::optional<LoopCode::Transfer>&& t) {
    if (t) to.push_back(std::move(*t));
    return t.has_value();
  };
  for (size_t i = 0; i < l.carries; ++i)
    if (!add(l.first, transfer(backend, l.in[i], l.out[i])) ||
        (!l.is_scan && !add(l.last, transfer(backend, l.out[i], l.out[i]))))
      return false;
  for (Copy& c : l.copies) {
    const Layout& to = l.out[c.result];
    work::Move zeros;
    if (!c.from) zeros.fill(to.shape, {}, {1, to.dtype, to.strides, 0});
    auto made =
        c.from ? transfer(backend, c.from->layout, to) : transfer(backend, std::move(zeros));
    if (!made) return false;
    c.transfer = std::move(*made);
  }
  return true;
}

std::vector<Ref<Storage>> StepPlacer::send_constants() {
  std::vector<Ref<Storage>> sent;
  for (Copy& c : l.copies) {
    if (!c.from || !c.from->fixed) continue;
    const size_t bytes =
        static_cast<size_t>(c.from->layout.extent()) * size_of(c.from->layout.dtype);
    sent.push_back(devices::device_storage(l.device, bytes));
    if (bytes) l.device->to_device(sent.back()->data(), c.from->fixed + c.from->offset, bytes);
    c.from->fixed = sent.back()->data();
    c.from->offset = 0;
  }
  return sent;
}

void StepPlacer::lay_out() {
  auto take = [&](size_t size) {
    const size_t at = l.bytes;
    l.bytes += rounded(size);
    return at;
  };
  l.frame_at = take(l.plan && !l.device ? l.plan->args.size() * sizeof(std::byte*) : 0);
  l.places_at = take(l.device ? 0 : l.places * sizeof(std::byte*));
  l.buffer_at = take(l.plan ? static_cast<size_t>(l.plan->buffer_bytes) : 0);
  for (size_t i = 0; i < l.carries; ++i) {
    const bool two = !l.is_in_place(i) && (l.steps > 1 || !l.in[i].contiguous());
    l.spare_at.push_back(take(two ? bytes_of_elements(l.out[i]) : 0));
  }
  if (l.rounds > 1)
    l.moves_at = take(l.plan->args.size() * (sizeof(fusion::PointerMove) + 2 * sizeof(std::byte*)));
  for (auto& [place, at] : l.own_at) at = take(at);
  constexpr auto held_steps = static_cast<size_t>(LoopCode::Deferred::most_steps);
  for (LoopCode::Deferred& d : l.deferred) {
    d.at = take(held_steps * d.pointers.size() * sizeof(std::byte*));
    for (LoopCode::Deferred::Pointer& p : d.pointers)
      if (p.copied) p.at = take(held_steps * p.copied);
  }
  for (Turned& t : l.turned) t.at = take(bytes_of_elements(t.given));
  for (Gathered& g : l.gathered) g.at = take(bytes_of_elements(l.step_layout(g.input)));
  if (l.chunk)
    for (auto* all : {&l.chunk->read, &l.chunk->written})
      for (Chunk::Staged& s : *all) s.at = take(static_cast<size_t>(l.chunk->steps * s.bytes));
}

// A tensor that lies so, without memory.
Tensor stand_in(Layout layout, Device device) {
  alignas(64) static std::byte place[64];
  const auto bytes = static_cast<size_t>(layout.extent()) * size_of(layout.dtype);
  return Tensor(make_ref<Storage>(place, bytes, device, [] {}), std::move(layout));
}

// The kernels that a body may have where the stage runs: those of the stage that the loop is in.
const KernelChoice& body_choice(const KernelChoice& stage) {
  return stage.bodies ? *stage.bodies : stage;
}

// And on the host.
KernelChoice host_choice(const KernelChoice& stage) {
  KernelChoice choice = body_choice(stage);
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
  plan.later.insert(plan.later.end(), body.later.begin(), body.later.end());
  plan.sent.insert(plan.sent.end(), body.sent.begin(), body.sent.end());
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
  for (size_t k = 0; k < loop.in.size(); ++k)
    inputs.push_back(stand_in(loop.step_layout(k), loop.device ? loop.device->device() : Device()));
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

// Small steps without carries, and work enough for several threads. Large steps are split by their
// own kernels. The user's functions run on the thread that runs the stage.
bool are_steps_worth_splitting(const LoopCode& loop) {
  constexpr size_t most_bytes = 256 << 10;
  constexpr int64_t least_elements = 1 << 16;
  if (!loop.is_scan || loop.carries > 0 || loop.steps < 2 || loop.bytes > most_bytes) return false;
  if (loop.code->calls_functions()) return false;
  int64_t elements = 0;  // that a step reads and writes
  for (size_t i = 0; i < loop.inputs; ++i) elements += loop.step_layout(i).numel();
  for (const Layout& l : loop.out) elements += l.numel();
  return elements >= (least_elements + loop.steps - 1) / loop.steps;
}

// So many steps that deadlines and cancellation, which are looked at in between, are met soon.
int64_t rounds_between_checks(const SegmentPlan::Whole& step) {
  constexpr double nanoseconds = 50'000;
  constexpr int64_t most = 1024;
  return std::clamp(static_cast<int64_t>(nanoseconds / std::max(step.nanoseconds, 1.0)), int64_t{1},
                    most);
}

// Makes loops and branches of one instruction, for the kernels of a choice.
class LoopMaker {
 public:
  LoopMaker(Draft& draft, const KernelChoice& choice) : d(draft), choice_(choice) {}
  // Nothing where the backend lacks code.
  std::optional<work::Kernel> make(const Instruction& i, std::span<const Layout> in,
                                   std::span<const Layout> out);
  // Whether some instruction of a step of what was made runs on the host.
  bool asks_host() const { return asks_host_; }
  std::optional<size_t> launches() const { return launches_; }

 private:
  // The form's code. `out` are the loop's results.
  LoopCode make_loop(LoopCode loop, std::shared_ptr<const Code> body, std::span<const Layout> in,
                     std::span<const Layout> out);
  LoopCode make_condition(std::shared_ptr<const Code> graph, std::span<const Layout> in,
                          size_t carries);
  void turn_constants(LoopCode& loop, std::vector<Tensor>& inputs) const;
  void gather_slices(LoopCode& loop) const;

  Draft& d;
  const KernelChoice& choice_;
  bool lacks_code_ = false, asks_host_ = false;
  std::optional<size_t> launches_;
};

LoopCode LoopMaker::make_loop(LoopCode loop, std::shared_ptr<const Code> body,
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
  if (!choice_.traits().host_memory) loop.device = choice_.backend;
  StepPlacer placer(loop);
  if (loop.code->segments() > 1) {
    loop.kernels = choice_;
    // The plan outlives the state that it is made for.
    loop.kernels.dump = nullptr;
    loop.kernels.context = nullptr;
    d.plan->runs_states = true;
  } else {
    std::vector<Tensor> inputs = step_inputs(loop);
    loop.plan = plan_of_step(loop, inputs, choice_);
    loop.device ? gather_slices(loop) : turn_constants(loop, inputs);
    if (loop.plan->may_be_whole &&
        loop.plan->runs.exchange(fusion::runs_before_stage) < fusion::runs_before_stage)
      request_whole(*loop.code, *loop.plan, inputs, choice_);
    note_missing(*d.plan, *loop.plan);
    asks_host_ |= interpreter::asks_host(*loop.plan);
    placer.find_sources();
    if (!loop.device) {
      find_in_place(loop);
      find_deferred(loop, choice_, *d.plan);
    }
    if (loop.is_scan && loop.plan->whole && loop.copies.empty())
      loop.rounds = rounds_between_checks(*loop.plan->whole);
  }
  lacks_code_ |= !placer.find_transfers(*choice_.backend);
  if (loop.device)
    for (Ref<Storage>& memory : placer.send_constants()) d.plan->sent.push_back(std::move(memory));
  loop.chunk = chunk_of(loop);
  placer.lay_out();
  loop.apart = !loop.device && are_steps_worth_splitting(loop);
  return loop;
}

void LoopMaker::turn_constants(LoopCode& loop, std::vector<Tensor>& inputs) const {
  std::vector<Turned> turned = turned_constants(loop);
  if (turned.empty()) return;
  LoopCode other = loop;
  for (const Turned& t : turned) other.in[t.input].strides = {1, t.given.shape[0]};
  std::vector<Tensor> other_inputs = step_inputs(other);
  other.plan = plan_of_step(other, other_inputs, choice_);
  int64_t least = INT64_MAX;
  for (const Turned& t : turned)
    least = std::min(least, static_cast<int64_t>(bytes_of_elements(t.given)));
  if (other.plan->buffer_bytes + least > loop.plan->buffer_bytes) return;
  loop = std::move(other);
  inputs = std::move(other_inputs);
  loop.turned = std::move(turned);
}

// Slices with gaps are copied, if a long loop has chunks then.
void LoopMaker::gather_slices(LoopCode& loop) const {
  if (!is_long(loop)) return;
  LoopCode other = loop;
  for (size_t i = loop.carries; i < loop.carries + loop.sequences; ++i) {
    if (!lies_with_gaps(loop, i)) continue;
    const Layout slice = slice_of(loop.in[i]);
    auto made = transfer(*loop.device, slice, Layout(slice.dtype, slice.shape));
    if (!made) return;
    other.gathered.push_back({i, std::move(*made), 0});
  }
  if (other.gathered.empty()) return;
  other.plan = plan_of_step(other, step_inputs(other), choice_);
  if (chunk_of(other)) loop = std::move(other);
}

// A step of its own: the carries are where and as they lie in the body's steps.
LoopCode LoopMaker::make_condition(std::shared_ptr<const Code> graph, std::span<const Layout> in,
                                   size_t carries) {
  std::vector<Layout> given(in.begin(), in.end());
  for (size_t i = 0; i < carries; ++i) given[i] = Layout(in[i].dtype, in[i].shape);
  LoopCode once;
  once.steps = 1;
  return make_loop(std::move(once), std::move(graph), given,
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

std::optional<work::Kernel> LoopMaker::make(const Instruction& i, std::span<const Layout> in,
                                            std::span<const Layout> out) {
  LoopCode form = form_of(d, i, in);
  work::Kernel made;
  if (i.bodies.size() == 1) {
    LoopCode loop = make_loop(std::move(form), i.bodies[0], in, out);
    launches_ = launches_of(loop);
    const size_t bytes = loop.scratch_bytes();
    made = work::Kernel::of<run_loop>(std::move(loop), bytes);
  } else if (const auto data = ops::data_loop_in(*i.op, i.attributes)) {
    DataLoopCode loop{make_condition(i.bodies[0], in, form.carries),
                      make_loop(form, i.bodies[1], in, out), most_trips(d, *data), *data->failure};
    loop.condition_at = loop.body.bytes;
    loop.args_at = loop.condition_at + loop.condition.bytes;
    loop.holds_at = loop.args_at + rounded((in.size() + 1) * sizeof(std::byte*));
    const size_t bytes = loop.holds_at + rounded(1);
    made = work::Kernel::of<run_data_loop>(std::move(loop), bytes);
  } else {
    BranchCode branch{make_loop(form, i.bodies[0], in.subspan(1), out),
                      make_loop(form, i.bodies[1], in.subspan(1), out)};
    const size_t bytes = std::max(branch.then.bytes, branch.otherwise.bytes);
    made = work::Kernel::of<run_branch>(std::move(branch), bytes);
  }
  if (lacks_code_) return std::nullopt;
  return made;
}

}  // namespace

LoopWork loop_work(Draft& d, const Instruction& i, std::span<const Layout> in,
                   std::span<const Layout> out) {
  const KernelChoice& choice = body_choice(d.choice);
  const bool sizes_are_known =
      std::ranges::all_of(i.bodies, [](const auto& body) { return body->segments() == 1; });
  if (!choice.traits().host_memory && sizes_are_known) {
    LoopMaker maker(d, choice);
    if (auto there = maker.make(i, in, out))
      return {work::share(work::foreign(*there)), *there, maker.asks_host(), maker.launches()};
  }
  const KernelChoice here = host_choice(d.choice);
  return {work::share(work::foreign(*LoopMaker(d, here).make(i, in, out)))};
}

}  // namespace gradus::interpreter
