#include "fusion/cpu/cache.h"

#include <algorithm>

namespace gradus::fusion::cpu {

KernelCache::KernelCache(size_t capacity, std::shared_ptr<const ObjectStore> store, bool symbols)
    : compiler_(symbols), store_(std::move(store)), capacity_(std::max<size_t>(capacity, 1)) {}

// What was asked for longest ago goes. One that is being compiled may go too: whoever waits for it
// holds its result.
void KernelCache::evict() {
  while (entries_.size() > capacity_) {
    entries_.erase(order_.back());
    order_.pop_back();
    ++statistics_.evicted;
  }
}

template <class Source>
KernelCache::Code KernelCache::load_or_compile(const std::string& key, const Source& source,
                                               Isa isa) {
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
      get(key, [&] { return load_or_compile(key, nest, isa); }));
}

std::shared_ptr<const CompiledStage> KernelCache::get(const StageProgram& stage, Isa isa) {
  const std::string key = Compiler::key(stage, isa);
  return std::static_pointer_cast<const CompiledStage>(
      get(key, [&] { return load_or_compile(key, stage, isa); }));
}

KernelCache::Code KernelCache::get(const std::string& key, const std::function<Code()>& make) {
  std::promise<Code> promise;
  Result result;
  {
    std::lock_guard guard(mutex_);
    if (auto found = entries_.find(key); found != entries_.end()) {
      ++statistics_.hits;
      order_.splice(order_.begin(), order_, found->second.place);
      result = found->second.result;
    } else {
      order_.push_front(key);
      entries_.emplace(key, Entry{promise.get_future().share(), order_.begin()});
      evict();
    }
  }
  if (result.valid()) return result.get();
  try {
    Code code = make();
    promise.set_value(code);
    return code;
  } catch (...) {
    {
      std::lock_guard guard(mutex_);
      // It may have been evicted, and asked for again since.
      if (auto found = entries_.find(key); found != entries_.end()) {
        order_.erase(found->second.place);
        entries_.erase(found);
      }
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

CacheStatistics KernelCache::statistics() const {
  std::lock_guard guard(mutex_);
  return statistics_;
}

size_t KernelCache::size() const {
  std::lock_guard guard(mutex_);
  return entries_.size();
}

}  // namespace gradus::fusion::cpu
