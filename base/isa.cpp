#include "gradus/isa.h"

namespace gradus {

bool cpu_has_v3() {
#if GRADUS_HAS_V3
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  return has;
#else
  return false;
#endif
}

}  // namespace gradus
