#include "gradus/plugin.h"

#include <mutex>
#include <set>
#include <string_view>

#include <dlfcn.h>

#include "base/file.h"
#include "gradus/build.h"
#include "gradus/error.h"

namespace gradus {

void load_plugin(const std::string& path) {
  if (const std::string why = why_no_plugins(); !why.empty())
    throw Error("{}: cannot be loaded: {}", path, why);
  static std::mutex mutex;
  static std::set<void*> loaded;
  regular_file_size(path);  // says what cannot be read; no search along the system's paths
  const bool has_folder = path.find('/') != path.npos;
  std::lock_guard guard(mutex);
  void* library = dlopen((has_folder ? path : "./" + path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    throw Error("{}: cannot be loaded: {}", path, why ? why : "no reason is given");
  }
  if (!loaded.insert(library).second) return;
  auto* version = static_cast<const char* const*>(dlsym(library, "gradus_plugin_version"));
  auto* enter = reinterpret_cast<void (*)()>(dlsym(library, "gradus_plugin_register"));
  if (!version || !enter)
    throw Error("{}: is no plug-in: it lacks GRADUS_PLUGIN (gradus/plugin.h)", path);
  if (std::string_view(*version) != GRADUS_VERSION)
    throw Error("{}: was made for Gradus {}, this is {}; build it anew", path, *version,
                GRADUS_VERSION);
  enter();
}

}  // namespace gradus
