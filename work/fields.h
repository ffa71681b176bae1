// Structs that list their fields: keys, hashes and text are folded over the lists.
//
//   struct Triangle {
//     Layout x;
//     int64_t diagonal = 0;
//     static constexpr auto fields() {
//       return std::tuple(field("x", &Triangle::x), field("diagonal", &Triangle::diagonal));
//     }
//     friend bool operator==(const Triangle&, const Triangle&) = default;
//   };
//
// The compiler compares all members. A test holds the lists against that: a member that no list
// names would change equality and leave the key as it is.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "gradus/operator.h"
#include "gradus/tensor.h"

namespace gradus::work {

template <class T, class M>
struct Field {
  std::string_view name;
  M T::*member;
};
template <class T, class M>
constexpr Field<T, M> field(std::string_view name, M T::*member) {
  return {name, member};
}

template <class T>
concept HasFields = requires {
  T::fields();
};

// Of any number of elements: a SmallVector or a vector.
template <class T>
concept GrowingList = requires(T list) {
  list.push_back(list[0]);
}
&&!std::convertible_to<T, std::string_view>;

// Calls f(name, member) for each field.
template <class T, class F>
void for_each_field(T& x, F f) {
  std::apply([&](auto... each) { (f(each.name, x.*each.member), ...); },
             std::remove_const_t<T>::fields());
}

// A number that is equal to its own bits alone: zeros' signs count, and a NaN is itself.
struct Real {
  double value = 0;
  Real() = default;
  Real(double v) : value(v) {}               // NOLINT: it is a number
  operator double() const { return value; }  // NOLINT
  friend bool operator==(const Real& a, const Real& b) {
    return std::bit_cast<uint64_t>(a.value) == std::bit_cast<uint64_t>(b.value);
  }
};

// An operator with its attributes: equal where both write the same text.
struct Call {
  const ir::Operator* op = nullptr;
  ir::Attributes attributes;
  std::string text() const;             // "add {alpha = 2}"
  std::string attributes_text() const;  // " {alpha = 2}", or nothing
  friend bool operator==(const Call& a, const Call& b) {
    return a.op == b.op && (a.attributes.get() == b.attributes.get() || a.text() == b.text());
  }
};

// "0.5", "-3" or "true".
std::string text_of(const ir::Number& number);

// Appends values so that two sequences of calls with the same types give the same bytes exactly
// where the values are equal.
class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) {}

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(const T& v) {
    static_assert(!std::is_floating_point_v<T>, "write Real: equal numbers may differ in bits");
    bytes(std::bit_cast<std::array<char, sizeof(int64_t)>>(static_cast<int64_t>(v)));
  }
  void add(std::string_view s) {
    add(s.size());
    key_.append(s);
  }
  void add(const Real& r) { bytes(std::bit_cast<std::array<char, sizeof(double)>>(r.value)); }
  void add(const Call& call) { add(call.op ? std::string_view(call.text()) : std::string_view()); }
  void add(const ir::Operator* op) { add(op ? op->name : std::string_view()); }
  void add(const ir::Number& n) { all(n.category, n.bits()); }
  void add(const SourceLocation& where) { all(where.line, where.column); }
  void add(const Layout& l) { all(l.dtype, l.shape, l.strides); }
  template <class T>
  void add(const std::optional<T>& v) {
    add(v.has_value());
    if (v) add(*v);
  }
  template <HasFields T>
  void add(const T& v) {
    for_each_field(v, [&](std::string_view, const auto& member) { add(member); });
  }
  template <GrowingList T>
  void add(const T& v) {
    add(v.size());
    for (size_t i = 0; i < v.size(); ++i) add(v[i]);
  }
  template <class T, size_t N>
  void add(const std::array<T, N>& v) {
    for (const T& x : v) add(x);
  }

 private:
  template <class... T>
  void all(const T&... v) {
    (add(v), ...);
  }
  template <size_t N>
  void bytes(const std::array<char, N>& b) {
    key_.append(b.data(), N);
  }
  std::string& key_;
};

// Writes values for people: "{x = f32 [2, 3] by [3, 1], diagonal = 0}".
class TextWriter {
 public:
  explicit TextWriter(std::string& text) : text_(text) {}

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(const T& v) {
    if constexpr (std::is_same_v<T, bool>)
      text_ += v ? "true" : "false";
    else if constexpr (std::is_same_v<T, Compute>)
      text_ += name_of(dtype_of(v));
    else if constexpr (requires { name_of(v); })
      text_ += name_of(v);
    else if constexpr (std::is_enum_v<T>)
      text_ += fmt::format("{}", static_cast<int64_t>(v));
    else
      text_ += fmt::format("{}", v);
  }
  void add(std::string_view s) { text_ += s; }
  void add(const Real& r) { text_ += fmt::format("{}", r.value); }
  void add(const Call& call) { text_ += call.op ? call.text() : "none"; }
  void add(const ir::Operator* op) { text_ += op ? op->name : "none"; }
  void add(const ir::Number& n) { text_ += text_of(n); }
  void add(const SourceLocation& where) { text_ += fmt::format("{}:{}", where.line, where.column); }
  void add(const Layout& l) {
    add(l.dtype);
    text_ += fmt::format(" {} by {}", to_string(l.shape), to_string(l.strides));
  }
  template <class T>
  void add(const std::optional<T>& v) {
    if (v)
      add(*v);
    else
      text_ += "none";
  }
  template <HasFields T>
  void add(const T& v) {
    text_ += "{";
    bool first = true;
    for_each_field(v, [&](std::string_view name, const auto& member) {
      text_ += fmt::format("{}{} = ", first ? "" : ", ", name);
      first = false;
      add(member);
    });
    text_ += "}";
  }
  template <GrowingList T>
  void add(const T& v) {
    list(v);
  }
  template <class T, size_t N>
  void add(const std::array<T, N>& v) {
    list(v);
  }

 private:
  template <class List>
  void list(const List& v) {
    text_ += "[";
    for (size_t i = 0; i < v.size(); ++i) {
      if (i) text_ += ", ";
      add(v[i]);
    }
    text_ += "]";
  }
  std::string& text_;
};

}  // namespace gradus::work
