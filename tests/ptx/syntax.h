// An instruction as it is written.
#pragma once

#include <string_view>
#include <vector>

#include "tests/ptx/lexer.h"

namespace gradus::ptx {

struct Operand {
  enum Kind : uint8_t {
    name,  // register, variable, label, function; perhaps plus an offset
    number,
    memory,  // [name + offset] or [offset]
    vector,  // {a, b}
    list,    // (a, b)
    pair,    // a|b
  };
  Kind kind = name;
  bool negated = false;  // !p
  std::string_view text;
  std::string_view component;  // x of %tid.x
  Number value;
  int64_t offset = 0;
  std::vector<Operand> items;
};

struct Statement {
  uint32_t line = 0;
  std::string_view guard;
  bool unless = false;
  std::vector<std::string_view> parts;  // ld, global, f32
  std::vector<Operand> operands;
};

}  // namespace gradus::ptx
