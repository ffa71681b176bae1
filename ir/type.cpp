#include "ir/type.h"

#include <fmt/format.h>

namespace gradus::ir {

std::string to_string(const Type& type) {
  if (!type.is_tensor()) return "handle";
  std::string s = fmt::format("{}{}", name_of(type.dtype), to_string(type.dims));
  if (type.device != Device()) s += "@" + to_string(type.device);
  return s;
}

}  // namespace gradus::ir
