// Which instruction sets the loops are compiled for beside the baseline.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#define GRADUS_HAS_V3 1
#else
#define GRADUS_HAS_V3 0
#endif

#pragma GCC visibility push(default)

namespace gradus {

// AVX2, FMA and F16C: the level x86-64-v3. Both levels give the same bits.
bool cpu_has_v3();

// The widest that loops may use here: v4 is AVX-512. All give the same bits. GRADUS_ISA can ask for
// less than the machine has, as it does for compiled kernels.
enum class CpuLevel : uint8_t { base, v3, v4 };
CpuLevel cpu_level();

// A loop for both levels. `body` is to be inlined always: each level has a copy.
template <auto body>
struct Levels;
template <class... A, void (*body)(A...)>
struct Levels<body> {
  static void base(A... a) { body(a...); }
#if GRADUS_HAS_V3
  [[gnu::target("arch=x86-64-v3")]] static void v3(A... a) { body(a...); }
  // The one for this machine.
  static auto best() { return cpu_has_v3() ? v3 : base; }
  static void run(A... a) { cpu_has_v3() ? v3(a...) : base(a...); }
#else
  static auto best() { return base; }
  static void run(A... a) { base(a...); }
#endif
};

}  // namespace gradus

#pragma GCC visibility pop
