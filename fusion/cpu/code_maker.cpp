#include "fusion/cpu/code_maker.h"

#include <filesystem>

#include <dlfcn.h>
#include <link.h>

#include "gradus/version.h"

namespace gradus::fusion::cpu {

namespace {

// As fusion/cpu/CMakeLists.txt calls it.
std::string module_name() {
  return fmt::format("libgradus_llvm-{}.{}.so", GRADUS_VERSION_MAJOR, GRADUS_VERSION_MINOR);
}

Core core() {
  return {
      .version = GRADUS_VERSION,
      .check_failed = &gradus::check_failed,
      .numel = &gradus::numel,
      .print = [](const Nest& nest) { return fusion::print(nest); },
      .reduces = [](const Nest& nest) { return nest.reduces(); },
      .dtype_of = [](const Nest& nest, ValueNumber v) { return nest.dtype_of(v); },
      .rule_of = &fusion::rule_of,
      .half_power_rule = &fusion::half_power_rule,
      .half_power_of = &ops::half_power_of,
      .lanes_of = &fusion::lanes_of,
      .row_loops = &fusion::row_loops,
      .cells_of = &fusion::cells_of,
      .walks = [](const Nest& nest, const Frame& frame,
                  const Cell& cell) { return Walks(nest, frame, cell); },
      .has_rows = &fusion::has_rows,
      .with_wide_result = &work::with_wide_result,
      .outer_call = [](StageCalls* calls, int64_t number) { return calls->run(number); },
  };
}

// The folder of the file that this code is in: of libgradus.so, of a program, or of a shared module
// that has the library inside. Empty where that is not known for certain.
std::filesystem::path own_folder() {
  Dl_info info;
  link_map* map = nullptr;
  if (!dladdr1(reinterpret_cast<void*>(&core), &info, reinterpret_cast<void**>(&map),
               RTLD_DL_LINKMAP))
    return {};
  std::filesystem::path file = map->l_name;
  std::error_code failed;
  if (file.empty()) file = std::filesystem::read_symlink("/proc/self/exe", failed);
  return file.is_absolute() ? file.parent_path() : std::filesystem::path();
}

// The module's path, beside the library's own file or, of a program in bin/, above it. Empty where
// it is in neither. The run path alone is not enough: sanitizers call the loader in our stead, and
// it then looks in theirs.
std::filesystem::path find_module(const std::string& name) {
  const auto own = own_folder();
  if (own.empty()) return {};
  std::error_code failed;
  for (const auto& folder : {own, own.parent_path()})
    if (auto path = folder / name; std::filesystem::exists(path, failed)) return path;
  return {};
}

// The module, where it was found or where the system's loader looks: in the run path of the
// library's file, and in the system's folders. Null, and why, where it cannot be opened.
void* open_module(std::string& why) {
  const std::string name = module_name();
  const auto found = find_module(name);
  void* module = dlopen((found.empty() ? name : found.string()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) why = fmt::format("the compiler of kernels cannot be loaded: {}", dlerror());
  return module;
}

const CodeMaker* open_code_maker(std::string& why) {
  void* module = open_module(why);  // never closed: what LLVM leaves in a process needs it
  if (!module) return nullptr;
  auto make = reinterpret_cast<MakeCodeMaker>(dlsym(module, make_code_maker_name));
  const CodeMaker* maker = make ? make(core()) : nullptr;
  if (!maker)
    why = fmt::format("the compiler of kernels cannot be used: {} is not of Gradus {}",
                      module_name(), GRADUS_VERSION);
  return maker;
}

}  // namespace

const CodeMaker& code_maker() {
  static std::string why;
  static const CodeMaker* const maker = open_code_maker(why);
  if (!maker) throw ResourceError(why);
  return *maker;
}

}  // namespace gradus::fusion::cpu
