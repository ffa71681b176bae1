// Attributes as plain structs. `fields()` returns a tuple of named members, with which attributes
// are read, written and described.
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

// One attribute: a name and a member of the struct A.
template <class A, class T>
struct Field {
  std::string_view name;
  T A::*member;
  bool required;
  bool names_dimensions = false;
};
// An attribute with a default.
template <class A, class T>
constexpr Field<A, T> field(std::string_view name, T A::*member) {
  return {name, member, false};
}
// An attribute that a program must write.
template <class A, class T>
constexpr Field<A, T> required(std::string_view name, T A::*member) {
  return {name, member, true};
}
// The same for attributes that name dimensions of a tensor. A program may count dimensions from the
// end. Rules receive them counted from the front (gradus/dimension.h).
template <class A, class T>
constexpr Field<A, T> dimension(std::string_view name, T A::*member) {
  return {name, member, false, true};
}
template <class A, class T>
constexpr Field<A, T> required_dimension(std::string_view name, T A::*member) {
  return {name, member, true, true};
}

// One required dimension.
struct DimAttr {
  int64_t dim = 0;
  static constexpr auto fields() { return std::tuple(required_dimension("dim", &DimAttr::dim)); }
};
// No attributes.
struct NoAttributes {
  static constexpr auto fields() { return std::tuple<>(); }
};

// A graph of the same file, which an attribute names.
struct GraphName {
  std::string name;
  // The parser resolves the names in its file. Other code that makes a node sets this member.
  std::shared_ptr<const ir::Graph> graph;
};

// The record of a struct of attributes.
template <class A>
struct Record final : ir::AttributeRecord {
  Record() = default;
  explicit Record(A a) : value(std::move(a)) {}
  A value{};
};
// Returns the struct of a record. The record must be of type A.
template <class A>
const A& attributes_as(const Attributes& p) {
  return static_cast<const Record<A>&>(*p).value;
}
template <class A>
Attributes make_attributes(A a) {
  return Attributes(make_ref<Record<A>>(std::move(a)));
}

// Read a literal into a member. They return false for a literal of another kind, and set `what` to
// what was expected.
bool read_literal(const Literal&, bool&, std::string& what);
bool read_literal(const Literal&, int64_t&, std::string& what);
bool read_literal(const Literal&, double&, std::string& what);  // also reads an integer
bool read_literal(const Literal&, std::string&, std::string& what);
bool read_literal(const Literal&, DType&, std::string& what);
bool read_literal(const Literal&, Dim&, std::string& what);
bool read_literal(const Literal&, Dims&, std::string& what);  // a single size is a list of one
bool read_literal(const Literal&, Ints&, std::string& what);  // a single integer is a list of one
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

// Return the literal of a member.
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
// Whether a member of A names a graph.
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

// A struct of attributes as data, so that one function each reads, writes and describes all
// structs. Templates for each struct were a third of the code of the operators' definitions.
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

// A member of a struct of attributes.
struct Member {
  std::string_view name;
  bool required;
  ptrdiff_t offset;  // in bytes, from the start of the record
  const MemberType* type;
};
struct AttributeInfo {
  std::span<const Member> members;
  Attributes defaults;
  Ref<ir::AttributeRecord> (*make)();  // with the defaults
};

// Returns the data of A's members.
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

// The functions of an operator's record, see ir::Operator.
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
