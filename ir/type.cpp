#include "gradus/type.h"

#include <fmt/format.h>

namespace gradus::ir {

Type Type::handle(HandleSignature signature) {
  Type t = handle();
  t.signature = make_ref<const HandleSignature>(std::move(signature));
  return t;
}

bool Type::same_signature(const Type& a, const Type& b) {
  return a.signature && b.signature && a.signature->outputs == b.signature->outputs &&
         a.signature->inputs == b.signature->inputs;
}

std::string to_string(const Type& type) {
  if (!type.is_tensor()) return "handle";
  std::string s = fmt::format("{}{}", name_of(type.dtype), to_string(type.dims));
  if (type.device != Device()) s += "@" + to_string(type.device);
  return s;
}

}  // namespace gradus::ir
