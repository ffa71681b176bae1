#include "fusion/once_cache.h"

#include <algorithm>

namespace gradus::fusion {

OnceCache::OnceCache(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {}

OnceCache::Code OnceCache::get(const std::string& key, FunctionRef<Code()> make) {
  std::promise<Code> promise;
  std::shared_future<Code> result;
  {
    std::lock_guard guard(mutex_);
    if (auto found = entries_.find(key); found != entries_.end()) {
      ++statistics_.hits;
      order_.splice(order_.begin(), order_, found->second.place);
      result = found->second.result;
    } else {
      order_.push_front(key);
      entries_.emplace(key, Entry{promise.get_future().share(), order_.begin()});
      // One that is being made may go too: whoever waits for it holds its result.
      for (; entries_.size() > capacity_; ++statistics_.evicted) {
        entries_.erase(order_.back());
        order_.pop_back();
      }
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

OnceCache::Statistics OnceCache::statistics() const {
  std::lock_guard guard(mutex_);
  Statistics s = statistics_;
  s.size = entries_.size();
  return s;
}

}  // namespace gradus::fusion
