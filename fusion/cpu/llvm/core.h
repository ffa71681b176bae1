// The library's functions, as the module has them.
#pragma once

#include "fusion/cpu/code_maker.h"

namespace gradus::fusion::cpu {

// While one is there, this thread's calls of the library go to that copy of it.
class CallsCore {
 public:
  explicit CallsCore(const Core& core);
  ~CallsCore();
  CallsCore(const CallsCore&) = delete;
  CallsCore& operator=(const CallsCore&) = delete;

 private:
  const Core* const before_;
};

}  // namespace gradus::fusion::cpu
