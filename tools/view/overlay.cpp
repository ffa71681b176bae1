#include "tools/view/overlay.h"

#include <algorithm>

#include "gradus/inspect.h"
#include "gradus/messages.h"

namespace gradus::view {

namespace {

// How many instructions the plans leave to a device's host.
size_t plan_all(const Code& code, std::optional<int> device, Overlay& overlay) {
  std::optional<Device> place;
  if (device) place = Device{DeviceKind::cuda, static_cast<uint16_t>(*device)};
  PlannedProgram planned = plan_program(code, overlay.sizes, place);
  for (PlannedKernel& k : planned.kernels)
    overlay.kernels[k.stage].push_back({std::move(k.nodes), std::move(k.nest)});
  overlay.memory_of = std::move(planned.memory_of);
  return planned.host_instructions;
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
    overlay.notes.push_back(
        fmt::format("kernels are not known for {}; say sizes (--set, or Python's view(sizes)): {}",
                    sizes_text(overlay.sizes), e.message()));
  }
  return overlay;
}

void add_profile(Overlay& overlay, const Code& code, const std::vector<cli::TraceEvent>& events,
                 const std::string& path) {
  auto node_of = [&](size_t stage, size_t n, std::string_view op) {
    if (stage >= code.stages() || n >= code.stage(stage).instructions.size() ||
        (!op.empty() && code.stage(stage).instructions[n].op->name != op))
      throw Error(
          "{}: this profile is of another program, or of a run with another "
          "--memory-budget: stage {} has no instruction {} '{}'",
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
