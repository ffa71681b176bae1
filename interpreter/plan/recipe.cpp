// The recipe of a plan.
#include "interpreter/plan/steps.h"
#include "interpreter/whole_stage.h"

namespace gradus::interpreter {

namespace {

#ifdef NDEBUG
constexpr bool verifies = false;
#else
constexpr bool verifies = true;
#endif

void done(const Draft& d, std::string_view step, void (*verify)(const Draft&)) {
  if (verifies) verify(d);
  if (d.choice.dump) d.choice.dump(step, d.segment.stage, print(d));
}

// What there is to choose from when the plan is made.
void note_kernels(const Draft& d) {
  const KernelChoice& choice = d.choice;
  if (!choice.source) return;
  d.plan->kernel_source = choice.source->id();
  const bool all = choice.mode == FusionMode::first;
  d.plan->kernel_generation = (all ? choice.source->ready() : choice.set)->generation();
}

// Whether what a plan does is many launches of little work each, and no detour; those of a loop's
// steps are among them, so that what is recorded has no loop that records chunks. Memory that is
// let go on the way is kept to the end when they are one, so there must be little of it.
bool is_recordable(const SegmentPlan& plan) {
  constexpr size_t least_launches = 4;
  constexpr int64_t most_bytes = 64 << 20;
  if (!plan.loop_launches) return false;
  size_t launches = *plan.loop_launches;
  for (const Step& s : plan.steps) {
    if (s.host) return false;
    launches += s.run != nullptr;
  }
  int64_t bytes = plan.buffer_bytes;
  for (const Event& e : plan.events)
    if (e.kind == Event::Kind::allocate)
      bytes += e.layout.numel() * static_cast<int64_t>(size_of(e.layout.dtype));
  return launches >= least_launches && launches <= SegmentPlan::most_recorded &&
         bytes <= most_bytes;
}

// Whether code is being compiled, or is to be, that the plan does without.
bool waits_for_code(const SegmentPlan& plan) {
  return !plan.missing.empty() || !plan.later.empty();
}

}  // namespace

std::shared_ptr<SegmentPlan> plan_steps(const Code& code, size_t segment,
                                        std::shared_ptr<const SegmentPlan> previous,
                                        std::span<const Tensor> inputs, std::vector<int64_t> key,
                                        const KernelChoice& choice) {
  Draft d(code, segment, std::move(previous), inputs, std::move(key), choice);
  bind(d);
  done(d, "bind", verify_bound);
  share_copies(d);
  done(d, "share", verify_bound);
  group(d);
  done(d, "group", verify_grouped);
  overlap(d);
  done(d, "overlap", verify_overlapped);
  make(d);
  done(d, "make", verify_made);
  place(d);
  done(d, "place", verify_placed);
  d.plan->recordable = !choice.traits().host_memory && is_recordable(*d.plan);
  note_kernels(d);
  if (choice.planned) choice.planned(d);
  return d.plan;
}

std::shared_ptr<const SegmentPlan> make_plan(const Code& code, size_t segment,
                                             std::shared_ptr<const SegmentPlan> previous,
                                             std::span<const Tensor> inputs,
                                             std::vector<int64_t> key, const KernelChoice& choice) {
  if (choice.traits().compiles_ahead && choice.mode == FusionMode::first) {
    // As if it were not to wait: then all that is wanted is known before any of it is compiled.
    KernelChoice asking = choice;
    asking.mode = FusionMode::behind;
    asking.set = choice.source->ready();
    auto plan = plan_steps(code, segment, previous, inputs, key, asking);
    if (!waits_for_code(*plan)) return plan;
    for (const auto& [nest, text] : plan->missing) choice.source->request(nest, text);
    choice.source->wait();
  }
  const bool behind = choice.mode == FusionMode::behind;
  const bool is_small = is_small_stage(code, segment, inputs, choice);
  if (is_small && (!behind || choice.set->stages() != 0))
    if (auto plan = plan_steps(code, segment, previous, inputs, key, parts_of(choice));
        join_parts(code, *plan, choice))
      return plan;
  auto plan = plan_steps(code, segment, std::move(previous), inputs, std::move(key), choice);
  plan->may_be_whole = is_small && behind;
  return plan;
}

}  // namespace gradus::interpreter
