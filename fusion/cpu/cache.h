// Kernels by what they are made of.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <unordered_map>

#include "fusion/cpu/compiler.h"
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
  size_t size() const;

 private:
  using Code = std::shared_ptr<const void>;  // of what its key names
  using Result = std::shared_future<Code>;
  struct Entry {
    Result result;
    std::list<std::string>::iterator place;
  };
  void evict();
  Code get(const std::string& key, const std::function<Code()>& make);
  template <class Source>
  Code load_or_compile(const std::string& key, const Source& source, Isa isa);

  Compiler compiler_;
  const std::shared_ptr<const ObjectStore> store_;
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;  // by key
  std::list<std::string> order_;                    // keys, the last asked for first
  CacheStatistics statistics_;
};

}  // namespace gradus::fusion::cpu
