// Texts of nests with rows, which the kernels of every target are tried on.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "gradus/dtype.h"

namespace gradus::fusion::test {

inline constexpr std::string_view reducers[] = {"sum", "prod", "max", "min", "all", "any"};

// What a reduction of a dtype gives, as operators have it.
inline DType result_of(std::string_view reducer, DType d) {
  if (reducer == "all" || reducer == "any") return DType::boolean;
  const bool adds = reducer == "sum" || reducer == "prod";
  return adds && !is_floating(d) ? DType::i64 : d;
}

inline std::string reduction(std::string_view reducer, std::string_view x, DType d) {
  std::string s = fmt::format("reduce {}({}) : {}", reducer, x, name_of(result_of(reducer, d)));
  if (reducer == "all" || reducer == "any") return s;
  return s + fmt::format(" in {}", name_of(dtype_of(compute_of(d))));
}

inline std::string softmax_nest(std::string_view d) {
  return fmt::format(
      "nest 2 {{ %v0 = load {0} [strided, contiguous]\n"
      "%v1 = reduce max(%v0) : {0} in {1}\n"
      "%v2 = sub(%v0, %v1) : {0} in {1}\n"
      "%v3 = exp(%v2) : {0} in {1}\n"
      "%v4 = reduce sum(%v3) : {0} in {1}\n"
      "%v5 = div(%v3, %v4) : {0} in {1}\n"
      "store %v5 store_row %v1, %v4 }}",
      d, d == "f64" ? "f64" : "f32");
}

inline std::string softmax_derivative_nest(std::string_view d) {
  return fmt::format(
      "nest 2 {{ %v0 = load {0} [strided, contiguous]\n"
      "%v1 = load {0} [strided, contiguous]\n"
      "%v2 = mul(%v0, %v1) : {0} in {1}\n"
      "%v3 = reduce sum(%v2) : {0} in {1}\n"
      "%v4 = sub(%v1, %v3) : {0} in {1}\n"
      "%v5 = mul(%v0, %v4) : {0} in {1} store %v5 }}",
      d, d == "f64" ? "f64" : "f32");
}

}  // namespace gradus::fusion::test
