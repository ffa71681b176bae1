// Nests compiled to PTX and machine code of a device.
#pragma once

#include "fusion/cuda/nvrtc.h"
#include "fusion/cuda/source.h"
#include "fusion/once_cache.h"
#include "fusion/store.h"

namespace gradus::fusion::cuda {

// A nest's code. Immutable.
struct Code {
  KernelShape shape;
  Resources resources;     // of machine code
  std::string ptx, cubin;  // machine code for sm_ architectures alone
  double seconds = 0;      // spent compiling; 0 if it was in the store
};

// Compiles each nest once, however many threads ask for it at a time, and keeps what it compiled.
// Thread-safe.
class Compiler {
 public:
  // `architecture` as Nvrtc::compile takes it; empty: sources are written, and are all that there
  // is. `store`, which may be null, keeps code for other
  // processes.
  explicit Compiler(std::string architecture, std::shared_ptr<const ObjectStore> store = nullptr);

  // Throws Error where the nest has a form that CUDA kernels do not, ResourceError where NVRTC is
  // not there or fails; who asks again tries again.
  std::shared_ptr<const Code> compile(const Nest& nest);
  // The same of a source that is no nest's.
  std::shared_ptr<const Code> compile(const Source& source);

  // What code depends on: the source, the compiler's version, its options and the architecture.
  std::string key(const Source& source) const;
  const std::string& architecture() const { return architecture_; }

 private:
  std::shared_ptr<const Code> load_or_compile(const Source& source) const;

  const std::string architecture_;
  const std::shared_ptr<const ObjectStore> store_;
  OnceCache codes_;  // by text
};

}  // namespace gradus::fusion::cuda
