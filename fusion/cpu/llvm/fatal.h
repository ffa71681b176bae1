// LLVM's fatal errors as exceptions.
#pragma once

#include "gradus/error.h"

namespace gradus::fusion::cpu {

// While one is there, a fatal error of LLVM on the thread that made it is a ResourceError instead
// of the end of the process. What LLVM worked on is then in no state to be used or destroyed.
// Errors on other threads take their usual way.
class FatalErrorsThrow {
 public:
  FatalErrorsThrow();
  ~FatalErrorsThrow();
  FatalErrorsThrow(const FatalErrorsThrow&) = delete;
  FatalErrorsThrow& operator=(const FatalErrorsThrow&) = delete;
};

}  // namespace gradus::fusion::cpu
