// Attribute values as a program text writes them, before an operator reads them.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "ir/dim.h"
#include "tensor/tensor.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

struct Literal;
struct NoneLiteral {};

// none, a bool, an integer or dimension expression, a float (inf and nan included), a string, a
// dtype, a list, a dense tensor.
struct Literal {
  std::variant<NoneLiteral, bool, Dim, double, std::string, DType, std::vector<Literal>, Tensor>
      value;

  Literal() = default;
  Literal(const Literal&);
  Literal(Literal&&) noexcept;
  Literal& operator=(const Literal&);
  Literal& operator=(Literal&&) noexcept;
  ~Literal();
  // NOLINTBEGIN: whatever a program can write converts, so that lists of literals read as text.
  Literal(bool b) : value(b) {}
  Literal(Dim d) : value(std::move(d)) {}
  Literal(int64_t i) : value(Dim(i)) {}
  Literal(int i) : value(Dim(i)) {}
  Literal(double f) : value(f) {}
  Literal(std::string s) : value(std::move(s)) {}
  Literal(const char* s) : value(std::string(s)) {}
  Literal(DType d) : value(d) {}
  Literal(std::vector<Literal> list) : value(std::move(list)) {}
  Literal(Tensor t) : value(std::move(t)) {}
  // NOLINTEND
  template <class T>
  static Literal list(const T& items) {
    std::vector<Literal> l;
    for (const auto& item : items) l.emplace_back(item);
    return l;
  }

  bool is_none() const { return std::holds_alternative<NoneLiteral>(value); }
};

struct NamedLiteral {
  std::string name;
  Literal value;
  SourceLocation where;
};
using LiteralList = std::vector<NamedLiteral>;

// As program text; a float keeps every bit and never looks like an integer.
std::string to_string(const Literal& literal);
// A double (or float) as text that reads back to the same bits: "1.0", "-0.0", "1e-300", "inf",
// "nan(0x7ff8000000000001)".
std::string float_text(double value);
std::string float_text(float value);
// A quoted string with escapes.
std::string quoted(std::string_view text);

}  // namespace gradus::ir

#pragma GCC visibility pop
