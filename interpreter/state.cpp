#include "gradus/state.h"

#include <algorithm>
#include <unordered_set>

#include "gradus/read_watch.h"
#include "interpreter/run/limits.h"
#include "interpreter/run/steps.h"

namespace gradus {

namespace {

interpreter::KernelChoice choose(FusionMode mode, Context& context) {
  interpreter::KernelChoice choice;
  choice.context = &context;
  if (mode == FusionMode::off) return choice;
  choice.mode = mode;
  choice.source = fusion::kernels_of(context);
  choice.backend = choice.source->backend();
  if (mode == FusionMode::behind) choice.set = choice.source->ready();
  return choice;
}

}  // namespace

struct State::Impl : interpreter::StateData {
  using StateData::StateData;
  std::atomic<bool> running{false};
};

// One run at a time: a second thread, or a run from inside the run, is refused.
class State::Occupy {
 public:
  explicit Occupy(std::atomic<bool>& running) : running_(running) {
    if (running_.exchange(true, std::memory_order_acquire))
      throw Error(
          "this state is running already, on another thread or further up this one; "
          "use a clone");
  }
  ~Occupy() { running_.store(false, std::memory_order_release); }
  Occupy(const Occupy&) = delete;

 private:
  std::atomic<bool>& running_;
};

State::State(std::shared_ptr<const Code> code, std::shared_ptr<Context> context,
             const StateOptions& options) {
  auto kernels = choose(options.fusion, *context);
  kernels.dump = options.dump_plans;
  impl_ = std::make_unique<Impl>(
      interpreter::Snapshot(std::move(code), {std::move(context), std::move(kernels)}));
}
State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

std::vector<Tensor> State::run(std::span<const Tensor> inputs, const RunOptions& options) {
  Occupy occupy(impl_->running);
  std::vector<Tensor> results(finished() ? 0 : impl_->code->stage(impl_->stage).returns.size());
  run_stage(*impl_, inputs, results, options);
  return results;
}

void State::run_into(std::span<const Tensor> inputs, std::span<Tensor> results,
                     const RunOptions& options) {
  Occupy occupy(impl_->running);
  run_stage(*impl_, inputs, results, options);
}

State State::clone() const {
  Occupy occupy(impl_->running);
  auto copy = std::make_unique<Impl>(interpreter::Snapshot(*impl_));
  copy->left = impl_->left.without_memory();
  return State(std::move(copy));
}

std::vector<StageMemory> State::prepare(const DimSizes& sizes) {
  Occupy occupy(impl_->running);
  return interpreter::prepare(*impl_, sizes);
}

void State::restart() {
  Occupy occupy(impl_->running);
  impl_->restart();
}

void State::save(const std::string& path) const {
  Occupy occupy(impl_->running);
  interpreter::save(*impl_, path);
}

State State::resume(std::shared_ptr<const Code> code, const std::string& path,
                    std::shared_ptr<Context> context, const StateOptions& options) {
  State state(std::move(code), std::move(context), options);
  interpreter::resume(*state.impl_, path);
  return state;
}

struct BoundRun::Impl {
  State state;
  std::vector<Tensor> inputs, results;
  bool by_kernels = false;  // the next run
};

BoundRun::BoundRun(State state, std::vector<Tensor> inputs, std::vector<Tensor> results)
    : impl_(new Impl{std::move(state), std::move(inputs), std::move(results)}) {
  const Code& code = *impl_->state.code();
  if (code.stages() != 1)
    throw Error("a bound run takes a program of one stage; '{}' has {}", code.graph().name,
                code.stages());
  if (impl_->state.next_stage() != 0)
    throw Error("a bound run takes a state that has not run; restart it");
  std::vector<Tensor>& bound = impl_->results;
  if (bound.empty()) bound.resize(code.stage(0).returns.size());
  const std::vector<Tensor> given = bound;
  run();
  // What a run makes may be a view, or shared with an input.
  bool moved = false;
  for (size_t i = 0; i < bound.size(); ++i)
    if (Tensor& t = bound[i]; t.defined() && !given[i].defined()) {
      t = Tensor::empty(t.dtype(), t.shape(), *impl_->state.impl_->place.context);
      moved = true;
    }
  if (!moved) return;
  impl_->by_kernels = false;
  run();
}
BoundRun::BoundRun(BoundRun&&) noexcept = default;
BoundRun& BoundRun::operator=(BoundRun&&) noexcept = default;
BoundRun::~BoundRun() = default;

void BoundRun::run() {
  State::Impl& s = *impl_->state.impl_;
  State::Occupy occupy(s.running);
  // Who watches is told by a run with all its parts.
  const bool watched = ReadWatch::current() || interpreter::current_run();
  if (std::exchange(impl_->by_kernels, false) && !watched) {
    run_kernels(s, impl_->results);
    impl_->by_kernels = true;
    return;
  }
  s.restart();
  run_stage(s, impl_->inputs, impl_->results, {});
  impl_->by_kernels = runs_by_kernels(s, impl_->results);
}

std::span<const Tensor> BoundRun::inputs() const { return impl_->inputs; }
std::span<const Tensor> BoundRun::results() const { return impl_->results; }

const std::shared_ptr<const Code>& State::code() const { return impl_->code; }
size_t State::next_stage() const { return impl_->stage; }
bool State::poisoned() const { return impl_->poisoned; }
const std::string& State::fault() const { return impl_->poison; }

const ir::Type& State::input_type(size_t i) const {
  if (finished()) throw Error("all stages have run: there is no next input");
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
  size_t carried = 0;
  size_t next = impl_->stage < impl_->code->stages()
                    ? impl_->code->stage(impl_->stage).first_segment
                    : impl_->code->segments();
  for (size_t s = 0; s < next; ++s)
    if (impl_->blocks[s])
      for (const auto& [r, held] : impl_->plans[s]->held)
        carried += held.carried && impl_->code->last_segment(r) >= next;
  return carried +
         static_cast<size_t>(std::count_if(impl_->registers.begin(), impl_->registers.end(),
                                           [](const Tensor& t) { return t.defined(); }) +
                             std::count_if(impl_->handles.begin(), impl_->handles.end(),
                                           [](const auto& h) { return static_cast<bool>(h); }));
}

size_t State::held_bytes() const {
  std::unordered_set<const Storage*> seen;
  size_t bytes = 0;
  for (const Tensor& t : impl_->registers)
    if (t.defined() && seen.insert(t.storage().get()).second) bytes += t.storage()->bytes();
  for (const auto& block : impl_->blocks)
    if (block) bytes += block->bytes();
  return bytes;
}

std::optional<int64_t> State::dimension(std::string_view name) const {
  if (impl_->stage == 0) return std::nullopt;
  const StageCode& before = impl_->code->stage(impl_->stage - 1);
  size_t last = before.first_segment + before.segments - 1;
  auto index = impl_->code->dimension_index(name);
  return index ? impl_->plans[last]->sizes[*index] : std::nullopt;
}

std::vector<FusedGroup> State::groups() const {
  std::vector<FusedGroup> groups;
  for (const auto& plan : impl_->plans) {
    if (!plan) continue;
    const size_t stage = impl_->code->segment(plan->segment).stage;
    for (const auto& g : plan->groups) {
      FusedGroup group{stage, g.instructions, {}, g.nest()};
      for (uint32_t n : g.instructions)
        group.places.push_back(impl_->code->stage(stage).instructions[n].where);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<WholeStage> State::whole_stages() const {
  std::vector<WholeStage> stages;
  for (const auto& plan : impl_->plans) {
    if (!plan || !plan->whole) continue;
    WholeStage& s = stages.emplace_back();
    s.stage = impl_->code->segment(plan->segment).stage;
    for (size_t i = 0; i < plan->whole->kinds.size(); ++i)
      s.items.push_back({plan->whole->kinds[i], plan->whole->instructions[i]});
  }
  return stages;
}

std::vector<StagePeak> State::peaks() const {
  std::vector<StagePeak> peaks;
  for (const auto& plan : impl_->plans) {
    if (!plan || plan->peak.bytes == 0) continue;
    const interpreter::SegmentPlan::Peak& p = plan->peak;
    StagePeak peak{impl_->code->segment(plan->segment).stage,
                   p.instruction,
                   static_cast<size_t>(p.bytes),
                   static_cast<size_t>(p.scratch),
                   {}};
    for (const auto& l : p.living)
      peak.living.push_back({l.reg, static_cast<size_t>(l.bytes), l.made,
                             l.last == UINT32_MAX ? std::nullopt : std::optional(l.last)});
    std::ranges::stable_sort(peak.living, std::greater(), &StagePeak::Living::bytes);
    peaks.push_back(std::move(peak));
  }
  return peaks;
}

std::vector<HostInstruction> State::host_instructions() const {
  std::vector<HostInstruction> list;
  for (const auto& plan : impl_->plans) {
    if (!plan) continue;
    const size_t stage = impl_->code->segment(plan->segment).stage;
    for (const interpreter::Step& s : plan->steps)
      if (s.host) list.push_back({stage, s.instruction});
    for (uint32_t loop : plan->asking_host) list.push_back({stage, loop});
  }
  return list;
}

}  // namespace gradus
