#include "ops/attributes.h"

#include <limits>

namespace gradus::ops {

namespace {

template <class T>
bool read_as(const Literal& l, T& out, std::string& what, const char* expected) {
  if (const T* v = std::get_if<T>(&l.value)) {
    out = *v;
    return true;
  }
  what = expected;
  return false;
}

template <class List>
bool read_list(const Literal& l, List& out, std::string& what, const char* expected) {
  typename List::value_type item{};
  out.clear();
  auto* items = std::get_if<std::vector<Literal>>(&l.value);
  if (!items) {
    if (read_literal(l, item, what)) {
      out.push_back(item);
      return true;
    }
    what = expected;
    return false;
  }
  for (const Literal& i : *items) {
    if (!read_literal(i, item, what)) {
      what = expected;
      return false;
    }
    out.push_back(item);
  }
  return true;
}

}  // namespace

bool read_literal(const Literal& l, bool& b, std::string& what) {
  return read_as(l, b, what, "true or false");
}

bool read_literal(const Literal& l, int64_t& i, std::string& what) {
  const Dim* d = std::get_if<Dim>(&l.value);
  if (d && d->is_constant()) {
    i = d->value();
    return true;
  }
  what = d ? "an integer known when compiling" : "an integer";
  return false;
}

bool read_literal(const Literal& l, double& f, std::string& what) {
  if (const double* d = std::get_if<double>(&l.value)) {
    f = *d;
    return true;
  }
  if (const Dim* d = std::get_if<Dim>(&l.value); d && d->is_constant()) {
    f = static_cast<double>(d->value());
    return true;
  }
  if (const std::string* s = std::get_if<std::string>(&l.value)) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    if (*s == "inf" || *s == "-inf" || *s == "nan") {
      f = *s == "inf" ? inf : *s == "-inf" ? -inf : std::numeric_limits<double>::quiet_NaN();
      return true;
    }
  }
  what = "a number";
  return false;
}

bool read_literal(const Literal& l, std::string& s, std::string& what) {
  return read_as(l, s, what, "a string in double quotes");
}
bool read_literal(const Literal& l, DType& d, std::string& what) {
  return read_as(l, d, what, "a dtype (f64, f32, f16, bf16, i64, i32, i8, u8 or bool)");
}
bool read_literal(const Literal& l, Dim& d, std::string& what) {
  return read_as(l, d, what, "an integer or a dimension expression");
}
bool read_literal(const Literal& l, Tensor& t, std::string& what) {
  return read_as(l, t, what, "a dense tensor such as f32[2] [1, 2]");
}
bool read_literal(const Literal& l, Literal& out, std::string&) {
  out = l;
  return true;
}
bool read_literal(const Literal& l, Dims& d, std::string& what) {
  return read_list(l, d, what, "a list of integers or dimension expressions");
}
bool read_literal(const Literal& l, Ints& v, std::string& what) {
  return read_list(l, v, what, "a list of integers");
}
bool read_literal(const Literal& l, std::vector<bool>& v, std::string& what) {
  return read_list(l, v, what, "a list of true and false");
}
bool read_literal(const Literal& l, std::vector<double>& v, std::string& what) {
  return read_list(l, v, what, "a list of numbers");
}

void unknown_attribute(const ir::NamedLiteral& given, const LiteralList& known) {
  std::string names;
  for (const auto& k : known) names += (names.empty() ? "" : ", ") + k.name;
  throw Error::at(
      "", given.where,
      known.empty()
          ? fmt::format("there is no attribute '{}': the operator takes none", given.name)
          : fmt::format("there is no attribute '{}'; the attributes are: {}", given.name, names));
}

void wrong_attribute(const ir::NamedLiteral& given, const std::string& expected) {
  throw Error::at("", given.where,
                  fmt::format("attribute '{}' must be {}, not {}", given.name, expected,
                              to_string(given.value)));
}

void missing_attribute(std::string_view name) {
  throw Error("attribute '{}' is missing and has no default", name);
}

}  // namespace gradus::ops
