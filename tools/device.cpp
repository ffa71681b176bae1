#include "tools/device.h"

#include "gradus/kernels.h"
#include "tools/cli.h"

namespace gradus::cli {

std::optional<int> device_number(std::string_view command, const std::string& device) {
  constexpr std::string_view cuda = "cuda:";
  if (device.empty() || device == "cpu") return std::nullopt;
  std::optional<int> number;
  if (device.starts_with(cuda))
    number = whole_number<int>(std::string_view(device).substr(cuda.size()));
  if (!number || *number < 0 || *number > UINT16_MAX)
    throw UsageError("gradus {}: --device {} is no device; say cpu or cuda:0", command, device);
  return number;
}

Device cuda_device(int number) { return {DeviceKind::cuda, static_cast<uint16_t>(number)}; }

void open_compiler(std::string_view otherwise) {
  try {
    open_kernel_compiler();
  } catch (const ResourceError& e) {
    throw Error("{}; {}", e.what(), otherwise);
  }
}

std::optional<int> device_number(std::string_view command, const std::string& device,
                                 const ir::Graph& program) {
  if (auto number = device_number(command, device)) return number;
  for (const ir::Stage& stage : program.stages)
    for (ir::ValueId v : stage.inputs)
      if (const Device d = program[v].type.device; d.kind == DeviceKind::cuda) return d.index;
  return std::nullopt;
}

std::string host_report(const State& state) {
  const Code& code = *state.code();
  std::string text;
  const auto list = state.host_instructions();
  for (const HostInstruction& h : list) {
    const Instruction& i = code.stage(h.stage).instructions[h.instruction];
    text += fmt::format("  stage {}, instruction {}: {}", h.stage, h.instruction, i.op->name);
    if (i.where.known()) text += fmt::format(" @{}:{}", i.where.line, i.where.column);
    text += "\n";
  }
  return fmt::format("host: {} instruction{} between copies\n{}", list.size(),
                     list.size() == 1 ? "" : "s", text);
}

}  // namespace gradus::cli
