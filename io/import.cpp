#include "gradus/import.h"

#include <algorithm>

#include "base/file.h"
#include "io/importers.h"

namespace gradus {

namespace {

#define GRADUS_ADDRESS(name) &name##_importer,
constexpr const Importer* table[] = {GRADUS_IMPORTERS(GRADUS_ADDRESS)};
#undef GRADUS_ADDRESS

// How a file begins.
std::string head_of(const std::string& path) {
  InputFile file(path);
  std::string head(std::min<uint64_t>(file.size(), 4096), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  return head;
}

}  // namespace

std::span<const Importer* const> importers() { return table; }

const Importer* importer_by_ending(std::string_view path) {
  auto it =
      std::ranges::find_if(table, [&](const Importer* i) { return path.ends_with(i->ending); });
  return it == std::end(table) ? nullptr : *it;
}

const Importer& importer_of(const std::string& path) {
  if (const Importer* i = importer_by_ending(path)) return *i;
  const std::string head = head_of(path);
  auto it = std::ranges::find_if(table, [&](const Importer* i) { return i->recognises(head); });
  if (it != std::end(table)) return **it;
  throw Error("{}: is no program by its name or its content; what can be read is {}", path,
              importable());
}

std::string importable(bool models_only) {
  std::vector<std::string> list;
  for (const Importer* i : table)
    if (i->model || !models_only) list.push_back(fmt::format("{} ({})", i->what, i->ending));
  const std::string last = list.back();
  list.pop_back();
  return list.empty() ? last : fmt::format("{} or {}", fmt::join(list, ", "), last);
}

ImportedProgram import_program(const std::string& path, const ImportOptions& options) {
  return importer_of(path).read(path, options);
}

}  // namespace gradus
