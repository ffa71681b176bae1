#include "interpreter/run/faults.h"

#include <array>

namespace gradus::interpreter {

void clear_faults(devices::Backend& device, const SegmentPlan& plan, std::byte* buffer) {
  if (plan.faults.empty()) return;
  const std::vector<std::byte> none(plan.faults.size() * SegmentPlan::fault_bytes);
  device.to_device(buffer + plan.faults_at, none.data(), none.size());
}

void check_faults(devices::Backend& device, const SegmentPlan& plan, const std::byte* buffer,
                  uint32_t& at) {
  if (plan.faults.empty()) return;
  std::vector<std::array<int64_t, 2>> met(plan.faults.size());
  static_assert(sizeof met[0] == SegmentPlan::fault_bytes);
  device.to_host(reinterpret_cast<std::byte*>(met.data()), buffer + plan.faults_at,
                 met.size() * SegmentPlan::fault_bytes);
  for (size_t f = 0; f < met.size(); ++f) {
    if (met[f][0] == 0) continue;
    at = plan.faults[f].instruction;
    throw plan.faults[f].error(met[f][1]);
  }
}

}  // namespace gradus::interpreter
