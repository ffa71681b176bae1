#include <algorithm>

#include "interpreter/plan/bind_sizes.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

DimensionSizes in_order(const Code& code, const DimSizes& sizes,
                        const std::vector<int64_t>& ranks) {
  DimensionSizes ordered(code.dimensions().size());
  for (const auto& [name, size] : sizes) {
    const auto index = code.dimension_index(name);
    if (!index)
      throw Error("no input has a dimension '{}'; {}", name,
                  ordered.empty()
                      ? "the sizes of all inputs are fixed"
                      : fmt::format("the dimensions are: {}", fmt::join(code.dimensions(), ", ")));
    if (size < 0) throw Error("the size of '{}' is {}, which is negative", name, size);
    ordered[*index] = size;
  }
  for (size_t i = 0, group = 0; i < code.graph().ranges.size(); ++i) {
    const ir::SizeRange& r = code.graph().ranges[i];
    if (r.group.empty()) continue;
    if (const auto index = code.dimension_index(r.name)) ordered[*index] = ranks[group];
    ++group;
  }
  for (size_t i = 0; i < ordered.size(); ++i)
    if (!ordered[i])
      throw Error(
          "prepare needs the size of '{0}'; give the sizes of all dimensions (gradus: --set "
          "{0}=SIZE)",
          code.dimensions()[i]);
  return ordered;
}

// Opaque instructions cut a stage into segments whose inputs nobody knows before they ran.
void check_known(const Code& code) {
  for (size_t s = 0; s < code.segments(); ++s) {
    const Segment& segment = code.segment(s);
    if (!segment.opaque && !segment.counts) continue;
    const StageCode& stage = code.stage(segment.stage);
    const Instruction& i = stage.instructions[segment.opaque.value_or(segment.first)];
    throw code.graph().error_at(i.where,
                                "what this instruction gives is not known before it runs, so the "
                                "stage cannot be prepared; run it without");
  }
}

StageMemory memory_of(const Code& code, const SegmentPlan& plan) {
  const StageCode& stage = code.stage(code.segment(plan.segment).stage);
  StageMemory memory;
  memory.buffer = static_cast<size_t>(plan.buffer_bytes);
  memory.held = static_cast<size_t>(plan.block_bytes);
  auto returned = [&](Register r) { return std::ranges::count(stage.returns, r) > 0; };
  std::vector<Register> seen;  // tensors of which a view is returned
  for (const Event& e : plan.events)
    if (e.kind == Event::Kind::view && returned(e.reg)) seen.push_back(e.base);
  for (const Event& e : plan.events) {
    // Views of the program's own values are copies.
    const bool copied = e.kind == Event::Kind::view && code.constant(e.base).defined();
    if (e.kind != Event::Kind::allocate && e.kind != Event::Kind::take && !copied) continue;
    const bool result = returned(e.reg) || std::ranges::count(seen, e.reg) > 0;
    (result ? memory.results : memory.held) += bytes_of_elements(e.layout);
  }
  for (Register r : stage.returns)
    if (r != no_register && code.constant(r).defined())
      memory.results += bytes_of_elements(code.constant(r).layout());
  return memory;
}

}  // namespace

std::vector<StageMemory> prepare(StateData& s, const DimSizes& sizes) {
  if (s.stage != 0 || s.poisoned)
    throw Error("a state is prepared before stage 0; restart it, or prepare another");
  const Code& code = *s.code;
  check_known(code);
  s.join_stream();
  const DimensionSizes ordered = in_order(code, sizes, rank_counts(code, s.place.context.get()));
  const SizesByName by_name(code, ordered);
  KernelChoice choice = s.place.kernels;
  if (choice.source) choice.mode = FusionMode::first;
  std::vector<std::shared_ptr<const SegmentPlan>> ready;
  std::vector<StageMemory> memory;
  size_t bytes = 0;
  for (size_t n = 0; n < code.segments(); ++n) {
    std::vector<Tensor> inputs;
    std::vector<int64_t> key;
    for (size_t i = 0; i < code.inputs(n); ++i) {
      inputs.push_back(stand_in(code.input_type(n, i), by_name, choice.place()));
      append_input_key(inputs.back(), key);
    }
    ready.push_back(find_or_make_plan(code, n, n ? ready.back() : nullptr, inputs, key, choice));
    memory.push_back(memory_of(code, *ready.back()));
    bytes = std::max(bytes, memory.back().buffer);
  }
  s.plans = std::move(ready);
  s.left.prepare(s.plans, s.registers.size());
  for (const auto& plan : s.plans) frame_of(s, plan, bytes);
  return memory;
}

}  // namespace gradus::interpreter
