#include "gradus/function.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "gradus/error.h"
#include "gradus/messages.h"

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

std::shared_ptr<const OpaqueFunction> OpaqueFunction::with_scalars(const CallScalars&) const {
  throw Error("it takes tensors alone; leave `convention` and `scalars` out");
}

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

std::string no_function(std::string_view name, std::string_view caller) {
  std::vector<std::string> names = function_names();
  std::erase_if(names, [&](const std::string& n) { return find_function(n)->caller() != caller; });
  std::string hint = did_you_mean(name, std::vector<std::string_view>(names.begin(), names.end()));
  const bool python = caller == python_caller;
  return fmt::format(
      "no {} function named '{}' is registered{} register it before the program is read{}",
      python ? "Python" : "C++", printable(name), hint.empty() ? ";" : hint + " Otherwise",
      python ? ": import the module that does" : ", or load the plug-in that registers it");
}

}  // namespace gradus::ops
