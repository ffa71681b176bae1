// Numbers of every dtype, and tensors of them.
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "gradus/convert.h"
#include "gradus/messages.h"
#include "ir/text/cursor.h"

namespace gradus::ir {

namespace {

constexpr size_t most_dimensions = 64;  // of a tensor literal

template <class T>
constexpr DType dtype_of_type() {
  int d = 0;
  auto is_t = [](auto tag) { return std::is_same_v<typename decltype(tag)::type, T>; };
  while (!visit_dtype(static_cast<DType>(d), is_t)) ++d;
  return static_cast<DType>(d);
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

// Digits (sign apart) -> T, rounded once; nullopt if it does not fit.
template <class T>
std::optional<T> read_real(std::string_view text) {
  using Read = std::conditional_t<std::is_same_v<T, float>, float, double>;
  Read value = 0;
  auto [p, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || std::isinf(value)) return std::nullopt;
  if constexpr (std::is_same_v<T, Read>) {
    return value;
  } else {
    T narrow = convert<T>(value);
    if (std::isinf(static_cast<float>(narrow))) return std::nullopt;
    return narrow;
  }
}

// After `nan`: nan(0x7ff8000000000001) gives all bits, `nan` alone is the quiet NaN.
template <class T>
T nan_bits(Cursor& c, bool negative) {
  using Bits = BitsOf<T>;
  Bits bits = std::bit_cast<Bits>(convert<T>(std::numeric_limits<double>::quiet_NaN()));
  if (c.accept(TokenKind::left_parenthesis)) {
    Token token = c.expect(TokenKind::bits, "of the NaN");
    uint64_t given = 0;
    const char* end = token.text.data() + token.text.size();
    auto [p, error] = std::from_chars(token.text.data() + 2, end, given, 16);
    bits = static_cast<Bits>(given);
    T value = std::bit_cast<T>(bits);
    bool nan = [&] {
      if constexpr (std::is_floating_point_v<T>)
        return std::isnan(value);
      else
        return std::isnan(static_cast<float>(value));
    }();
    if (error != std::errc() || bits != given || !nan)
      c.fail(token.where, "{} are not the bits of a NaN of {}", printable(token.text),
             name_of(dtype_of_type<T>()));
    c.expect(TokenKind::right_parenthesis, "after the NaN's bits");
  }
  if (negative) bits ^= static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  return std::bit_cast<T>(bits);
}

template <class T>
T element_real(Cursor& c) {
  using Bits = BitsOf<T>;
  bool negative = c.accept(TokenKind::minus);
  if (c.accept("nan")) return nan_bits<T>(c, negative);
  T value{};
  if (c.accept("inf")) {
    value = convert<T>(std::numeric_limits<double>::infinity());
  } else {
    if (!c.at(TokenKind::floating) && !c.at(TokenKind::integer)) c.fail_expected("a number");
    auto read = read_real<T>(c.peek().text);
    if (!read)
      c.fail(c.where(), "{}{} does not fit {}", negative ? "-" : "", printable(c.peek().text),
             name_of(dtype_of_type<T>()));
    value = *read;
    c.take();
  }
  if (!negative) return value;
  return std::bit_cast<T>(
      static_cast<Bits>(std::bit_cast<Bits>(value) ^ (Bits{1} << (8 * sizeof(T) - 1))));
}

template <class T>
T element_integer(Cursor& c) {
  using Limits = std::numeric_limits<T>;
  SourceLocation start = c.where();
  bool negative = c.accept(TokenKind::minus);
  if (!c.at(TokenKind::integer))
    c.fail_expected(fmt::format("an integer for a tensor of {}", name_of(dtype_of_type<T>())));
  Token token = c.take();
  auto fail = [&](auto value) {
    c.fail(start, "{} does not fit {}, which holds {} to {}", value, name_of(dtype_of_type<T>()),
           +Limits::min(), +Limits::max());
  };
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (!negative) return c.magnitude(token, negative, Limits::max());
    if (int64_t value = c.integer(token, negative)) fail(value);
    return 0;
  } else {
    int64_t value = c.integer(token, negative);
    if (value < int64_t{Limits::min()} || value > int64_t{Limits::max()}) fail(value);
    return static_cast<T>(value);
  }
}

template <class T>
T element(Cursor& c) {
  if constexpr (std::is_same_v<T, bool>) {
    if (c.accept("true")) return true;
    if (!c.accept("false")) c.fail_expected("true or false for a tensor of bool");
    return false;
  } else if constexpr (std::is_integral_v<T>) {
    return element_integer<T>(c);
  } else {
    return element_real<T>(c);
  }
}

// Memory is taken for what was read, never for what the shape promises.
template <class T>
void elements(Cursor& c, std::span<const int64_t> shape, std::vector<std::byte>& out) {
  if (shape.empty()) {
    T value = element<T>(c);
    auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
    return;
  }
  SourceLocation start = c.where();
  if (!c.accept(TokenKind::left_bracket))
    c.fail_expected(fmt::format("'[' and {} elements", shape[0]));
  int64_t found = 0;
  for (; !c.at(TokenKind::right_bracket); ++found) {
    if (found) c.expect(TokenKind::comma, "or ']' after an element");
    if (found == shape[0])
      c.fail(c.where(), "more than {} elements; the tensor's type says how many stand in this list",
             shape[0]);
    elements<T>(c, shape.subspan(1), out);
  }
  if (found != shape[0])
    c.fail(start, "expected {} elements in this list, as the tensor's type says, found {}",
           shape[0], found);
  c.take();
}

}  // namespace

Tensor read_tensor(Cursor& c) {
  SourceLocation start = c.where();
  WrittenType written = c.type();
  const Type& t = written.type;
  if (!t.is_tensor() || !written.any.empty() || !all_constant(t.dims) || t.device != Device())
    c.fail(start, "a tensor literal's type has a dtype and plain numbers as sizes: f32[2] [1, 2]");
  if (t.dims.size() > most_dimensions)
    c.fail(start, "a tensor literal has at most {} dimensions", most_dimensions);
  Sizes shape;
  for (const Dim& d : t.dims) shape.push_back(d.value());
  auto count = checked_numel(shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(size_of(t.dtype)), &bytes))
    c.fail(start, "the tensor literal {} has more elements than can be counted", to_string(t));
  std::vector<std::byte> values;
  visit_dtype(t.dtype, [&](auto tag) { elements<typename decltype(tag)::type>(c, shape, values); });
  Tensor tensor = Tensor::empty(t.dtype, shape);
  if (bytes) std::memcpy(tensor.mutable_data(), values.data(), static_cast<size_t>(bytes));
  return tensor;
}

double read_floating(Cursor& c) { return element_real<double>(c); }

double read_real(Cursor& c, std::string_view what) {
  if (!c.at_floating() && !c.at(TokenKind::integer) && !c.at(TokenKind::minus))
    c.fail_expected(what);
  return element_real<double>(c);
}

}  // namespace gradus::ir
