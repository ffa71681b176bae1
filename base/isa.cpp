#include "gradus/isa.h"

#include <cstdlib>
#include <string_view>

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

CpuLevel cpu_level() {
  if (!cpu_has_v3()) return CpuLevel::base;
#if GRADUS_HAS_V3
  static const bool has_v4 = [] {
    const char* isa = std::getenv("GRADUS_ISA");
    const bool less = isa && *isa && std::string_view(isa) != "x86-64-v4";
    return !less && __builtin_cpu_supports("x86-64-v4");
  }();
  return has_v4 ? CpuLevel::v4 : CpuLevel::v3;
#else
  return CpuLevel::v3;
#endif
}

}  // namespace gradus
