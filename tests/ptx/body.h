// The body of a function.
#pragma once

#include "tests/ptx/builder.h"
#include "tests/ptx/declarations.h"
#include "tests/ptx/token_stream.h"

namespace gradus::ptx {

// Given the opening brace as the next token: up to behind the closing one.
void parse_body(TokenStream&, FunctionBuilder&, const ModuleNames&);

}  // namespace gradus::ptx
