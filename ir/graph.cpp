#include "gradus/graph.h"

#include <set>

namespace gradus::ir {

std::string_view Source::line(SourceLocation where) const {
  if (!where.known()) return {};
  size_t at = 0;
  for (uint32_t line = 1; line < where.line; ++line) {
    at = text.find('\n', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  std::string_view rest = std::string_view(text).substr(at);
  rest = rest.substr(0, rest.find('\n'));
  return rest.ends_with('\r') ? rest.substr(0, rest.size() - 1) : rest;
}

OperandType Graph::type_of(const Operand& o) const {
  OperandType t;
  if (const ValueId* v = std::get_if<ValueId>(&o)) {
    t.kind = OperandType::Kind::tensor;
    t.type = &(*this)[*v].type;
  } else if (const Number* n = std::get_if<Number>(&o)) {
    t.kind = OperandType::Kind::number;
    t.category = n->category;
  } else if (std::holds_alternative<Dim>(o)) {
    t.kind = OperandType::Kind::number;
    t.category = Category::integral;
  }
  return t;
}

std::vector<std::string> Graph::dimension_names() const {
  std::set<std::string, std::less<>> names;
  for (const Value& v : values)
    for (const Dim& d : v.type.dims)
      d.for_each_symbol([&](std::string_view name) { names.emplace(name); });
  return {names.begin(), names.end()};
}

Error Graph::error_at(SourceLocation where, std::string_view message) const {
  if (!source) return Error::at(name, {}, message);
  return Error::at(source->file, where, message, source->line(where));
}

}  // namespace gradus::ir
