#include "gradus/inspect.h"

#include <algorithm>

#include "devices/cuda/planned_device.h"
#include "fusion/cpu/compiler.h"
#include "fusion/cuda/source.h"
#include "gradus/devices.h"
#include "gradus/messages.h"
#include "interpreter/plan/bind_sizes.h"
#include "interpreter/planning.h"
#include "ops/collectives.h"

namespace gradus {

namespace {

constexpr std::string_view cuda_target = "cuda";

// What would run on a CUDA device in each group's place.
std::string cuda_sources(const State& state) {
  const ir::Source* source = state.code()->graph().source.get();
  std::string text;
  for (const FusedGroup& g : state.groups()) {
    if (g.nest.empty()) continue;  // no kernel of ours
    const fusion::Nest nest = fusion::parse_nest(g.nest);
    std::vector<std::string> lines;
    for (const SourceLocation& where : g.places)
      lines.push_back(source && where.known()
                          ? fmt::format("line {}: {}", where.line, trimmed(source->line(where)))
                          : "");
    if (lines.size() != nest.steps.size()) lines.clear();
    text += fusion::cuda::write_source(nest, lines).text;
  }
  return text;
}

std::string assembly_of(const State& state, fusion::cpu::Isa isa) {
  std::string text;
  for (const FusedGroup& g : state.groups())
    text += fusion::cpu::assembly(fusion::parse_nest(g.nest), isa);
  return text;
}

// Says which kernels there would be, and makes none.
class WouldBe final : public fusion::Kernels {
 public:
  explicit WouldBe(std::shared_ptr<fusion::Kernels> judge) : judge_(std::move(judge)) {}
  uint64_t id() const override { return judge_->id(); }
  void suit(fusion::Nest& nest, const fusion::StatedRows& rows) const override {
    judge_->suit(nest, rows);
  }
  bool wants(const fusion::Nest& nest, const fusion::Frame& frame) const override {
    return judge_->wants(nest, frame);
  }
  fusion::Machine machine() const override { return judge_->machine(); }
  bool takes_columns(int64_t rows, int64_t columns, DType dtype) const override {
    return judge_->takes_columns(rows, columns, dtype);
  }
  std::shared_ptr<const fusion::KernelSet> ready() override {
    return std::make_shared<fusion::KernelSet>();
  }
  std::shared_ptr<const fusion::Kernel> get(const fusion::Nest&, const std::string&) override {
    return std::make_shared<Placeholder>();
  }
  void request(const fusion::Nest&, const std::string&) override {}
  void wait() override {}
  KernelStatistics statistics() const override { return {}; }

