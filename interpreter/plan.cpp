#include "interpreter/plan.h"

#include <algorithm>

namespace gradus::interpreter {

// A chain is as long as the program has stages: no recursion.
StagePlan::~StagePlan() {
  std::shared_ptr<const StagePlan> p = std::move(previous);
  // Ours alone: nobody else can get hold of it.
  while (p && p.use_count() == 1) p = std::move(const_cast<StagePlan&>(*p).previous);
}

const StagePlan& StagePlan::of_stage(size_t wanted) const {
  const StagePlan* p = this;
  while (p->stage > wanted) p = p->previous.get();
  return *p;
}

const Held& StagePlan::find_held(Register r) const {
  auto it = std::lower_bound(held.begin(), held.end(), r,
                             [](const auto& h, Register q) { return h.first < q; });
  GRADUS_CHECK(it != held.end() && it->first == r);
  return it->second;
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

std::shared_ptr<const StagePlan> PlanCache::find(size_t stage, const StagePlan* previous,
                                                 std::span<const int64_t> key) {
  std::lock_guard lock(mutex_);
  if (stage >= stages_.size()) return nullptr;
  auto& plans = stages_[stage];
  for (auto it = plans.begin(); it != plans.end(); ++it) {
    if ((*it)->previous.get() != previous || !std::ranges::equal((*it)->key, key)) continue;
    plans.splice(plans.begin(), plans, it);
    return plans.front();
  }
  return nullptr;
}

void PlanCache::insert(size_t stage, std::shared_ptr<const StagePlan> plan) {
  std::list<std::shared_ptr<const StagePlan>> evicted;  // dies after the lock is released
  std::lock_guard lock(mutex_);
  if (stage >= stages_.size()) stages_.resize(stage + 1);
  auto& plans = stages_[stage];
  plans.push_front(std::move(plan));
  size_t kept = 0, args = 0;
  auto it = plans.begin();
  for (; it != plans.end() && kept < most_per_stage; ++it, ++kept) {
    args += (*it)->args.size();
    if (kept >= least_per_stage && args > most_args_per_stage) break;
  }
  evicted.splice(evicted.begin(), plans, it, plans.end());
}

}  // namespace gradus::interpreter
