// The instruction sets for which loops are compiled in addition to the baseline.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#define GRADUS_HAS_V3 1
#else
#define GRADUS_HAS_V3 0
#endif

#pragma GCC visibility push(default)

namespace gradus {

// Whether the CPU has AVX2, BMI2, FMA and F16C, the level x86-64-v3. Results are bit-identical on
// every level.
bool cpu_has_v3();

// The highest level that loops use. v4 is AVX-512. If the environment variable GRADUS_ISA names
// another level than x86-64-v4, v4 is not used. Results are bit-identical on every level.
enum class CpuLevel : uint8_t { base, v3, v4 };
CpuLevel cpu_level();

// A loop for both levels. `body` must always be inlined, because each level has a copy of it.
template <auto body>
struct Levels;
template <class... A, void (*body)(A...)>
struct Levels<body> {
  static void base(A... a) { body(a...); }
#if GRADUS_HAS_V3
  [[gnu::target("arch=x86-64-v3")]] static void v3(A... a) { body(a...); }
  // The function for this machine.
  static auto best() { return cpu_has_v3() ? v3 : base; }
  static void run(A... a) { cpu_has_v3() ? v3(a...) : base(a...); }
#else
  static auto best() { return base; }
  static void run(A... a) { base(a...); }
#endif
};

}  // namespace gradus

#pragma GCC visibility pop
