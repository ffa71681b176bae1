// Which instruction sets the loops are compiled for beside the baseline.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define GRADUS_HAS_V3 1
#else
#define GRADUS_HAS_V3 0
#endif

namespace gradus {

// AVX2, FMA and F16C: the level x86-64-v3. Both levels give the same bits.
bool cpu_has_v3();

}  // namespace gradus
