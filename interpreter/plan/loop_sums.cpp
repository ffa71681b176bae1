#include "interpreter/plan/loop_sums.h"

#include <algorithm>
#include <optional>

#include "fusion/cost.h"

namespace gradus::interpreter {

namespace {

constexpr size_t none = SIZE_MAX;

// The pointers of a step that lead to places of the loop.
class Pointers {
 public:
  explicit Pointers(const LoopCode& loop) : plan_(*loop.plan), place_(loop.plan->args.size()) {
    std::ranges::fill(place_, none);
    for (size_t e = 0; e < loop.place_of_external.size(); ++e)
      for (uint32_t p = plan_.patch_begin[e]; p < plan_.patch_begin[e + 1]; ++p)
        place_[plan_.patches[p].arg] = loop.place_of_external[e];
  }
  size_t place_of(uint32_t arg) const { return place_[arg]; }
  // Pointers are in the order of the steps: what makes a value comes before what reads it.
  std::optional<uint32_t> first_to(size_t place) const {
    const auto found = std::ranges::find(place_, place);
    if (found == place_.end()) return std::nullopt;
    return static_cast<uint32_t>(found - place_.begin());
  }
  // Of a place that one pointer of one kernel begins with.
  std::optional<uint32_t> only_to(size_t place) const {
    if (std::ranges::count(place_, place) != 1) return std::nullopt;
    const uint32_t arg = *first_to(place);
    const auto patch = std::ranges::find(plan_.patches, arg, &SegmentPlan::Patch::arg);
    if (patch->offset != 0) return std::nullopt;
    return arg;
  }

 private:
  const SegmentPlan& plan_;
  std::vector<size_t> place_;  // by pointer
};

// The loops of a step's kernel whose elements are computed each on its own.
const work::Loops* elementwise(const Step& s) {
  if (!s.run || s.group == UINT32_MAX) return nullptr;
  const auto* loops = std::get_if<work::Loops>(s.work);
  return loops && !loops->nest.reduces() && !loops->nest.has_edges() ? loops : nullptr;
}

bool is_made_in_place(const LoopCode& l, const Pointers& pointers, size_t carry) {
  const size_t result = l.inputs + carry;
  if (std::ranges::any_of(l.copies, [&](const LoopCode::Copy& c) {
        return c.result == carry || (c.from && !c.from->fixed && c.from->place == carry);
      }))
    return false;
  const std::optional<uint32_t> read = pointers.only_to(carry), written = pointers.first_to(result);
  if (!read || !written) return false;
  for (const Step& s : l.plan->steps) {
    const work::Loops* loops = elementwise(s);
    if (!loops) continue;
    const size_t loads = loops->nest.loads.size();
    if (*read < s.args || *read >= s.args + loads || *written < s.args + loads ||
        *written >= s.args + loads + loops->nest.stores.size())
      continue;
    return loops->frame.strides[*read - s.args] == contiguous_strides(loops->frame.sizes) &&
           loops->nest.loads[*read - s.args].dtype == l.out[carry].dtype;
  }
  return false;
}

// A kernel that a body's plan lacks is compiled behind the runs, as those of groups are.
std::shared_ptr<const fusion::Kernel> kernel_of(const fusion::Nest& nest,
                                                const KernelChoice& choice, SegmentPlan& plan) {
  const std::string text = fusion::print(nest);
  if (choice.mode == FusionMode::first) return choice.source->get(nest, text);
  auto kernel = choice.set->find(text);
  if (!kernel && !choice.set->has_failed(text)) plan.missing.emplace_back(nest, text);
  return kernel;
}

// By load, the store that is what it reads in the next step. `none`: it reads something else.
using NextOfLoad = SmallVector<size_t, 8>;

// A nest that does for each element what `nest` does in several steps, one after the other.
// Loads: those of the first step, and for each later one those that read something else.
fusion::Nest repeated(const fusion::Nest& nest, size_t times, const NextOfLoad& next) {
  using fusion::ValueNumber;
  fusion::Nest all = nest;
  all.steps.clear();
  all.registers = 0;  // what it reads is in the first cache: the widest are the fastest
  all.row_size = 0;   // such a kernel has code for each place in a row
  for (size_t t = 1; t < times; ++t)
    for (size_t k = 0; k < nest.loads.size(); ++k)
      if (next[k] == none) all.loads.push_back(nest.loads[k]);
  SmallVector<ValueNumber, 4> stored;
  auto new_load = static_cast<ValueNumber>(nest.loads.size());
  for (size_t t = 0; t < times; ++t) {
    SmallVector<ValueNumber, 32> now;  // by value of `nest`
    for (size_t k = 0; k < nest.loads.size(); ++k)
      now.push_back(t == 0            ? static_cast<ValueNumber>(k)
                    : next[k] == none ? new_load++
                                      : stored[next[k]]);
    for (size_t k = 0; k < nest.numbers.size(); ++k)
      now.push_back(all.first_number() + static_cast<ValueNumber>(k));
    for (const fusion::Step& s : nest.steps) {
      now.push_back(static_cast<ValueNumber>(all.values()));
      fusion::Step& step = all.steps.emplace_back(s);
      for (ValueNumber& v : step.operands) v = now[v];
    }
    stored.clear();
    for (ValueNumber v : nest.stores) stored.push_back(now[v]);
  }
  all.stores.assign(stored.begin(), stored.end());
  return all;
}

// Elements from the first to the last that a load reads, if none lies before the first.
std::optional<int64_t> extent_of(const Sizes& sizes, const Sizes& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] < 0) return std::nullopt;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

// One kernel of a step, if it can run later.
class Deferral {
 public:
  Deferral(const LoopCode& loop, const Pointers& pointers, const Step& step,
           const work::Loops& loops)
      : l(loop), pointers_(pointers), step_(step), nest_(loops.nest), frame_(loops.frame) {}

