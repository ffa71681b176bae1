#include "fusion/cuda/reducer_text.h"

#include <limits>

#include <fmt/format.h>

#include "fusion/cuda/convert.h"

namespace gradus::fusion::cuda {

using work::Reducer;

std::string_view accumulator_type(DType d) {
  return d == DType::boolean ? "i32" : name_of(held_type(d));
}

ReducerText reducer_text(Reducer reducer, DType d) {
  const bool floating = is_floating(d);
  constexpr std::string_view names[] = {"Sum", "Prod", "Max", "Min", "All", "Any"};
  const std::string name =
      fmt::format("{}_{}", names[static_cast<size_t>(reducer)], gradus::name_of(d));
  constexpr double inf = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<int64_t>;
  auto number = [&](double of_float, int64_t of_int) {
    if (floating) return literal(held_type(d), of_float);
    return literal(d == DType::u64 ? TextType::u64 : TextType::i64, of_int);
  };
  auto extreme = [&](char better) {
    return floating ? fmt::format("b {} a || b != b ? b : a", better)
                    : fmt::format("b {} a ? b : a", better);
  };
  std::string identity, combine;
  switch (reducer) {
    case Reducer::sum:
      identity = number(0, 0);
      combine = floating ? "a + b" : "i64(u64(a) + u64(b))";
      break;
    case Reducer::prod:
      identity = number(1, 1);
      combine = floating ? "a * b" : "i64(u64(a) * u64(b))";
      break;
    case Reducer::max:
      identity = number(-inf, d == DType::u64 ? 0 : Limits::min());
      combine = extreme('>');
      break;
    case Reducer::min:
      identity = number(inf, d == DType::u64 ? -1 : Limits::max());  // all bits
      combine = extreme('<');
      break;
    case Reducer::all:
      identity = "1";
      combine = "a & b";
      break;
    case Reducer::any:
      identity = "0";
      combine = "a | b";
      break;
  }
  return {name,
          fmt::format("\nstruct {0} {{\n"
                      "  typedef {1} T;\n"
                      "  static __device__ __forceinline__ T identity() {{ return {2}; }}\n"
                      "  static __device__ __forceinline__ T combine(T a, T b) {{ return {3}; }}\n"
                      "}};\n",
                      name, accumulator_type(d), identity, combine)};
}

}  // namespace gradus::fusion::cuda
