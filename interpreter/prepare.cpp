// Planning before anything runs.
#include <algorithm>

#include "interpreter/plan/bind_sizes.h"
#include "interpreter/state_impl.h"

namespace gradus {

using interpreter::DimensionSizes;
using interpreter::Event;
using interpreter::SegmentPlan;

namespace {

// An input of these sizes, without memory: plans ask for layouts alone.
Tensor stand_in(const ir::Type& type, const ir::DimEnvironment& sizes, Device device) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.evaluate(sizes));
  const auto count = checked_numel(shape);
  constexpr int64_t most = int64_t{1} << 46;
  if (!count || *count > most) throw Error("{} has too many elements", to_string(type));
  alignas(64) static std::byte place[64];
  const size_t bytes = static_cast<size_t>(*count) * size_of(type.dtype);
  return Tensor(make_ref<Storage>(place, bytes, device, [] {}), Layout(type.dtype, shape));
}

DimensionSizes in_order(const Code& code, const DimSizes& sizes) {
  DimensionSizes ordered(code.dimensions().size());
  for (const auto& [name, size] : sizes) {
    const auto index = code.dimension_index(name);
    if (!index) throw Error("no input has a dimension '{}'", name);
    if (size < 0) throw Error("the size of '{}' is {}, which is negative", name, size);
    ordered[*index] = size;
  }
  for (size_t i = 0; i < ordered.size(); ++i)
    if (!ordered[i]) throw Error("prepare wants the size of '{}'", code.dimensions()[i]);
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

size_t bytes_of_elements(const Layout& l) {
  return static_cast<size_t>(l.numel()) * size_of(l.dtype);
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

std::vector<StageMemory> State::Impl::prepare(const DimSizes& sizes) {
  if (stage != 0 || poisoned)
    throw Error("a state is prepared before stage 0; restart it, or prepare another");
  check_known(*code);
  join_stream();
  const DimensionSizes ordered = in_order(*code, sizes);
  const interpreter::SizesByName by_name(*code, ordered);
  interpreter::KernelChoice choice = kernels;
  if (choice.source) choice.mode = fusion::FusionMode::first;
  std::vector<std::shared_ptr<const SegmentPlan>> ready;
  std::vector<StageMemory> memory;
  for (size_t s = 0; s < code->segments(); ++s) {
    std::vector<Tensor> inputs;
    std::vector<int64_t> input_key;
    for (size_t i = 0; i < code->inputs(s); ++i) {
      inputs.push_back(stand_in(code->input_type(s, i), by_name, kernels.place()));
      interpreter::append_input_key(inputs.back(), input_key);
    }
    const auto previous = s ? ready.back() : nullptr;
    auto plan = code->plans().find(s, previous.get(), input_key, choice);
    if (!plan) {
      plan = interpreter::make_plan(*code, s, previous, inputs, input_key, choice);
      code->plans().insert(s, plan);
    }
    memory.push_back(memory_of(*code, *plan));
    ready.push_back(std::move(plan));
  }
  size_t bytes = 0;
  for (const StageMemory& m : memory) bytes = std::max(bytes, m.buffer);
  plans = std::move(ready);
  prepared = true;
  is_left.assign(registers.size(), false);
  for (const auto& plan : plans)
    for (const Event& e : plan->events)
      if (e.kind == Event::Kind::allocate && e.result == UINT32_MAX)
        is_left[index_of(e.reg)] = true;
  spare_tensors.assign(registers.size(), Tensor());
  spare_blocks.assign(blocks.size(), nullptr);
  for (const auto& plan : plans) frame_of(plan, bytes);
  return memory;
}

std::vector<StageMemory> State::prepare(const DimSizes& sizes) {
  Occupy occupy(impl_->running);
  return impl_->prepare(sizes);
}

}  // namespace gradus