 private:
  class Placeholder final : public fusion::Kernel {
   public:
    work::Kernel bind(const fusion::Frame&) const override {
      work::Kernel kernel;
      kernel.run = [](const void*, std::byte* const*, work::KernelScope&) { GRADUS_CHECK(false); };
      return kernel;
    }
  };
  std::shared_ptr<fusion::Kernels> judge_;
};

class GivenSizes final : public ir::DimEnvironment {
 public:
  explicit GivenSizes(const DimSizes& sizes) : sizes_(sizes) {}
  std::optional<int64_t> find(std::string_view name) const override {
    auto it = sizes_.find(name);
    return it == sizes_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  const DimSizes& sizes_;
};

// What the segment is given: its stage's inputs, or what an opaque function gives.
std::vector<Tensor> stand_ins(const Code& code, const Segment& segment, Device device,
                              const DimSizes& sizes) {
  const GivenSizes known(sizes);
  std::vector<Tensor> tensors;
  auto add = [&](const ir::Type& type) {
    tensors.push_back(interpreter::stand_in(type, known, device));
  };
  if (segment.begins_stage) {
    for (size_t i = 0; i < code.inputs(segment.stage); ++i) add(code.input_type(segment.stage, i));
  } else if (segment.opaque) {
    const StageCode& stage = code.stage(segment.stage);
    const Instruction& i = stage.instructions[*segment.opaque];
    const ir::Node& node = code.graph().stages[segment.stage].nodes[i.node];
    for (uint32_t k = 0; k < stage.opaque[i.opaque].tensors; ++k)
      add(code.graph()[node.results[k]].type);
  }
  return tensors;
}

interpreter::KernelChoice choice_for(std::optional<Device> device) {
  interpreter::KernelChoice choice;
  choice.mode = FusionMode::first;
  if (device) {
    Context context;
    plan_for_device(context, *device);
    choice.source = fusion::kernels_of(context);
    choice.backend = choice.source->backend();
  } else {
    choice.source = std::make_shared<WouldBe>(fusion::kernels_of(*Context::default_context()));
  }
  return choice;
}

int64_t size_of_name(const DimSizes& sizes, const std::string& name) {
  auto it = sizes.find(name);
  if (it == sizes.end()) throw Error("the size of '{}' is not given", name);
  return it->second;
}

}  // namespace

std::vector<std::string_view> code_targets() {
  std::vector<std::string_view> names{cuda_target};
  for (fusion::cpu::Isa isa : fusion::cpu::all_isas) names.push_back(fusion::cpu::name_of(isa));
  return names;
}

std::string describe_code(const State& state, std::string_view target) {
  if (target == cuda_target) return cuda_sources(state);
  for (fusion::cpu::Isa isa : fusion::cpu::all_isas)
    if (fusion::cpu::name_of(isa) == target) return assembly_of(state, isa);
  throw Error("'{}' is no target of code; the targets are {}", printable(target),
              fmt::join(code_targets(), ", "));
}

std::vector<std::string> groups_of(const ir::Graph& graph) { return ops::groups_in(graph); }

interpreter::KernelChoice interpreter::imagined_kernels() { return choice_for({}); }

void interpreter::plan_segments(
    const Code& code, const DimSizes& sizes, const KernelChoice& choice,
    const std::function<void(const Segment&, const SegmentPlan&)>& planned) {
  std::shared_ptr<const SegmentPlan> plan;
  for (size_t s = 0; s < code.segments(); ++s) {
    const Segment& segment = code.segment(s);
    std::vector<Tensor> inputs = stand_ins(code, segment, choice.place(), sizes);
    std::vector<int64_t> key;
    for (const Tensor& t : inputs) append_input_key(t, key);
    if (segment.counts) key.push_back(size_of_name(sizes, code.dimensions()[*segment.counts]));
    plan = make_plan(code, s, plan, inputs, std::move(key), choice);
    planned(segment, *plan);
  }
}

PlannedProgram plan_program(const Code& code, const DimSizes& sizes, std::optional<Device> device) {
  PlannedProgram planned;
  auto add = [&](const Segment& segment, const interpreter::SegmentPlan& plan) {
    planned.host_instructions += static_cast<size_t>(
        std::ranges::count_if(plan.steps, [](const auto& step) { return step.host; }));
    planned.host_instructions += plan.asking_host.size();
    for (const auto& g : plan.groups) {
      PlannedKernel& kernel = planned.kernels.emplace_back();
      kernel.stage = segment.stage;
      kernel.nest = g.nest();
      for (uint32_t n : g.instructions)
        kernel.nodes.push_back(code.stage(segment.stage).instructions[n].node);
    }
    for (const auto& [reg, held] : plan.held)
      if (held.owner != reg && held.owner != no_register)
        planned.memory_of.emplace(code.value_of(reg), code.value_of(held.owner));
  };
  interpreter::plan_segments(code, sizes, choice_for(device), add);
  return planned;
}

KernelStatistics kernel_statistics(Context& context) {
  return fusion::kernels_of(context)->statistics();
}

void wait_for_kernels(Context& context) { fusion::kernels_of(context)->wait(); }

void open_kernel_compiler() { fusion::cpu::open_compiler(); }

}  // namespace gradus
