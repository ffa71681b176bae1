#include "gradus/attributes.h"

#include <algorithm>
#include <limits>

#include "gradus/error.h"
#include "gradus/messages.h"

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
bool read_literal(const Literal& l, GraphName& g, std::string& what) {
  return read_as(l, g.name, what, "a graph's name in double quotes");
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

namespace {

[[noreturn]] void unknown_attribute(const ir::NamedLiteral& given, const AttributeInfo& info) {
  std::vector<std::string_view> names;
  for (const Member& m : info.members) names.push_back(m.name);
  const std::string near = did_you_mean(given.name, names);
  throw Error::at(
      "", given.where,
      names.empty() ? fmt::format("there is no attribute '{}'; the operator takes none", given.name)
                    : fmt::format("there is no attribute '{}'{} attributes are: {}", given.name,
                                  near.empty() ? "; the" : near + " The", fmt::join(names, ", ")));
}

// Where a member lies in a record.
const void* place_of(const Member& m, const ir::AttributeRecord& record) {
  return reinterpret_cast<const std::byte*>(&record) + m.offset;
}
void* place_of(const Member& m, ir::AttributeRecord& record) {
  return reinterpret_cast<std::byte*>(&record) + m.offset;
}

[[noreturn]] void missing_attribute(const Member& m, ir::AttributeRecord& record) {
  std::string what;
  m.type->read(Literal(), place_of(m, record), what);  // says what it takes
  throw Error("attribute '{}' is missing and has no default; give it{}: {} = …", m.name,
              what.empty() ? "" : fmt::format(" as {}", what), m.name);
}

}  // namespace

LiteralList describe_attributes(const AttributeInfo& info) {
  LiteralList list;
  list.reserve(info.members.size());
  // `where` marks the ones with a default: a default may be `none`.
  for (const Member& m : info.members) {
    if (m.required)
      list.push_back({std::string(m.name), Literal(), {}});
    else
      list.push_back({std::string(m.name), m.type->write(place_of(m, *info.defaults)), {1, 1}});
  }
  return list;
}

Attributes read_attributes(const AttributeInfo& info, const LiteralList& given) {
  const std::span<const Member> members = info.members;
  if (given.empty() && std::ranges::none_of(members, &Member::required)) return info.defaults;
  Ref<ir::AttributeRecord> record = info.make();
  GRADUS_CHECK(members.size() <= 64);
  uint64_t seen = 0;  // by member
  for (const ir::NamedLiteral& g : given) {
    const auto m = std::ranges::find(members, g.name, &Member::name);
    if (m == members.end()) unknown_attribute(g, info);
    std::string what;
    if (!m->type->read(g.value, place_of(*m, *record), what))
      throw Error::at(
          "", g.where,
          fmt::format("attribute '{}' must be {}, not {}", g.name, what, to_string(g.value)));
    const uint64_t bit = uint64_t{1} << (m - members.begin());
    if (seen & bit)
      throw Error::at("", g.where, fmt::format("attribute '{}' is given twice", g.name));
    seen |= bit;
  }
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].required && !(seen >> i & 1)) missing_attribute(members[i], *record);
  return record;
}

LiteralList write_attributes(const AttributeInfo& info, const Attributes& attributes) {
  LiteralList list;
  // What `read_attributes` makes of no attributes, as most nodes have it.
  if (attributes == info.defaults && std::ranges::none_of(info.members, &Member::required))
    return list;
  for (const Member& m : info.members) {
    Literal l = m.type->write(place_of(m, *attributes));
    if (m.required || to_string(l) != to_string(m.type->write(place_of(m, *info.defaults))))
      list.push_back({std::string(m.name), std::move(l), {}});
  }
  return list;
}

}  // namespace gradus::ops
