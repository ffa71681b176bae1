// PTX text to decoded code.
#pragma once

#include <string_view>

#include "tests/ptx/code.h"

namespace gradus::ptx {

// Error with the line for whatever the interpreter does not know.
Code parse(std::string_view ptx);

}  // namespace gradus::ptx
