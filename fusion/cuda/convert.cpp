#include "fusion/cuda/convert.h"

#include <fmt/format.h>

namespace gradus::fusion::cuda {

namespace {

bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

std::string call(std::string_view function, std::string_view x) {
  return fmt::format("{}({})", function, x);
}

std::string round_half(DType to, std::string_view x) {
  return call(to == DType::f16 ? "round_f16" : "round_bf16", x);
}

// An integer or truth value -> a floating dtype. 32 bits and more go by way of f64.
std::string integer_to_floating(DType from, DType to, std::string_view x) {
  const bool wide = to == DType::f64 || (is_half(to) && size_of(from) > 2);
  std::string y = call(wide ? "double" : "float", x);
  if (!is_half(to)) return y;
  return round_half(to, wide ? call("odd_f32", y) : y);
}

std::string floating_to_floating(DType from, DType to, std::string_view x) {
  if (to == DType::f64) return call("double", x);
  if (is_half(to)) return round_half(to, from == DType::f64 ? call("odd_f32", x) : std::string(x));
  return from == DType::f64 ? call("float", x) : std::string(x);
}

}  // namespace

TextType held_type(DType dtype) {
  if (dtype == DType::f64) return TextType::f64;
  if (dtype == DType::boolean) return TextType::truth;
  if (dtype == DType::u64) return TextType::u64;
  return is_floating(dtype) ? TextType::f32 : TextType::i64;
}

std::string_view memory_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::f32:
      return "float";
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return "u16";
    case DType::i16:
      return "i16";
    case DType::u32:
      return "u32";
    case DType::u64:
      return "u64";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::i8:
      return "i8";
    case DType::u8:
    case DType::boolean:
      break;
  }
  return "u8";
}

std::string hold(DType dtype, std::string_view x) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::i64:
    case DType::u64:
      return std::string(x);
    case DType::f16:
      return call("from_f16", x);
    case DType::bf16:
      return call("from_bf16", x);
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u32:
    case DType::u16:
    case DType::u8:
      return call("i64", x);
    case DType::boolean:
      break;
  }
  return fmt::format("{} != 0", x);
}

std::string unhold(DType dtype, std::string_view x) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::i64:
    case DType::u64:
      return std::string(x);
    case DType::f16:
      return call("to_f16", x);
    case DType::bf16:
      return call("to_bf16", x);
    default:
      return call(memory_type(dtype), x);
  }
}

std::string convert(DType from, DType to, std::string_view x) {
  if (from == to) return std::string(x);
  if (to == DType::boolean)
    return fmt::format("({} != {})", x,
                       from == DType::f64  ? "0.0"
                       : is_floating(from) ? "0.0f"
                                           : "0");
  if (is_floating(from)) {
    if (is_floating(to)) return floating_to_floating(from, to, x);
    return call(fmt::format("to_{}", gradus::name_of(to)), x);
  }
  if (is_floating(to)) return integer_to_floating(from, to, x);
  if (from == DType::boolean) return call(to == DType::u64 ? "u64" : "i64", x);
  if (to == DType::u64) return call("u64", x);
  if (to == DType::i64) return from == DType::u64 ? call("i64", x) : std::string(x);
  return fmt::format("i64({}({}))", memory_type(to), x);
}

}  // namespace gradus::fusion::cuda
