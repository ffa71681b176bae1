// Kernels of a few instructions, and what they give for many operands.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/error.h"
#include "tests/ptx/launch.h"

namespace gradus::ptx::test {

// A module with one kernel `k`.
inline std::string kernel(const std::string& params, const std::string& body,
                          const std::string& before = "") {
  return ".version 8.8\n.target sm_90\n.address_size 64\n" + before + "\n.visible .entry k(" +
         params + ")\n{\n" + body + "\n}\n";
}

// The message of the Error that f throws; empty if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Values of a C++ type in the memory of a device.
template <class T>
uint64_t upload(Memory& memory, const std::vector<T>& values) {
  const uint64_t p = memory.allocate(values.size() * sizeof(T));
  memory.write(p, values.data(), values.size() * sizeof(T));
  return p;
}
template <class T>
std::vector<T> download(const Memory& memory, uint64_t p, size_t n) {
  std::vector<T> values(n);
  memory.read(values.data(), p, n * sizeof(T));
  return values;
}

// Runs a kernel `k` on these arguments.
template <class... A>
LaunchCounts run_kernel(const std::string& ptx, Memory& memory, Dim3 grid, Dim3 block,
                        size_t shared, const A&... args) {
  Launch l;
  l.grid = grid;
  l.block = block;
  l.shared_bytes = shared;
  l.args = {static_cast<const void*>(&args)...};
  return launch(Module::parse(ptx), "k", l, memory);
}

// Runs `code` once for each element: it finds its operands in %a, %b, %c (registers of the sizes
// of A) and leaves its result in %d, as wide as R. %p, %q are predicates, %t.. 32-bit, %u.. 64-bit
// registers to work with.
template <class R, class... A>
std::vector<R> each(const std::string& code, const std::vector<A>&... operands) {
  const size_t n = std::min({operands.size()...});
  Memory memory;
  const std::vector<uint64_t> in{upload(memory, operands)...};
  const std::vector<size_t> sizes{sizeof(A)...};
  const uint64_t out = memory.allocate(n * sizeof(R)), count = n;
  const auto bits = [](size_t bytes) { return std::to_string(8 * bytes); };
  std::string params = ".param .u64 n, .param .u64 out";
  std::string body =
      ".reg .pred %p, %q, %done; .reg .b64 %i, %at, %n, %u<8>; .reg .b32 %x<3>, %t<8>;\n"
      ".reg .b16 %h<8>; .reg .b" +
      bits(sizeof(R)) +
      " %d;\n"
      "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %x2, %tid.x;\n"
      "mad.lo.u32 %x0, %x0, %x1, %x2; cvt.u64.u32 %i, %x0; ld.param.u64 %n, [n];\n"
      "setp.ge.u64 %done, %i, %n; @%done bra $end;\n";
  for (size_t k = 0; k < in.size(); ++k) {
    const std::string name(1, static_cast<char>('a' + k)), width = bits(sizes[k]);
    params += ", .param .u64 " + name;
    body += ".reg .b" + width + " %" + name + ";\nld.param.u64 %at, [" + name + "];\n" +
            "mad.lo.u64 %at, %i, " + std::to_string(sizes[k]) + ", %at;\nld.global.b" + width +
            " %" + name + ", [%at];\n";
  }
  body += code + "\nld.param.u64 %at, [out]; mad.lo.u64 %at, %i, " + std::to_string(sizeof(R)) +
          ", %at;\nst.global.b" + bits(sizeof(R)) + " [%at], %d;\n$end: ret;\n";
  Launch l;
  l.block.x = 96;
  l.grid.x = static_cast<uint32_t>((n + 95) / 96);
  l.args = {&count, &out};
  for (const uint64_t& p : in) l.args.push_back(&p);
  launch(Module::parse(kernel(params, body)), "k", l, memory);
  return download<R>(memory, out, n);
}

// Values with the edges of their type among random bits.
template <class T>
std::vector<T> samples(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> v(n);
  for (T& x : v) {
    uint64_t bits = random();
    const uint64_t way = random() % 8;
    if constexpr (std::is_floating_point_v<T>) {
      using L = std::numeric_limits<T>;
      const T edges[] = {T{0},
                         -T{0},
                         T{1},
                         -T{1},
                         L::infinity(),
                         -L::infinity(),
                         L::quiet_NaN(),
                         L::max(),
                         L::lowest(),
                         L::min(),
                         -L::min(),
                         L::denorm_min(),
                         -L::denorm_min(),
                         L::min() / 3,
                         T{0.5},
                         T{1.5},
                         T{2.5},
                         T{-2.5},
                         T(2147483648.0),
                         T(4294967296.0),
                         T(-2147483904.0),
                         T(9223372036854775808.0),
                         T(18446744073709551616.0),
                         T(1e-3),
                         T(65520),
                         T(65519),
                         T(255.5),
                         T(127.5),
                         L::epsilon(),
                         T{1} + L::epsilon()};
      if (way < 3) {
        x = edges[bits % std::size(edges)];
      } else if (way < 5) {
        std::memcpy(&x, reinterpret_cast<const char*>(&bits) + 8 - sizeof(T), sizeof(T));
      } else {
        x = std::ldexp(static_cast<T>(static_cast<int64_t>(bits)) * T(0x1p-63),
                       static_cast<int>(random() % 40) - 10);
      }
    } else {
      const uint64_t edges[] = {0,
                                1,
                                2,
                                31,
                                32,
                                33,
                                63,
                                64,
                                65,
                                255,
                                256,
                                ~uint64_t{0},
                                ~uint64_t{1},
                                uint64_t{1} << 31,
                                uint64_t{1} << 63,
                                (uint64_t{1} << 31) - 1,
                                (uint64_t{1} << 63) - 1,
                                0x8000,
                                0x7fff,
                                0x7c00,
                                0xfc00,
                                0x7e00,
                                0x3c00,
                                0x0001,
                                0x8001,
                                0x03ff,
                                0x7bff};
      if (way < 3)
        bits = edges[bits % std::size(edges)];
      else if (way < 5)
        bits >>= random() % 64;
      x = static_cast<T>(bits);
    }
  }
  return v;
}

// Equal bits, or two NaNs.
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a && b != b) return true;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Whether `code` does to samples of A what f does to them.
template <class R, class... A, class F>
void expect_each(const std::string& code, F f, size_t n = 4000) {
  uint64_t seed = 0;
  const auto next = [&] { return seed += 7919; };
  const std::tuple<std::vector<A>...> operands{samples<A>(n, next())...};
  const auto results = std::apply([&](const auto&... v) { return each<R>(code, v...); }, operands);
  size_t wrong = 0;
  for (size_t i = 0; i < n && wrong < 5; ++i) {
    const R expected = std::apply([&](const auto&... v) { return f(v[i]...); }, operands);
    if (same(results[i], expected)) continue;
    ++wrong;
    std::string given;
    std::apply([&](const auto&... v) { ((given += fmt::format(" {}", v[i])), ...); }, operands);
    ADD_FAILURE() << code << "\n  of" << given << " gives " << fmt::format("{}", results[i])
                  << ", not " << fmt::format("{}", expected);
  }
}

}  // namespace gradus::ptx::test
