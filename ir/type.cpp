#include "gradus/type.h"

#include <algorithm>

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

Sharing Type::sharing(std::string_view group) const {
  if (placement)
    for (const Placement::Entry& e : placement->entries)
      if (e.group == group) return e.sharing;
  return Sharing::replicated;
}

void Type::set_sharing(std::string_view group, Sharing sharing) {
  if (this->sharing(group) == sharing) return;
  std::vector<Placement::Entry> entries;
  if (placement) entries = placement->entries;
  std::erase_if(entries, [&](const Placement::Entry& e) { return e.group == group; });
  if (sharing != Sharing::replicated) {
    const auto behind =
        std::ranges::find_if(entries, [&](const Placement::Entry& e) { return e.group > group; });
    entries.insert(behind, {std::string(group), sharing});
  }
  placement = {};
  if (!entries.empty()) placement = make_ref<const Placement>(std::move(entries));
}

bool same_sharing(const Type& a, const Type& b) {
  return a.placement == b.placement ||
         (a.placement && b.placement && a.placement->entries == b.placement->entries);
}

Type cotangent_type(Type type) {
  if (const Ref<const Placement> placement = type.placement)
    for (const Placement::Entry& e : placement->entries)
      if (e.sharing == Sharing::partial) type.set_sharing(e.group, Sharing::replicated);
  return type;
}

std::string to_string(const Type& type) {
  if (!type.is_tensor()) return "handle";
  std::string s = fmt::format("{}{}", name_of(type.dtype), to_string(type.dims));
  if (type.device != Device()) s += "@" + to_string(type.device);
  if (type.placement)
    for (const Placement::Entry& e : type.placement->entries)
      s += fmt::format(" {}({})", e.sharing == Sharing::varying ? "varying" : "partial", e.group);
  return s;
}

}  // namespace gradus::ir