  std::optional<LoopCode::Deferred> find(const KernelChoice& choice, SegmentPlan& plan) {
    // Columns that it reduces are results of the step: they cannot wait.
    const bool stores_elements = nest_.column_stores.empty() && nest_.row_stores.empty();
    if (nest_.rank < 2 || frame_.count() == 0 || !stores_elements) return std::nullopt;
    if (!find_stores() || !find_loads()) return std::nullopt;
    const int64_t rows = frame_.sizes[0], row_bytes = written_ / rows;
    if (written_ < least_bytes || read_ > written_ / 4 || row_bytes > block_bytes)
      return std::nullopt;
    const int64_t block = std::min(rows, block_bytes / row_bytes);
    found_.blocks = (rows + block - 1) / block;
    found_.step = static_cast<size_t>(&step_ - l.plan->steps.data());
    for (LoopCode::Deferred::Pointer& p : found_.pointers) p.block_bytes *= block;
    const size_t several = steps_at_once();
    if (several > 1) add_code(repeated(nest_, several, next_), several, block, choice, plan);
    if (!add_code(nest_, 1, block, choice, plan)) return std::nullopt;
    return std::move(found_);
  }

 private:
  // Of what is written: less than this is in the first cache anyway. And what of it is there.
  static constexpr int64_t least_bytes = 64 << 10, block_bytes = 16 << 10;

  uint32_t arg(size_t pointer) const { return step_.args + static_cast<uint32_t>(pointer); }

  // Nothing else in a step reads what it writes.
  bool find_stores() {
    for (size_t k = 0; k < nest_.stores.size(); ++k) {
      const size_t place = pointers_.place_of(arg(nest_.loads.size() + k));
      if (place < l.inputs || place >= l.inputs + l.carries) return false;
      const size_t carry = place - l.inputs;
      if (!l.is_in_place(carry) || !pointers_.only_to(place)) return false;
      if (std::ranges::any_of(l.copies, [&](const LoopCode::Copy& c) {
            return c.from && !c.from->fixed && c.from->place == place;
          }))
        return false;
      written_ += static_cast<int64_t>(bytes_of_elements(l.out[carry]));
    }
    return true;
  }

