// Variables as PTX declares them: space, alignment, type, name, size, initial value.
#pragma once

#include <string_view>

#include "tests/ptx/builder.h"
#include "tests/ptx/token_stream.h"

namespace gradus::ptx {

struct Declaration {
  std::string_view name;
  Variable variable;
};

// Given that the space was read: up to before what ends the declaration (';', ',' or ')').
// `names` is what initial values may name.
Declaration parse_variable(TokenStream&, Space, const ModuleNames& names);

}  // namespace gradus::ptx
