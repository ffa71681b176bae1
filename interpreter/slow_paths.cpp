// What of a program is slow on the CPU.
#include <algorithm>

#include "fusion/cost.h"
#include "gradus/inspect.h"
#include "interpreter/plan/steps.h"
#include "interpreter/planning.h"
#include "kernels/make.h"

namespace gradus {

namespace {

using interpreter::Draft;
using interpreter::Weighing;

constexpr int64_t many = 1 << 16;

SlowPath path_of(const Draft& d, std::span<const uint32_t> instructions, std::string reason) {
  SlowPath path;
  for (uint32_t n : instructions) {
    path.operators.push_back(d.node(n).op->name);
    path.places.push_back(d.node(n).where);
  }
  path.reason = std::move(reason);
  return path;
}

// Notes what is slow of plans while they are made.
class SlowPaths {
 public:
  explicit SlowPaths(const fusion::Machine& machine) : machine_(machine) {}

  void weighed(const Weighing& w) {
    if (w.wanted || w.instructions.size() < 2 || w.frame.count() < many) return;
    const fusion::Estimate e = fusion::estimate(w.nest, w.frame, machine_);
    const std::string why =
        e.refused ? e.refused
                  : fmt::format("a kernel would save {:.1f} us and cost {:.1f} us, by estimate",
                                e.saved / 1e3, e.lost / 1e3);
    refused_.push_back({{w.instructions.begin(), w.instructions.end()},
                        fmt::format("{} elements, no kernel: {}", w.frame.count(), why)});
  }

  void planned(const Draft& d) {
    auto alone = [&](uint32_t n) { return d.bound[n].group == interpreter::Local::never; };
    // A group that is refused may have become two.
    for (const Refused& r : refused_)
      if (std::ranges::any_of(r.instructions, alone))
        found.push_back(path_of(d, r.instructions, r.why));
    refused_.clear();
    for (uint32_t n = 0; n < d.bound.size(); ++n)
      if (std::string why = reason(d, n); !why.empty())
        found.push_back(path_of(d, {&n, 1}, std::move(why)));
  }

  std::vector<SlowPath> found;

 private:
  struct Refused {
    std::vector<uint32_t> instructions;
    std::string why;
  };

  // Of one instruction; empty: it is not slow.
  static std::string reason(const Draft& d, uint32_t n) {
    const interpreter::Bound& b = d.bound[n];
    if (const auto* index = std::get_if<work::Index>(b.work.get()))
      if (index->sides.action != work::IndexAction::read && numel(index->shape) >= many &&
          kernels::parts_of(*index) == 1)
        return fmt::format("{} elements are written in index order, on one thread",
                           numel(index->shape));
    if (d.instruction(n).op->traits.is_long_function)
      if (const int64_t count = elements(d, n); count >= many)
        return fmt::format("{} elements of tens of nanoseconds each, without vector instructions",
                           count);
    return "";
  }

  static int64_t elements(const Draft& d, uint32_t n) {
    const auto results = d.results_of(n);
    return results.empty() ? 0 : numel(d.sizes_of(d.code.type_of(results[0])));
  }

  const fusion::Machine machine_;
  std::vector<Refused> refused_;  // of the plan that is being made
};

}  // namespace

std::vector<SlowPath> slow_paths(const Code& code, const DimSizes& sizes) {
  interpreter::KernelChoice choice = interpreter::imagined_kernels();
  SlowPaths paths(choice.source->machine());
  choice.weighed = [&](const Weighing& w) { paths.weighed(w); };
  choice.planned = [&](const Draft& d) { paths.planned(d); };
  interpreter::plan_segments(code, sizes, choice, [](const auto&, const auto&) {});
  return std::move(paths.found);
}

}  // namespace gradus
