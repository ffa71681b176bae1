// Attributes as plain structs: one tuple of named members makes reading, writing and describing.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ir/operator.h"

namespace gradus::ops {

using ir::Attributes;
using ir::Dim;
using ir::Dims;
using ir::Literal;
using ir::LiteralList;
using Ints = std::vector<int64_t>;

template <class A, class T>
struct Field {
  std::string_view name;
  T A::*member;
  bool required;
};
// A member with a default.
template <class A, class T>
constexpr Field<A, T> field(std::string_view name, T A::*member) {
  return {name, member, false};
}
// A member that a program must write.
template <class A, class T>
constexpr Field<A, T> required(std::string_view name, T A::*member) {
  return {name, member, true};
}

struct NoAttributes {
  static constexpr auto fields() { return std::tuple<>(); }
};

template <class A>
struct Record final : ir::AttributeRecord {
  explicit Record(A a) : value(std::move(a)) {}
  A value;
};
template <class A>
const A& attributes_as(const Attributes& p) {
  return static_cast<const Record<A>&>(*p).value;
}
template <class A>
Attributes make_attributes(A a) {
  return Attributes(make_ref<Record<A>>(std::move(a)));
}

// Literal -> member. They return false where the kind is wrong; `what` then says what is expected.
bool read_literal(const Literal&, bool&, std::string& what);
bool read_literal(const Literal&, int64_t&, std::string& what);
bool read_literal(const Literal&, double&, std::string& what);  // an integer is fine
bool read_literal(const Literal&, std::string&, std::string& what);
bool read_literal(const Literal&, DType&, std::string& what);
bool read_literal(const Literal&, Dim&, std::string& what);
bool read_literal(const Literal&, Dims&, std::string& what);  // one size stands for a list of one
bool read_literal(const Literal&, Ints&, std::string& what);  // likewise
bool read_literal(const Literal&, std::vector<bool>&, std::string& what);
bool read_literal(const Literal&, std::vector<double>&, std::string& what);
bool read_literal(const Literal&, Tensor&, std::string& what);
bool read_literal(const Literal&, Literal&, std::string& what);
template <class T>
bool read_literal(const Literal& l, std::optional<T>& o, std::string& what) {
  if (l.is_none()) {
    o.reset();
    return true;
  }
  T value{};
  if (!read_literal(l, value, what)) {
    what += " or none";
    return false;
  }
  o = std::move(value);
  return true;
}

inline Literal write_literal(bool b) { return b; }
inline Literal write_literal(int64_t i) { return i; }
inline Literal write_literal(double f) { return f; }
inline Literal write_literal(const std::string& s) { return s; }
inline Literal write_literal(DType d) { return d; }
inline Literal write_literal(const Dim& d) { return d; }
inline Literal write_literal(const Tensor& t) { return t; }
inline Literal write_literal(const Literal& l) { return l; }
template <class T, size_t N>
Literal write_literal(const SmallVector<T, N>& v) {
  return Literal::list(v);
}
template <class T>
Literal write_literal(const std::vector<T>& v) {
  std::vector<Literal> list;
  for (auto item : v) list.push_back(write_literal(static_cast<T>(item)));
  return list;
}
template <class T>
Literal write_literal(const std::optional<T>& o) {
  return o ? write_literal(*o) : Literal();
}

[[noreturn]] void unknown_attribute(const ir::NamedLiteral& given, const LiteralList& known);
[[noreturn]] void wrong_attribute(const ir::NamedLiteral& given, const std::string& expected);
[[noreturn]] void missing_attribute(std::string_view name);

template <class A>
LiteralList describe_attributes() {
  LiteralList list;
  A defaults{};
  // `where` marks the ones with a default: a default may be `none`.
  std::apply(
      [&](auto... f) {
        (list.push_back({std::string(f.name),
                         f.required ? Literal() : write_literal(defaults.*f.member),
                         f.required ? SourceLocation() : SourceLocation{1, 1}}),
         ...);
      },
      A::fields());
  return list;
}

template <class A>
Attributes read_attributes(const LiteralList& given) {
  static const Attributes defaults = make_attributes(A{});
  constexpr bool any_required =
      std::apply([](auto... f) { return (false || ... || f.required); }, A::fields());
  if (given.empty() && !any_required) return defaults;
  A a{};
  std::vector<std::string_view> seen;
  for (const ir::NamedLiteral& g : given) {
    bool hit = false;
    auto read = [&](auto f) {
      if (hit || f.name != g.name) return;
      hit = true;
      std::string what;
      if (!read_literal(g.value, a.*f.member, what)) wrong_attribute(g, what);
    };
    std::apply([&](auto... f) { (read(f), ...); }, A::fields());
    if (!hit) unknown_attribute(g, describe_attributes<A>());
    for (std::string_view s : seen)
      if (s == g.name)
        throw Error::at("", g.where, fmt::format("attribute '{}' is given twice", s));
    seen.push_back(g.name);
  }
  auto check = [&](auto f) {
    if (!f.required) return;
    for (std::string_view s : seen)
      if (s == f.name) return;
    missing_attribute(f.name);
  };
  std::apply([&](auto... f) { (check(f), ...); }, A::fields());
  return make_attributes(std::move(a));
}

template <class A>
LiteralList write_attributes(const Attributes& p) {
  LiteralList list;
  const A& a = attributes_as<A>(p);
  A defaults{};
  auto write = [&](auto f) {
    Literal l = write_literal(a.*f.member);
    if (f.required || to_string(l) != to_string(write_literal(defaults.*f.member)))
      list.push_back({std::string(f.name), std::move(l), {}});
  };
  std::apply([&](auto... f) { (write(f), ...); }, A::fields());
  return list;
}

}  // namespace gradus::ops
