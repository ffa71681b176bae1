// Attributes as plain structs: one tuple of named members makes reading, writing and describing.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gradus/operator.h"

namespace gradus::ir {
struct Graph;
}

#pragma GCC visibility push(default)

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
  bool names_dimensions = false;
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
// Likewise, of a member that names one dimension of a tensor, or several: a program may count them
// from the end, rules see them counted from the front (gradus/dimension.h).
template <class A, class T>
constexpr Field<A, T> dimension(std::string_view name, T A::*member) {
  return {name, member, false, true};
}
template <class A, class T>
constexpr Field<A, T> required_dimension(std::string_view name, T A::*member) {
  return {name, member, true, true};
}

// One dimension, which a program must name.
struct DimAttr {
  int64_t dim = 0;
  static constexpr auto fields() { return std::tuple(required_dimension("dim", &DimAttr::dim)); }
};
struct NoAttributes {
  static constexpr auto fields() { return std::tuple<>(); }
};

// A graph of the same file that an attribute names.
struct GraphName {
  std::string name;
  // Set by whoever makes the node; the parser resolves the names within its file.
  std::shared_ptr<const ir::Graph> graph;
};

template <class A>
struct Record final : ir::AttributeRecord {
  Record() = default;
  explicit Record(A a) : value(std::move(a)) {}
  A value{};
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
bool read_literal(const Literal&, GraphName&, std::string& what);
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
inline Literal write_literal(const GraphName& g) { return g.name; }
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

template <class T>
inline constexpr bool is_graph_name = false;
template <>
inline constexpr bool is_graph_name<GraphName> = true;
template <>
inline constexpr bool is_graph_name<std::optional<GraphName>> = true;
template <class A>
inline constexpr bool names_graphs = std::apply(
    [](const auto&... f) {
      return (false || ... ||
              is_graph_name<std::remove_cvref_t<decltype(std::declval<A>().*f.member)>>);
    },
    A::fields());
template <class A>
SmallVector<const GraphName*, 2> graphs_of(const Attributes& attributes) {
  SmallVector<const GraphName*, 2> graphs;
  const A& a = attributes_as<A>(attributes);
  auto add = [&](const auto& member) {
    using T = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<T, GraphName>) graphs.push_back(&member);
    if constexpr (std::is_same_v<T, std::optional<GraphName>>)
      if (member) graphs.push_back(&*member);
  };
  std::apply([&](const auto&... f) { (add(a.*f.member), ...); }, A::fields());
  return graphs;
}

// A struct of attributes as data, so that reading, writing and describing are written once: what
// they would be for each struct by itself was a third of the code of the operators' definitions.
struct MemberType {
  bool (*read)(const Literal&, void* member, std::string& what);
  Literal (*write)(const void* member);
};
template <class T>
inline constexpr MemberType member_type{
    [](const Literal& l, void* member, std::string& what) {
      return read_literal(l, *static_cast<T*>(member), what);
    },
    [](const void* member) { return write_literal(*static_cast<const T*>(member)); }};

struct Member {
  std::string_view name;
  bool required;
  ptrdiff_t offset;  // in bytes, within a record
  const MemberType* type;
};
struct AttributeInfo {
  std::span<const Member> members;
  Attributes defaults;
  Ref<ir::AttributeRecord> (*make)();  // with the defaults
};

template <class A>
const AttributeInfo& attribute_info() {
  static const AttributeInfo info = [] {
    Ref<Record<A>> defaults = make_ref<Record<A>>();
    const auto* record =
        reinterpret_cast<const std::byte*>(static_cast<const ir::AttributeRecord*>(defaults.get()));
    auto member = [&](const auto& f) {
      const auto& value = defaults->value.*f.member;
      return Member{f.name, f.required, reinterpret_cast<const std::byte*>(&value) - record,
                    &member_type<std::remove_cvref_t<decltype(value)>>};
    };
    static const auto members =
        std::apply([&](const auto&... f) { return std::array<Member, sizeof...(f)>{member(f)...}; },
                   A::fields());
    return AttributeInfo{members, defaults,
                         [] { return Ref<ir::AttributeRecord>(make_ref<Record<A>>()); }};
  }();
  return info;
}

LiteralList describe_attributes(const AttributeInfo& info);
Attributes read_attributes(const AttributeInfo& info, const LiteralList& given);
LiteralList write_attributes(const AttributeInfo& info, const Attributes& attributes);

template <class A>
LiteralList describe_attributes() {
  return describe_attributes(attribute_info<A>());
}
template <class A>
Attributes read_attributes(const LiteralList& given) {
  return read_attributes(attribute_info<A>(), given);
}
template <class A>
LiteralList write_attributes(const Attributes& attributes) {
  return write_attributes(attribute_info<A>(), attributes);
}

}  // namespace gradus::ops

#pragma GCC visibility pop
