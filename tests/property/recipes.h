// How operators are called by the property tests: the one table to add a line to when the generic
// calls do not fit a new operator.
#pragma once

#include <span>
#include <string_view>

namespace gradus::property {

// Operands are written as letters with sizes, samples.h says what they mean. An empty `op` is
// tried on every operator that has no line of its own.
struct Recipe {
  std::string_view op, operands, attributes;
  // Inputs (a<operand>) whose derivative is no slope, by intention.
  std::string_view no_slope = "";
};
extern const std::span<const Recipe> recipes;

}  // namespace gradus::property
