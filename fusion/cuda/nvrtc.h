// NVIDIA's run-time compiler: CUDA C++ -> PTX and machine code. It needs no device.
#pragma once

#include <string>
#include <vector>

#include "fusion/cuda/library.h"

namespace gradus::fusion::cuda {

// What a source became.
struct Compiled {
  std::string ptx;
  std::string cubin;  // for one architecture; empty where none was named
  std::string log;    // what the compilers say, ptxas's report among it
  double seconds = 0;
};

// What ptxas reports of a kernel.
struct Resources {
  int registers = 0, spilled_bytes = 0, stack_bytes = 0, shared_bytes = 0;
};
Resources resources_in(const std::string& log);

// Thread-safe: one for the process.
class Nvrtc {
 public:
  // The one that was found first, looked for once. Where none is usable, `library()` says why.
  static const Nvrtc& get();

  const Library& library() const { return library_; }
  bool usable() const { return static_cast<bool>(library_); }
  int major() const { return major_; }
  int minor() const { return minor_; }

  // `architecture` is sm_90 or the like, which gives both PTX and machine code, or compute_90,
  // which gives PTX alone. Same bits as the CPU: nothing is contracted or approximated. Throws
  // ResourceError: with its log where the source does not compile, or with the library's fault.
  Compiled compile(const std::string& source, const std::string& architecture) const;

  // The options by which sources are compiled, but for the architecture.
  static std::vector<std::string> options();

 private:
  Nvrtc();

  using Program = struct NvrtcProgram*;
  struct Table {
    int (*version)(int*, int*);
    const char* (*error)(int);
    int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
    int (*destroy)(Program*);
    int (*compile)(Program, int, const char* const*);
    int (*ptx_size)(Program, size_t*);
    int (*ptx)(Program, char*);
    int (*cubin_size)(Program, size_t*);
    int (*cubin)(Program, char*);
    int (*log_size)(Program, size_t*);
    int (*log)(Program, char*);
  };
  // Loaded by its full path before the compiler asks for it by name: then it need not be where the
  // loader looks.
  void open_builtins();

  Library library_;
  Table table_{};
  int major_ = 0, minor_ = 0;
};

}  // namespace gradus::fusion::cuda
