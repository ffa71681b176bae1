#include "interpreter/plan/loop_chunks.h"

#include <algorithm>

namespace gradus::interpreter {

namespace {

using Chunk = LoopCode::Chunk;

// What a step may find wrong is looked at after each.
std::optional<size_t> launches_of_step(const LoopCode& loop) {
  if (!loop.is_scan || !loop.plan || !loop.plan->faults.empty() || !loop.plan->loop_launches ||
      asks_host(*loop.plan))
    return std::nullopt;
  const auto launched =
      std::ranges::count_if(loop.plan->steps, [](const Step& s) { return s.run; });
  return static_cast<size_t>(launched) + *loop.plan->loop_launches + loop.copies.size();
}

// Without repeated ones.
Layout distinct_elements(Layout slice) {
  for (size_t d = 0; d < slice.shape.size(); ++d)
    if (slice.strides[d] == 0) slice.shape[d] = std::min<int64_t>(slice.shape[d], 1);
  return slice;
}

Sizes stack_of_one(const Layout& slice) {
  Sizes shape{1};
  shape.append(slice.shape.begin(), slice.shape.end());
  return shape;
}

// Of at most so many steps, those that leave the fewest steps for no chunk. Even.
int64_t steps_of_chunk(int64_t steps, int64_t most) {
  most -= most % 2;
  int64_t best = most;
  for (int64_t k = most; k > most / 2; k -= 2)
    if (steps % k < steps % best) best = k;
  return best;
}

}  // namespace

std::optional<LoopCode::Transfer> transfer(devices::Backend& backend, work::Move move) {
  if (move.copies.empty()) return LoopCode::Transfer();
  LoopCode::Transfer made{work::share(std::move(move)), {}};
  made.code = backend.make(*made.work, 2, true).kernel;
  if (!made.code.run) return std::nullopt;
  return made;
}

std::optional<LoopCode::Transfer> transfer(devices::Backend& backend, const Layout& from,
                                           const Layout& to) {
  work::Move move;
  move.copy(to.shape, {0, from.dtype, from.strides, 0}, {1, to.dtype, to.strides, 0});
  return transfer(backend, std::move(move));
}

bool asks_host(const SegmentPlan& step) {
  return std::ranges::any_of(step.steps, &Step::host) || !step.asking_host.empty();
}

std::optional<size_t> launches_of(const LoopCode& loop) {
  const auto in_step = launches_of_step(loop);
  if (!in_step) return std::nullopt;
  const size_t in_steps = static_cast<size_t>(loop.steps) * (*in_step + loop.gathered.size());
  return in_steps + loop.first.size();
}

bool is_long(const LoopCode& loop) {
  const auto launches = launches_of(loop);
  return loop.device && launches && *launches > SegmentPlan::most_recorded;
}

bool lies_with_gaps(const LoopCode& loop, size_t sequence) {
  return loop.slice_bytes[sequence] && !distinct_elements(loop.step_layout(sequence)).contiguous();
}

std::optional<Chunk> chunk_of(const LoopCode& loop) {
  constexpr int64_t wanted_launches = 1024, least_launches_for_one = 8, most_bytes = 64 << 20;
  constexpr auto most_launches = static_cast<int64_t>(SegmentPlan::most_recorded);
  if (!is_long(loop)) return std::nullopt;
  const auto in_step = static_cast<int64_t>(*launches_of_step(loop));

  Chunk chunk;
  std::vector<Layout> stacks;  // of one slice: of what is read, then of what is written
  for (size_t i = loop.carries; i < loop.carries + loop.sequences; ++i) {
    if (loop.slice_bytes[i] == 0) continue;  // the same slice for all steps
    if (lies_with_gaps(loop, i)) return std::nullopt;
    Layout one = loop.in[i];
    one.shape = stack_of_one(distinct_elements(loop.step_layout(i)));
    stacks.push_back(std::move(one));
    chunk.read.push_back({.place = i, .stride = loop.slice_bytes[i]});
  }
  for (size_t r = loop.carries; r < loop.results; ++r) {
    stacks.emplace_back(loop.out[r].dtype, stack_of_one(loop.out[r]));
    const auto bytes = static_cast<int64_t>(bytes_of_elements(loop.out[r]));
    chunk.written.push_back({.place = loop.inputs + r, .stride = bytes});
  }
  int64_t bytes = 1;
  for (const Layout& l : stacks) bytes += static_cast<int64_t>(bytes_of_elements(l));

  const int64_t most_steps =
      std::min(std::max(wanted_launches / in_step, int64_t{2}), most_bytes / bytes);
  if (most_steps < 2) return std::nullopt;
  chunk.steps = steps_of_chunk(loop.steps - 1, most_steps);
  const int64_t saved = chunk.steps * in_step;
  const auto added = static_cast<int64_t>(stacks.size()) + 1;  // copies, and what is recorded
  if (saved > most_launches || saved < least_launches_for_one * added) return std::nullopt;

  auto stack = stacks.begin();
  for (auto* all : {&chunk.read, &chunk.written})
    for (Chunk::Staged& s : *all) {
      s.bytes = static_cast<int64_t>(bytes_of_elements(*stack));
      stack->shape[0] = chunk.steps;
      auto made = transfer(*loop.device, *stack, Layout(stack->dtype, stack->shape));
      if (!made) return std::nullopt;
      s.transfer = std::move(*made);
      ++stack;
    }
  return chunk;
}

}  // namespace gradus::interpreter
