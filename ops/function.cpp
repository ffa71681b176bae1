#include "ops/function.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/error.h"
#include "base/text.h"

namespace gradus::ops {

namespace {

struct Functions {
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<const OpaqueFunction>, std::less<>> by_name;
};

// Never destroyed: threads that outlive main may still look.
Functions& functions() {
  static auto* f = new Functions();
  return *f;
}

}  // namespace

void register_function(std::shared_ptr<const OpaqueFunction> function) {
  if (!function) throw Error("a function that is registered must not be null");
  std::string name = function->name();
  if (name.empty()) throw Error("a function that is registered must have a name");
  Functions& f = functions();
  std::unique_lock lock(f.mutex);
  if (!f.by_name.emplace(name, std::move(function)).second)
    throw Error("a function named '{}' is registered already; choose another name",
                printable(name));
}

std::shared_ptr<const OpaqueFunction> find_function(std::string_view name) {
  Functions& f = functions();
  std::shared_lock lock(f.mutex);
  auto it = f.by_name.find(name);
  return it == f.by_name.end() ? nullptr : it->second;
}

std::vector<std::string> function_names() {
  Functions& f = functions();
  std::shared_lock lock(f.mutex);
  std::vector<std::string> names;
  for (const auto& [name, function] : f.by_name) names.push_back(name);
  return names;
}

std::string no_function(std::string_view name) {
  std::vector<std::string> names = function_names();
  std::string hint = did_you_mean(name, std::vector<std::string_view>(names.begin(), names.end()));
  return fmt::format(
      "no C++ function named '{}' is registered{} register it before the program is read, or name "
      "the library that brings it",
      printable(name), hint.empty() ? ";" : hint + " Otherwise");
}

}  // namespace gradus::ops