  // Pointers of loads, and of stores behind them.
  bool find_loads() {
    found_.loads = nest_.loads.size();
    for (size_t k = 0; k < nest_.loads.size(); ++k) {
      const auto size = static_cast<int64_t>(size_of(nest_.loads[k].dtype));
      LoopCode::Deferred::Pointer& p = found_.pointers.emplace_back();
      p.block_bytes = frame_.strides[k][0] * size;
      next_.push_back(store_that_writes(pointers_.place_of(arg(k))));
      p.in_place = next_.back() != none;
      if (p.in_place) continue;
      const auto extent = extent_of(frame_.sizes, frame_.strides[k]);
      if (!extent) return false;
      read_ += *extent * size;
      if (!stays(k)) p.copied = static_cast<size_t>(*extent * size);
    }
    const int64_t row = frame_.count() / frame_.sizes[0];
    for (fusion::ValueNumber v : nest_.stores)
      found_.pointers.push_back({row * static_cast<int64_t>(size_of(nest_.dtype_of(v)))});
    return true;
  }

  size_t store_that_writes(size_t carry) const {
    if (carry >= l.carries || !l.is_in_place(carry)) return none;
    for (size_t k = 0; k < nest_.stores.size(); ++k)
      if (pointers_.place_of(arg(nest_.loads.size() + k)) == l.inputs + carry) return k;
    return none;
  }

  // Whether what a load reads in one step is there, as it was, in later steps.
  bool stays(size_t load) const {
    const size_t place = pointers_.place_of(arg(load));
    if (place == none) return l.plan->args[arg(load)].kind == Arg::Kind::fixed;
    const bool is_given = place >= l.carries && place < l.inputs;
    const bool is_stacked = place >= l.inputs + l.carries && place < l.inputs + l.results;
    return is_given || is_stacked;
  }

  // As many as a kernel has pointers for.
  size_t steps_at_once() const {
    const auto others = static_cast<size_t>(std::ranges::count(next_, none));
    const size_t in_place = nest_.loads.size() - others + nest_.stores.size();
    const size_t most = static_cast<size_t>(LoopCode::Deferred::most_steps) / 2;
    return others == 0 ? most : std::min(most, (fusion::most_slots - in_place) / others);
  }

  bool add_code(const fusion::Nest& nest, size_t steps, int64_t block, const KernelChoice& choice,
                SegmentPlan& plan) {
    const auto kernel = kernel_of(nest, choice, plan);
    if (!kernel) return false;
    work::Frame frame{frame_.sizes, frame_.strides};
    for (size_t t = 1; t < steps; ++t)
      for (size_t k = 0; k < nest_.loads.size(); ++k)
        if (next_[k] == none) frame.strides.push_back(frame_.strides[k]);
    frame.sizes[0] = block;
    work::Kernel of_block = kernel->bind(frame);
    frame.sizes[0] = frame_.sizes[0] - (found_.blocks - 1) * block;
    found_.codes.push_back({static_cast<int64_t>(steps), std::move(of_block), kernel->bind(frame)});
    return true;
  }

  const LoopCode& l;
  const Pointers& pointers_;
  const Step& step_;
  const fusion::Nest& nest_;
  const fusion::Frame& frame_;
  LoopCode::Deferred found_;
  NextOfLoad next_;
  int64_t written_ = 0, read_ = 0;  // bytes of a step
};

}  // namespace

void find_in_place(LoopCode& loop) {
  loop.in_place.assign(loop.carries, false);
  if (loop.steps <= 1) return;
  const Pointers pointers(loop);
  for (size_t i = 0; i < loop.carries; ++i) loop.in_place[i] = is_made_in_place(loop, pointers, i);
}

void find_deferred(LoopCode& loop, const KernelChoice& choice, SegmentPlan& plan) {
  if (!loop.is_scan || loop.steps <= 1 || loop.plan->whole) return;
  const Pointers pointers(loop);
  for (const Step& s : loop.plan->steps)
    if (const work::Loops* loops = elementwise(s))
      if (auto found = Deferral(loop, pointers, s, *loops).find(choice, plan))
        loop.deferred.push_back(std::move(*found));
}

}  // namespace gradus::interpreter
