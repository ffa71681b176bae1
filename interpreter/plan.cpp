#include "interpreter/plan.h"

#include <algorithm>

#include "fusion/cost.h"
#include "interpreter/plan/bind_sizes.h"

namespace gradus::interpreter {

// A chain is as long as the program has segments: no recursion.
SegmentPlan::~SegmentPlan() {
  std::shared_ptr<const SegmentPlan> p = std::move(previous);
  // Ours alone: nobody else can get hold of it.
  while (p && p.use_count() == 1) p = std::move(const_cast<SegmentPlan&>(*p).previous);
}

// Logarithmic: a step takes one bit off the segment's number where that does not go too far.
const SegmentPlan& SegmentPlan::of_segment(size_t wanted) const {
  const SegmentPlan* p = this;
  while (p->segment > wanted) p = p->far_back->segment >= wanted ? p->far_back : p->previous.get();
  return *p;
}

void SegmentPlan::follow(std::shared_ptr<const SegmentPlan> other) {
  previous = std::move(other);
  if (previous) far_back = &previous->of_segment(segment & (segment - 1));
}

const Held& SegmentPlan::find_held(Register r) const {
  auto it = std::lower_bound(held.begin(), held.end(), r,
                             [](const auto& h, Register q) { return h.first < q; });
  GRADUS_CHECK(it != held.end() && it->first == r);
  return it->second;
}

std::span<const Register> inputs_of(const Code& code, size_t segment) {
  const Segment& s = code.segment(segment);
  const StageCode& stage = code.stage(s.stage);
  if (s.begins_stage) return stage.inputs;
  if (!s.opaque) return {};
  const Instruction& i = stage.instructions[*s.opaque];
  return std::span(stage.results).subspan(i.first_result, stage.opaque[i.opaque].tensors);
}

void append_input_key(const Tensor& t, std::vector<int64_t>& key) {
  if (!t.defined()) {
    key.push_back(-1);
    return;
  }
  const Layout& l = t.layout();
  bool contiguous = l.contiguous();
  key.push_back(static_cast<int64_t>(l.dtype) | static_cast<int64_t>(l.rank()) << 8 |
                static_cast<int64_t>(contiguous) << 40 |
                static_cast<int64_t>(t.device().kind) << 41 |
                static_cast<int64_t>(t.device().index) << 42);
  key.insert(key.end(), l.shape.begin(), l.shape.end());
  if (!contiguous) key.insert(key.end(), l.strides.begin(), l.strides.end());
}

namespace {

// Whether planning anew with these kernels would change nothing. Sets only grow, but for what is
// left out again; a plan keeps that.
bool suits(const SegmentPlan& plan, const KernelChoice& choice) {
  if (plan.kernel_source != (choice.source ? choice.source->id() : 0)) return false;
  if (choice.mode != FusionMode::behind)
    return plan.missing.empty() && plan.later.empty() && !plan.may_be_whole;
  // Its function may be there now.
  const bool awaits = plan.awaits_bodies || plan.runs >= fusion::runs_before_stage;
  if (awaits && plan.kernel_generation < choice.set->generation()) return false;
  return plan.kernel_generation <= choice.set->generation() &&
         std::ranges::none_of(plan.missing,
                              [&](const auto& nest) {
                                return choice.set->find(nest.second) != nullptr ||
                                       choice.set->has_failed(nest.second);
                              }) &&
         std::ranges::none_of(
             plan.later, [&](const std::string& code) { return choice.backend->is_settled(code); });
}

}  // namespace

std::shared_ptr<const SegmentPlan> PlanCache::find(size_t segment, const SegmentPlan* previous,
                                                   std::span<const int64_t> key,
                                                   std::span<const int64_t> ranks,
                                                   const KernelChoice& choice) {
  std::lock_guard lock(mutex_);
  if (segment >= segments_.size()) return nullptr;
  auto& plans = segments_[segment];
  for (auto it = plans.begin(); it != plans.end(); ++it) {
    if ((*it)->previous.get() != previous || !std::ranges::equal((*it)->key, key) ||
        !std::ranges::equal((*it)->ranks, ranks) || !suits(**it, choice))
      continue;
    plans.splice(plans.begin(), plans, it);
    return plans.front();
  }
  return nullptr;
}

void PlanCache::insert(size_t segment, std::shared_ptr<const SegmentPlan> plan) {
  std::list<std::shared_ptr<const SegmentPlan>> evicted;  // dies after the lock is released
  std::lock_guard lock(mutex_);
  if (segment >= segments_.size()) segments_.resize(segment + 1);
  auto& plans = segments_[segment];
  plans.push_front(std::move(plan));
  size_t kept = 0, args = 0;
  auto it = plans.begin();
  for (; it != plans.end() && kept < most_per_segment; ++it, ++kept) {
    args += (*it)->args.size();
    if (kept >= least_per_segment && args > most_args_per_segment) break;
  }
  evicted.splice(evicted.begin(), plans, it, plans.end());
}

std::shared_ptr<const SegmentPlan> find_or_make_plan(
    const Code& code, size_t segment, const std::shared_ptr<const SegmentPlan>& previous,
    std::span<const Tensor> inputs, const std::vector<int64_t>& key, const KernelChoice& choice) {
  auto plan =
      code.plans().find(segment, previous.get(), key, rank_counts(code, choice.context), choice);
  if (!plan) {
    plan = make_plan(code, segment, previous, inputs, key, choice);
    code.plans().insert(segment, plan);
  }
  return plan;
}

}  // namespace gradus::interpreter
