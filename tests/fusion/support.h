// Operands for nests, and runs of them side by side.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "fusion/cpu/compiler.h"
#include "gradus/convert.h"
#include "tests/reference/work.h"

namespace gradus::fusion {
using reference::evaluate;
}

namespace gradus::fusion::test {

inline constexpr DType all_dtypes[] = {
    DType::f64, DType::f32,     DType::f16, DType::bf16, DType::i64, DType::i32, DType::i8,
    DType::u8,  DType::boolean, DType::i16, DType::u16,  DType::u32, DType::u64};

// A target that this machine runs, if it runs any.
inline const cpu::Isa some_isa = cpu::runs_here(cpu::Isa::neon) ? cpu::Isa::neon : cpu::Isa::avx2;

// Values of a dtype: edges among random ones, some of random bits. Tame ones are neither infinite
// nor NaN, nor so large that their sums are.
inline std::vector<std::byte> values(DType dtype, size_t n, uint64_t seed, bool tame = false) {
  std::mt19937_64 random(seed);
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double edges[] = {0.0,  -0.0,   1.0,   -1.0,   0.5,    -0.5, 2.0,     inf,    -inf,
                          NAN,  1e-320, 1e-41, 6e-8,   65520., 3e38, -1e300,  0.1,    1.5,
                          2.5,  -2.5,   127.5, -128.5, 255.5,  3e9,  -9.3e18, 9.3e18, 1e5,
                          1e10, -1e4,   0.7,   7.0,    -3.0,   30.5, 1e22};
  std::vector<std::byte> bytes(n * size_of(dtype));
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(bytes.data());
    for (size_t i = 0; i < n; ++i) {
      const uint64_t bits = random();
      const size_t way = tame ? 7 : bits % 8;
      if (way < 2) {
        out[i] = convert<T>(edges[(bits >> 8) % std::size(edges)]);
      } else if (way == 2) {
        if constexpr (std::is_same_v<T, bool>)
          out[i] = bits & 256;
        else
          std::memcpy(&out[i], reinterpret_cast<const char*>(&bits) + (8 - sizeof(T)), sizeof(T));
      } else if (way == 3 && !is_floating(dtype)) {
        out[i] = convert<T>(static_cast<int64_t>(bits >> 8) % 5 - 2);
      } else {
        const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
        out[i] = convert<T>(is_floating(dtype) ? 8 * unit - 4 : 256 * unit - 100);
      }
    }
  });
  return bytes;
}

// Whether two elements have the same bits, or are both NaN.
inline bool same(DType dtype, const std::byte* a, const std::byte* b) {
  if (!std::memcmp(a, b, size_of(dtype))) return true;
  return visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      return false;
    } else {
      T x, y;
      std::memcpy(&x, a, sizeof x);
      std::memcpy(&y, b, sizeof y);
      return std::isnan(static_cast<double>(static_cast<float>(x))) &&
             std::isnan(static_cast<double>(static_cast<float>(y)));
    }
  });
}

inline double shown(DType dtype, const std::byte* a) {
  return visit_dtype(dtype, [&](auto tag) {
    typename decltype(tag)::type x;
    std::memcpy(&x, a, sizeof x);
    return convert<double>(x);
  });
}

// A frame of these sizes as the nest's loads walk; strides of strided loads leave gaps. Memory for
// loads and stores, with room behind each store that nobody may write.
class Memory {
 public:
  static constexpr size_t guard = 64;
  static constexpr std::byte untouched{0xa5};

