#include "fusion/cuda/nvrtc.h"

#include <chrono>
#include <filesystem>

#include <dlfcn.h>

#include "gradus/error.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view nvrtc_files[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr std::string_view nvrtc_wheels[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};
constexpr LibraryNames nvrtc_names{
    "NVRTC", nvrtc_files, nvrtc_wheels,
    "Install CUDA 12 or 13, or the Python package nvidia-cuda-nvrtc, or name the toolkit's folder "
    "in GRADUS_CUDA."};

// A number after `before`, or before `after` where that is what is given; 0 if there is none.
int number_before(const std::string& log, const std::string& after) {
  const size_t end = log.find(after);
  if (end == std::string::npos) return 0;
  size_t first = end;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(log[first - 1]))) --first;
  return first == end ? 0 : std::stoi(log.substr(first, end - first));
}

}  // namespace

Resources resources_in(const std::string& log) {
  Resources r;
  r.registers = number_before(log, " registers");
  r.spilled_bytes =
      number_before(log, " bytes spill stores") + number_before(log, " bytes spill loads");
  r.stack_bytes = number_before(log, " bytes stack frame");
  r.shared_bytes = number_before(log, " bytes smem");
  return r;
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc& nvrtc = *new Nvrtc();  // never destroyed: others' threads may compile
  return nvrtc;
}

Nvrtc::Nvrtc() : library_(open_library(nvrtc_names)) {
  if (!library_) return;
  auto load = [&](auto*& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.function(name));
  };
  load(table_.version, "nvrtcVersion");
  load(table_.error, "nvrtcGetErrorString");
  load(table_.create, "nvrtcCreateProgram");
  load(table_.destroy, "nvrtcDestroyProgram");
  load(table_.compile, "nvrtcCompileProgram");
  load(table_.ptx_size, "nvrtcGetPTXSize");
  load(table_.ptx, "nvrtcGetPTX");
  load(table_.cubin_size, "nvrtcGetCUBINSize");
  load(table_.cubin, "nvrtcGetCUBIN");
  load(table_.log_size, "nvrtcGetProgramLogSize");
  load(table_.log, "nvrtcGetProgramLog");
  if (!library_) return;
  if (const int fault = table_.version(&major_, &minor_)) {
    library_.fault =
        fmt::format("{} does not tell its version: {}", library_.path, table_.error(fault));
    library_.handle = nullptr;
    return;
  }
  library_.version = fmt::format("{}.{}", major_, minor_);
  open_builtins();
}

void Nvrtc::open_builtins() {
  namespace files = std::filesystem;
  const files::path file = files::path(library_.path).parent_path() /
                           fmt::format("libnvrtc-builtins.so.{}.{}", major_, minor_);
  std::error_code failed;
  // Where it is not beside the compiler, that may find it by itself, and says so if not.
  if (files::exists(file, failed)) dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::vector<std::string> Nvrtc::options() {
  return {"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
}

Compiled Nvrtc::compile(const std::string& source, const std::string& architecture) const {
  if (!usable()) throw ResourceError("CUDA kernels cannot be compiled: {}", library_.fault);
  const auto start = std::chrono::steady_clock::now();
  Program program = nullptr;
  auto check = [&](int fault, const char* what) {
    if (!fault) return;
    if (program) table_.destroy(&program);
    throw ResourceError("NVRTC {}: {} ({}) failed", library_.version, what, table_.error(fault));
  };
  check(table_.create(&program, source.c_str(), "gradus_kernel.cu", 0, nullptr, nullptr),
        "making a program");
  std::vector<std::string> options = Nvrtc::options();
  options.push_back("--gpu-architecture=" + architecture);
  const bool machine_code = architecture.starts_with("sm_");
  if (machine_code) options.push_back("--ptxas-options=-v");
  std::vector<const char*> given;
  for (const std::string& o : options) given.push_back(o.c_str());
  const int fault = table_.compile(program, static_cast<int>(given.size()), given.data());
  auto text = [&](auto size, auto get, const char* what) {
    size_t n = 0;
    check(size(program, &n), what);
    std::string s(n, '\0');
    if (n) check(get(program, s.data()), what);
    return s;
  };
  Compiled compiled;
  compiled.log = text(table_.log_size, table_.log, "reading the log");
  while (!compiled.log.empty() && (compiled.log.back() == '\0' || compiled.log.back() == '\n'))
    compiled.log.pop_back();
  if (fault) {
    table_.destroy(&program);
    throw ResourceError("NVRTC {} cannot compile a kernel for {}: {}\n{}", library_.version,
                        architecture, table_.error(fault), compiled.log);
  }
  compiled.ptx = text(table_.ptx_size, table_.ptx, "reading the PTX");
  if (!compiled.ptx.empty() && compiled.ptx.back() == '\0') compiled.ptx.pop_back();
  if (machine_code) compiled.cubin = text(table_.cubin_size, table_.cubin, "reading the code");
  table_.destroy(&program);
  compiled.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

}  // namespace gradus::fusion::cuda
