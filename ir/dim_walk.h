// A dimension expression as the steps that compute it, for whoever writes it in another language.
#pragma once

#include "gradus/type.h"

namespace gradus::ir {

// A machine with a stack: operands first, then what is done to the upper two.
class DimSteps {
 public:
  enum class Operation : uint8_t { add, multiply, floor_div, max, min };
  virtual ~DimSteps() = default;
  virtual void constant(int64_t value) = 0;
  virtual void symbol(std::string_view name) = 0;
  virtual void operate(Operation operation) = 0;
};

// Leaves one value more on the stack.
void walk(const Dim& dim, DimSteps& steps);

}  // namespace gradus::ir
