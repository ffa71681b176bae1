#include "fusion/cuda/library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>

namespace gradus::fusion::cuda {

namespace {

namespace files = std::filesystem;

void add_folder(std::vector<std::string>& folders, const files::path& folder) {
  std::error_code failed;
  if (!files::is_directory(folder, failed)) return;
  std::string s = folder.lexically_normal().string();
  if (std::find(folders.begin(), folders.end(), s) == folders.end())
    folders.push_back(std::move(s));
}

void add_toolkit(std::vector<std::string>& folders, const files::path& root) {
  for (const char* part : {"lib64", "lib", "targets/x86_64-linux/lib"})
    add_folder(folders, root / part);
}

// The folders of packages under a Python environment's root.
void add_wheels(std::vector<std::string>& folders, const files::path& root,
                std::span<const std::string_view> wheels) {
  std::error_code failed;
  std::vector<files::path> libraries{root / "lib/python3"};
  for (files::directory_iterator it(root / "lib", failed), end; !failed && it != end;
       it.increment(failed))
    if (it->path().filename().string().starts_with("python3.")) libraries.push_back(it->path());
  for (const files::path& library : libraries)
    for (const char* packages : {"site-packages", "dist-packages"})
      for (std::string_view wheel : wheels) add_folder(folders, library / packages / wheel);
}

// The file that an opened library is, as the loader found it.
std::string path_of(void* handle, const std::string& asked) {
  char folder[4096];
  if (dlinfo(handle, RTLD_DI_ORIGIN, folder) != 0) return asked;
  return (files::path(folder) / files::path(asked).filename()).string();
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// The one file that the environment names.
void open_named(Library& library, const LibraryNames& names, const char* path) {
  library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library.handle) {
    library.path = path_of(library.handle, path);
    return;
  }
  const char* why = dlerror();
  library.fault = fmt::format("{} is not used: {} names {}, which cannot be opened: {}", names.what,
                              names.variable, path, why ? why : "no reason was given");
}

}  // namespace

void* Library::function(const char* name) {
  void* f = handle ? dlsym(handle, name) : nullptr;
  if (!f && handle) {
    fault = fmt::format("{} has no function {}: another version of {} is wanted", path, name, what);
    handle = nullptr;
  }
  return f;
}

std::vector<std::string> library_folders(std::span<const std::string_view> wheels) {
  std::vector<std::string> folders;
  for (const char* name : {"GRADUS_CUDA", "CUDA_PATH", "CUDA_HOME"})
    if (const char* root = environment(name)) {
      add_toolkit(folders, root);
      if (name == std::string_view("GRADUS_CUDA")) add_folder(folders, root);
    }
  folders.push_back("");  // where the loader looks
  add_toolkit(folders, "/usr/local/cuda");
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* root = environment(name)) {
      add_wheels(folders, root, wheels);
      add_folder(folders, files::path(root) / "lib");
    }
  if (const char* home = environment("HOME"))
    add_wheels(folders, files::path(home) / ".local", wheels);
  for (const char* root : {"/usr/local", "/usr"}) add_wheels(folders, root, wheels);
  return folders;
}

Library open_library(const LibraryNames& names) {
  Library library{.what = std::string(names.what)};
  if (const char* path = names.variable ? environment(names.variable) : nullptr) {
    open_named(library, names, path);
    return library;
  }
  std::string tried;
  const std::vector<std::string> folders = library_folders(names.wheels);
  for (std::string_view file : names.files)
    for (const std::string& folder : folders) {
      const std::string path =
          folder.empty() ? std::string(file) : fmt::format("{}/{}", folder, file);
      std::error_code failed;
      if (!folder.empty() && !files::exists(path, failed)) continue;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        library.path = path_of(handle, path);
        // The toolkit brings a library without a driver behind it, to link programs with.
        if (library.path.find("/stubs/") == std::string::npos) {
          library.handle = handle;
          return library;
        }
        tried += fmt::format("; {} is the toolkit's stub, which is no driver", library.path);
        library.path.clear();
        continue;
      }
      const char* why = dlerror();
      tried += fmt::format("; {}", why ? why : path.c_str());
    }
  library.fault = fmt::format("{} was not found{}. {}", names.what, tried, names.advice);
  return library;
}

}  // namespace gradus::fusion::cuda
