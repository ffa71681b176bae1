#include "interpreter/plan/loop.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "fusion/cost.h"
#include "interpreter/run/loop.h"
#include "interpreter/whole_stage.h"
#include "ops/control_flow.h"

namespace gradus::interpreter {

namespace {

using Source = LoopCode::Source;
using Copy = LoopCode::Copy;
using Turned = LoopCode::Turned;

size_t rounded(size_t bytes) {
  return static_cast<size_t>(SlotAllocator::rounded(static_cast<int64_t>(bytes)));
}

// Where a step of a loop finds what its kernels read, and leaves what they write.
class StepPlacer {
 public:
  explicit StepPlacer(LoopCode& loop) : l(loop), stage_(loop.code->stage(0)) {}
  void find_sources();
  void find_in_place();
  void lay_out();

 private:
  void note(const Event& e);
  bool is_made_in_place(size_t carry) const;
  std::optional<uint32_t> only_pointer_to(size_t place) const;
  std::optional<uint32_t> first_pointer_to(size_t place) const;

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

// A sum of 256 KiB that each step adds to is then one block of memory, not two in turns.
void StepPlacer::find_in_place() {
  l.in_place.assign(l.carries, false);
  if (l.steps > 1)
    for (size_t i = 0; i < l.carries; ++i) l.in_place[i] = is_made_in_place(i);
}

// Do the step's kernels read the carry only where one of them writes its next value, each element
// before it is written?
bool StepPlacer::is_made_in_place(size_t carry) const {
  const size_t result = l.inputs + carry;
  if (std::ranges::any_of(l.copies, [&](const Copy& c) {
        return c.result == carry || (c.from && !c.from->fixed && c.from->place == carry);
      }))
    return false;
  const std::optional<uint32_t> read = only_pointer_to(carry), written = first_pointer_to(result);
  if (!read || !written) return false;
  for (const Step& s : l.plan->steps) {
    if (!s.run || s.group == UINT32_MAX) continue;
    const auto* loops = std::get_if<work::Loops>(s.work);
    if (!loops || loops->nest.reduces() || loops->nest.has_edges()) continue;
    const size_t loads = loops->nest.loads.size();
    if (*read < s.args || *read >= s.args + loads || *written < s.args + loads ||
        *written >= s.args + loads + loops->nest.stores.size())
      continue;
    return loops->frame.strides[*read - s.args] == contiguous_strides(loops->frame.sizes) &&
           loops->nest.loads[*read - s.args].dtype == l.out[carry].dtype;
  }
  return false;
}

// Of a place that one pointer of one kernel begins with.
std::optional<uint32_t> StepPlacer::only_pointer_to(size_t place) const {
  std::optional<uint32_t> only;
  const SegmentPlan& plan = *l.plan;
  for (size_t e = 0; e < l.place_of_external.size(); ++e) {
    if (l.place_of_external[e] != place) continue;
    for (uint32_t p = plan.patch_begin[e]; p < plan.patch_begin[e + 1]; ++p) {
      if (only || plan.patches[p].offset != 0) return std::nullopt;
      only = plan.patches[p].arg;
    }
  }
  return only;
}

// Pointers are in the order of the steps: what makes a value comes before what reads it.
std::optional<uint32_t> StepPlacer::first_pointer_to(size_t place) const {
  std::optional<uint32_t> first;
  const SegmentPlan& plan = *l.plan;
  for (size_t e = 0; e < l.place_of_external.size(); ++e) {
    if (l.place_of_external[e] != place) continue;
    for (uint32_t p = plan.patch_begin[e]; p < plan.patch_begin[e + 1]; ++p)
      first = std::min(first.value_or(UINT32_MAX), plan.patches[p].arg);
  }
  return first;
}

void StepPlacer::lay_out() {
  auto take = [&](size_t size) {
    const size_t at = l.bytes;
    l.bytes += rounded(size);
    return at;
  };
  l.frame_at = take(l.plan ? l.plan->args.size() * sizeof(std::byte*) : 0);
  l.places_at = take(l.places * sizeof(std::byte*));
  l.buffer_at = take(l.plan ? static_cast<size_t>(l.plan->buffer_bytes) : 0);
  for (size_t i = 0; i < l.carries; ++i) {
    const bool two = !l.is_in_place(i) && (l.steps > 1 || !l.in[i].contiguous());
    l.spare_at.push_back(take(two ? bytes_of_elements(l.out[i]) : 0));
  }
  for (auto& [place, at] : l.own_at) at = take(at);
  for (Turned& t : l.turned) t.at = take(bytes_of_elements(t.given));
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
    StepPlacer(loop).lay_out();
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
    for (const Turned& t : turned)
      least = std::min(least, static_cast<int64_t>(bytes_of_elements(t.given)));
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
  StepPlacer placer(loop);
  placer.find_sources();
  placer.find_in_place();
  placer.lay_out();
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