  Memory(const Nest& nest, Sizes sizes, uint64_t seed, bool tame = false) : nest_(nest) {
    frame.sizes = std::move(sizes);
    for (size_t k = 0; k < nest.loads.size(); ++k) {
      const Load& load = nest.loads[k];
      Sizes strides(frame.sizes.size());
      int64_t step = load.walks.back() == Walk::contiguous ? 1 : 2, extent = 1;
      for (size_t d = frame.sizes.size(); d-- > 0;) {
        if (load.walks[d] == Walk::broadcast) continue;
        strides[d] = step;
        extent += step * std::max<int64_t>(frame.sizes[d] - 1, 0);
        step = step * std::max<int64_t>(frame.sizes[d], 1) + 1;
      }
      operands_.push_back(values(load.dtype, static_cast<size_t>(extent), seed * 31 + k, tame));
      frame.strides.push_back(strides);
    }
    check_frame(nest, frame);
    expected_ = fresh();
    evaluate(nest, frame, arguments(expected_).data());
  }

  // What a run of `kernel` does otherwise than the reference; empty if nothing.
  std::string difference(const cpu::Kernel& kernel, WorkerPool& workers) {
    return difference([&](std::byte* const* args) { kernel.run(frame, args, workers); });
  }
  // `run` is given the first elements of loads and stores.
  template <class Run>
  std::string difference(const Run& run) {
    auto results = fresh();
    run(arguments(results).data());
    for (size_t i = 0; i < results.size(); ++i) {
      const DType dtype = nest_.dtype_of(stored(i));
      const size_t bytes = size_of(dtype), n = elements(i);
      for (size_t e = 0; e < n; ++e)
        if (!same(dtype, &results[i][e * bytes], &expected_[i][e * bytes]))
          return fmt::format("store {} of {}: element {} is {}, not {}; operands{}", i,
                             to_string(frame.sizes), e, shown(dtype, &results[i][e * bytes]),
                             shown(dtype, &expected_[i][e * bytes]),
                             i < nest_.stores.size() ? operands_of(e) : " of more elements");
      for (size_t e = n * bytes; e < results[i].size(); ++e)
        if (results[i][e] != untouched)
          return fmt::format("store {} of {} writes beyond its end", i, to_string(frame.sizes));
    }
    return "";
  }

  using Buffers = std::vector<std::vector<std::byte>>;
  // Of the loads, from their first elements; and what the reference stores, with the room behind.
  const Buffers& operands() const { return operands_; }
  const Buffers& expected() const { return expected_; }

  Frame frame;

 private:
  // Stores, then those of rows, then those of columns.
  ValueNumber stored(size_t i) const {
    const size_t n = nest_.stores.size(), rows = n + nest_.row_stores.size();
    return i < n      ? nest_.stores[i]
           : i < rows ? nest_.row_stores[i - n]
                      : nest_.column_stores[i - rows];
  }
  size_t elements(size_t i) const {
    const auto n = static_cast<size_t>(frame.count());
    const auto columns = static_cast<size_t>(frame.sizes.back());
    if (i < nest_.stores.size() || n == 0) return n;
    return i < nest_.stores.size() + nest_.row_stores.size() ? n / columns : columns;
  }
  Buffers fresh() const {
    Buffers b;
    const size_t results =
        nest_.stores.size() + nest_.row_stores.size() + nest_.column_stores.size();
    for (size_t i = 0; i < results; ++i)
      b.emplace_back(elements(i) * size_of(nest_.dtype_of(stored(i))) + guard, untouched);
    return b;
  }
  std::vector<std::byte*> arguments(Buffers& results) {
    std::vector<std::byte*> args;
    for (auto& o : operands_) args.push_back(o.data());
    for (auto& r : results) args.push_back(r.data());
    return args;
  }
  std::string operands_of(size_t element) const {
    std::string s;
    for (size_t k = 0; k < operands_.size(); ++k) {
      int64_t rest = static_cast<int64_t>(element), at = 0;
      for (size_t d = frame.sizes.size(); d-- > 0; rest /= frame.sizes[d])
        at += rest % frame.sizes[d] * frame.strides[k][d];
      const DType d = nest_.loads[k].dtype;
      s += fmt::format(" {}", shown(d, &operands_[k][static_cast<size_t>(at) * size_of(d)]));
    }
    return s;
  }

  const Nest& nest_;
  Buffers operands_;
  Buffers expected_;
};

}  // namespace gradus::fusion::test
