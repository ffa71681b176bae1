#include "tools/view/overlay.h"

#include <algorithm>

#include "base/text.h"
#include "devices/backend.h"
#include "devices/cuda/planned_device.h"
#include "fusion/kernels.h"
#include "interpreter/plan/bind_sizes.h"
#include "ops/opaque.h"

namespace gradus::view {

namespace {

// Says which kernels there would be, and makes none.
class WouldBe final : public fusion::Kernels {
 public:
  explicit WouldBe(std::shared_ptr<fusion::Kernels> judge) : judge_(std::move(judge)) {}
  uint64_t id() const override { return judge_->id(); }
  bool wants(const fusion::Nest& nest, const fusion::Frame& frame) const override {
    return judge_->wants(nest, frame);
  }
  bool takes_columns(int64_t columns) const override { return judge_->takes_columns(columns); }
  std::shared_ptr<const fusion::KernelSet> ready() override {
    return std::make_shared<fusion::KernelSet>();
  }
  std::shared_ptr<const fusion::Kernel> get(const fusion::Nest&, const std::string&) override {
    return std::make_shared<Placeholder>();
  }
  void request(const fusion::Nest&, const std::string&) override {}
  void wait() override {}
  fusion::KernelStatistics statistics() const override { return {}; }

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

class Environment final : public ir::DimEnvironment {
 public:
  explicit Environment(const DimSizes& sizes) : sizes_(sizes) {}
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
  const Environment known(sizes);
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

interpreter::KernelChoice choose(std::optional<int> device) {
  interpreter::KernelChoice choice;
  choice.mode = fusion::FusionMode::first;
  if (device) {
    Context context;
    fusion::cuda::plan_for_device(context, *device);
    choice.source = fusion::kernels_of(context);
    choice.backend = choice.source->backend();
  } else {
    choice.source = std::make_shared<WouldBe>(fusion::kernels_of(*Context::default_context()));
  }
  return choice;
}

// How many instructions the plans leave to a device's host.
size_t plan_all(const Code& code, std::optional<int> device, Overlay& overlay) {
  const interpreter::KernelChoice choice = choose(device);
  size_t on_host = 0;
  std::shared_ptr<const interpreter::SegmentPlan> plan;
  for (size_t s = 0; s < code.segments(); ++s) {
    const Segment& segment = code.segment(s);
    std::vector<Tensor> inputs = stand_ins(code, segment, choice.place(), overlay.sizes);
    std::vector<int64_t> key;
    for (const Tensor& t : inputs) interpreter::append_input_key(t, key);
    if (segment.counts) key.push_back(overlay.sizes.at(code.dimensions()[*segment.counts]));
    plan = interpreter::make_plan(code, s, plan, inputs, std::move(key), choice);
    on_host += static_cast<size_t>(
        std::ranges::count_if(plan->steps, [](const auto& step) { return step.host; }));
    for (const auto& g : plan->groups) {
      Kernel& kernel = overlay.kernels[segment.stage].emplace_back();
      kernel.nest = g.nest();
      for (uint32_t n : g.instructions)
        kernel.nodes.push_back(code.stage(segment.stage).instructions[n].node);
    }
    for (const auto& [reg, held] : plan->held)
      if (held.owner != reg && held.owner != no_register)
        overlay.memory_of.emplace(code.value_of(reg), code.value_of(held.owner));
  }
  return on_host;
}

std::string sizes_text(const DimSizes& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, size);
  return text;
}

}  // namespace

Overlay overlay_of(const Code& code, const DimSizes& sizes, std::optional<int> device) {
  Overlay overlay;
  overlay.kernels.resize(code.stages());
  overlay.times.resize(code.stages());
  overlay.sizes = sizes;
  for (const std::string& name : code.dimensions()) overlay.sizes.emplace(name, size_of_names);
  try {
    const size_t on_host = plan_all(code, device, overlay);
    bool none = true;
    for (const auto& kernels : overlay.kernels) none &= kernels.empty();
    const std::string sizes = overlay.sizes.empty() ? "" : " for " + sizes_text(overlay.sizes);
    const std::string on = device ? fmt::format(" on cuda:{}", *device) : "";
    overlay.notes.push_back((none ? "no kernel pays" : "kernels as planned") + on + sizes);
    if (on_host)
      overlay.notes.push_back(fmt::format("{} instruction{} on the host, between copies", on_host,
                                          on_host == 1 ? "" : "s"));
  } catch (const Error& e) {
    for (auto& kernels : overlay.kernels) kernels.clear();
    overlay.memory_of.clear();
    overlay.notes.push_back(fmt::format("kernels are not known for {}; say sizes with --set: {}",
                                        sizes_text(overlay.sizes), e.message()));
  }
  return overlay;
}

void add_profile(Overlay& overlay, const Code& code, const std::vector<cli::TraceEvent>& events,
                 const std::string& path) {
  auto node_of = [&](size_t stage, size_t n, std::string_view op) {
    if (stage >= code.stages() || n >= code.stage(stage).instructions.size() ||
        (!op.empty() && code.stage(stage).instructions[n].op->name != op))
      throw Error("{}: this profile is of another program: stage {} has no instruction {} '{}'",
                  printable(path), stage, n, printable(op));
    return code.stage(stage).instructions[n].node;
  };
  bool grouped = false;
  for (const cli::TraceEvent& e : events) grouped |= !e.group.empty();
  // What was planned says what each kernel computes, where the same ones ran.
  std::map<std::pair<size_t, std::vector<uint32_t>>, std::string> nests;
  if (grouped) {
    for (size_t s = 0; s < overlay.kernels.size(); ++s) {
      for (Kernel& k : overlay.kernels[s]) nests.emplace(std::pair(s, k.nodes), std::move(k.nest));
      overlay.kernels[s].clear();
    }
    overlay.notes.clear();
  }
  for (const cli::TraceEvent& e : events) {
    const uint32_t node = node_of(e.stage, e.instruction, e.op);
    overlay.times[e.stage][node] += e.duration;
    if (e.group.empty()) continue;
    Kernel& kernel = overlay.kernels[e.stage].emplace_back();
    for (size_t n : e.group) kernel.nodes.push_back(node_of(e.stage, n, ""));
    if (auto nest = nests.find({e.stage, kernel.nodes}); nest != nests.end())
      kernel.nest = nest->second;
  }
  overlay.notes.push_back((grouped ? "times and kernels of " : "times of ") + printable(path));
}

}  // namespace gradus::view
