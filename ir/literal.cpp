#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "gradus/convert.h"
#include "gradus/messages.h"
#include "gradus/operator.h"

namespace gradus::ir {

namespace {

// "nan" for the quiet NaN, "-nan" for it with the sign set, else with all bits: "nan(0x7fc00001)".
template <class Bits>
std::string nan_text(Bits bits, Bits quiet) {
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if (bits == quiet) return "nan";
  if (bits == static_cast<Bits>(quiet | sign)) return "-nan";
  return fmt::format("nan(0x{:x})", bits);
}

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return nan_text(std::bit_cast<Bits>(value),
                    std::bit_cast<Bits>(std::numeric_limits<T>::quiet_NaN()));
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

// Elements row-major, nested by dimension.
void print_elements(const Tensor& t, int dim, int64_t& at, std::string& out) {
  if (dim == t.rank()) {
    visit_dtype(t.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T v = t.data_as<T>()[at];
      if constexpr (std::is_same_v<T, bool>)
        out += v ? "true" : "false";
      else if constexpr (std::is_same_v<T, uint64_t>)
        out += fmt::format("{}", v);
      else if constexpr (std::is_integral_v<T>)
        out += fmt::format("{}", static_cast<int64_t>(v));
      else if constexpr (std::is_floating_point_v<T>)
        out += float_text(v);
      else if (float f = convert<float>(v); !std::isnan(f))
        out += float_text(f);
      else
        out += nan_text(v.bits, T(std::numeric_limits<float>::quiet_NaN()).bits);
    });
    ++at;
    return;
  }
  out += "[";
  for (int64_t i = 0; i < t.shape()[dim]; ++i) {
    if (i) out += ", ";
    print_elements(t, dim + 1, at, out);
  }
  out += "]";
}

}  // namespace

// Here, since a variant's are long and would stand wherever a literal is copied.
Literal::Literal(const Literal&) = default;
Literal::Literal(Literal&&) noexcept = default;
Literal& Literal::operator=(const Literal&) = default;
Literal& Literal::operator=(Literal&&) noexcept = default;
Literal::~Literal() = default;

std::string float_text(double value) { return shortest(value); }
std::string float_text(float value) { return shortest(value); }

std::string quoted(std::string_view text) {
  std::string s = "\"";
  for (size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    switch (c) {
      case '"':
        s += "\\\"";
        break;
      case '\\':
        s += "\\\\";
        break;
      case '\n':
        s += "\\n";
        break;
      case '\t':
        s += "\\t";
        break;
      default:
        // A text is UTF-8, whatever the bytes of a string are.
        size_t length = utf8_length(text, at);
        if (length == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          s += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          s += text.substr(at, length);
          at += length - 1;
        }
    }
  }
  return s + "\"";
}

std::string to_string(const Literal& literal) {
  struct Print {
    std::string operator()(NoneLiteral) const { return "none"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(const Dim& d) const { return d.to_string(); }
    std::string operator()(double f) const { return float_text(f); }
    std::string operator()(const std::string& s) const { return quoted(s); }
    std::string operator()(DType d) const { return std::string(name_of(d)); }
    std::string operator()(const std::vector<Literal>& list) const {
      std::string s = "[";
      for (size_t i = 0; i < list.size(); ++i) s += (i ? ", " : "") + to_string(list[i]);
      return s + "]";
    }
    std::string operator()(const Tensor& tensor) const {
      Tensor t = tensor.contiguous();
      std::string s = fmt::format("{}{} ", name_of(t.dtype()), gradus::to_string(t.shape()));
      int64_t at = 0;
      print_elements(t, 0, at, s);
      return s;
    }
  };
  return std::visit(Print(), literal.value);
}

}  // namespace gradus::ir
