#include "fusion/cpu/cache.h"

namespace gradus::fusion::cpu {

KernelCache::KernelCache(size_t capacity, std::shared_ptr<const ObjectStore> store, bool symbols)
    : compiler_(symbols), store_(std::move(store)), codes_(capacity) {}

template <class Source>
std::shared_ptr<const void> KernelCache::load_or_compile(const std::string& key,
                                                         const Source& source, Isa isa) {
  auto spent = [&](uint64_t CacheStatistics::*what, const CompileTimes& times) {
    std::lock_guard guard(mutex_);
    ++(statistics_.*what);
    statistics_.seconds += times.total();
  };
  if (store_ && runs_here(isa))
    if (auto object = store_->find(key)) try {
        auto kernel = compiler_.load(source, *object);
        spent(&CacheStatistics::loaded, kernel->times());
        return kernel;
      } catch (const ResourceError&) {
        // What cannot be loaded is compiled anew, and written over.
      }
  CompileTimes times;
  try {
    if (!store_ || !runs_here(isa)) {
      auto kernel = compiler_.compile(source, isa);
      spent(&CacheStatistics::misses, kernel->times());
      return kernel;
    }
    std::string object = compiler_.object(source, isa, times);
    auto kernel = compiler_.load(source, object, times);
    store_->put(key, object);
    spent(&CacheStatistics::misses, kernel->times());
    return kernel;
  } catch (...) {
    spent(&CacheStatistics::misses, times);
    throw;
  }
}

std::shared_ptr<const Kernel> KernelCache::get(const Nest& nest, Isa isa) {
  const std::string key = Compiler::key(nest, isa);
  return std::static_pointer_cast<const Kernel>(
      codes_.get(key, [&] { return load_or_compile(key, nest, isa); }));
}

std::shared_ptr<const CompiledStage> KernelCache::get(const StageProgram& stage, Isa isa) {
  const std::string key = Compiler::key(stage, isa);
  return std::static_pointer_cast<const CompiledStage>(
      codes_.get(key, [&] { return load_or_compile(key, stage, isa); }));
}

CacheStatistics KernelCache::statistics() const {
  const OnceCache::Statistics codes = codes_.statistics();
  std::lock_guard guard(mutex_);
  CacheStatistics s = statistics_;
  s.hits = codes.hits;
  s.evicted = codes.evicted;
  return s;
}

}  // namespace gradus::fusion::cpu
