// What the step that makes code is made of.
#pragma once

#include <map>
#include <unordered_map>

#include "interpreter/plan/draft.h"

namespace gradus::interpreter {

// The CPU's code for work, made once for all instructions that share it. The plan keeps it alive.
class CpuCode {
 public:
  explicit CpuCode(SegmentPlan& plan) : plan_(plan) {}
  const work::Kernel& of(const work::WorkRef& work);

 private:
  SegmentPlan& plan_;
  std::unordered_map<const work::Work*, work::Kernel> made_;
};

// Gives every instruction with work code of the device's, or else a detour by the host.
void make_on_device(Draft& draft, CpuCode& host);

// Numbers of the plan and constants of the program, where a device reads them.
class DeviceOperands {
 public:
  explicit DeviceOperands(Draft& draft) : d(draft) {}
  const std::byte* number(const std::byte* number);
  const std::byte* constant(Register r);
  // Numbers are sent when all are known.
  void send();

 private:
  Draft& d;
  std::vector<std::byte*> numbers_;  // by block
  std::map<Register, const std::byte*> constants_;
};

// Whether what a plan does is a few launches, worth being one.
bool is_recordable(const SegmentPlan& plan);

}  // namespace gradus::interpreter
