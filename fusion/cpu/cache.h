// Kernels by what they are made of.
#pragma once

#include <mutex>

#include "fusion/cpu/compiler.h"
#include "fusion/once_cache.h"
#include "fusion/store.h"

namespace gradus::fusion::cpu {

struct CacheStatistics {
  uint64_t hits = 0;     // answered by what was there, or was being compiled for another
  uint64_t misses = 0;   // compiled
  uint64_t loaded = 0;   // found on disk
  uint64_t evicted = 0;  // left out again for others
  double seconds = 0;    // spent compiling
};

// Compiles each nest and each small stage once, however many threads ask for it at a time, and
// keeps what was asked for last. What it no longer keeps lives on where it is used. Thread-safe.
class KernelCache {
 public:
  // `store`, which may be null, keeps what is compiled for other processes. `symbols` is
  // Compiler's.
  explicit KernelCache(size_t capacity = 1024, std::shared_ptr<const ObjectStore> store = nullptr,
                       bool symbols = false);

  // As Compiler::compile, or from the store; who asks for what another thread is compiling waits
  // for that. A compilation that fails reaches all who wait, and is tried anew by who asks next.
  std::shared_ptr<const Kernel> get(const Nest& nest, Isa isa);
  std::shared_ptr<const CompiledStage> get(const StageProgram& stage, Isa isa);
  CacheStatistics statistics() const;
  size_t size() const { return codes_.statistics().size; }

 private:
  template <class Source>
  std::shared_ptr<const void> load_or_compile(const std::string& key, const Source& source,
                                              Isa isa);

  Compiler compiler_;
  const std::shared_ptr<const ObjectStore> store_;
  OnceCache codes_;  // by key
  mutable std::mutex mutex_;
  CacheStatistics statistics_;  // without what codes_ has
};

}  // namespace gradus::fusion::cpu
