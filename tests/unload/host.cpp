// Loads the module, uses it, and takes it away again: no crash, and no thread is left.
//   unload_host MODULE unload | main | busy
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include <dlfcn.h>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(1);
}

std::ptrdiff_t threads() {
  std::filesystem::directory_iterator list("/proc/self/task");
  return std::distance(begin(list), end(list));
}

template <class F>
F* symbol(void* module, const char* name) {
  auto* f = reinterpret_cast<F*>(dlsym(module, name));
  if (!f) fail(dlerror());
  return f;
}

void* load(const char* path) {
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!module) fail(dlerror());
  return module;
}

void use(void* module) {
  int status = symbol<int()>(module, "gradus_unload_run")();
  if (status != 0) fail("the module failed with " + std::to_string(status));
}

// A joined thread is in the list a moment longer.
void expect_threads(std::ptrdiff_t expected) {
  for (int i = 0; i < 200 && threads() != expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (threads() != expected)
    fail(std::to_string(threads()) + " threads, " + std::to_string(expected) + " before");
}

bool is_loaded(const char* path) {
  void* again = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (again) dlclose(again);
  return again != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("unload_host MODULE unload | main | busy");
  const char* path = argv[1];
  if (!std::strcmp(argv[2], "unload")) {
    std::ptrdiff_t before = threads();
    for (int round = 0; round < 5; ++round) {
      void* module = load(path);
      // What a thread keeps for itself lets the module go when the thread ends.
      std::thread([&] { use(module); }).join();
      if (threads() <= before) fail("it has no workers: nothing is shown");
      dlclose(module);
      if (is_loaded(path)) fail("it is still loaded");
      expect_threads(before);
    }
  } else if (!std::strcmp(argv[2], "main")) {
    // This thread keeps it loaded until it ends.
    for (int round = 0; round < 5; ++round) {
      void* module = load(path);
      use(module);
      dlclose(module);
    }
  } else {
    symbol<void()>(load(path), "gradus_unload_stay_busy")();
  }
  return 0;
}
