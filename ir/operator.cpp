#include "gradus/operator.h"

namespace gradus::ir {

const Type& InferCall::tensor(size_t i) const {
  if (is_number(i)) fail("{} must be a tensor, not a number", name_of_operand(i));
  if (!given(i)) fail("{} is missing", name_of_operand(i));
  if (!in[i].type->is_tensor())
    fail("{} must be a tensor; a handle can only be given to `eval`", name_of_operand(i));
  return *in[i].type;
}

std::string InferCall::name_of_operand(size_t i) const {
  if (op.operands.empty()) return fmt::format("operand {}", i);
  const OperandSpec& spec = op.operand(i);
  if (spec.variadic)
    return fmt::format("operand {} of '{}'", i + 1 - op.operands.size(), spec.name);
  return fmt::format("operand '{}'", spec.name);
}

void InferCall::require_equal(const Dim& a, const Dim& b, std::string_view what) const {
  if (a == b) return;
  if (a.is_constant() && b.is_constant())
    fail("sizes {} and {} differ: {}", a.value(), b.value(), what);
  if (equalities) equalities->push_back({a, b, fmt::format("{}: {}", op.name, what)});
}

void InferCall::fail_with(const std::string& message) const {
  throw Error(fmt::format("{}: {}", op.name, message));
}

std::string signature(const Operator& op) {
  std::string s = std::string(op.name) + "(";
  bool first = true;
  for (const OperandSpec& o : op.operands) {
    s += fmt::format("{}{}{}{}", first ? "" : ", ", o.name, o.variadic ? "..." : "",
                     o.optional ? "|none" : "");
    first = false;
  }
  bool semicolon = true;
  for (const NamedLiteral& a : op.describe()) {
    s += semicolon ? "; " : ", ";
    semicolon = false;
    s += a.name;
    if (!a.value.is_none() || a.where.known()) s += " = " + to_string(a.value);
  }
  s += ")";
  for (size_t i = 0; i < op.results.size(); ++i)
    s += (i ? ", " : " -> ") + std::string(op.results[i]);
  return s;
}

}  // namespace gradus::ir
