// Captured backwards by structure.
#pragma once

#include <list>
#include <mutex>
#include <unordered_map>

#include "interpreter/capture.h"

namespace gradus::interpreter {

struct CaptureProgram {
  std::shared_ptr<const ir::Graph> graph;
  std::shared_ptr<const Code> code;
  // The key names some by address.
  std::vector<ir::Attributes> attributes;
};

// Thread-safe; a part of a context. The least recently used goes first.
class CaptureCache {
 public:
  std::shared_ptr<const CaptureProgram> find(const std::string& key) {
    std::lock_guard guard(mutex_);
    auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    ++hits_;
    recent_.splice(recent_.begin(), recent_, it->second);
    return it->second->second;
  }
  // The one that is there by then, if another thread was faster.
  std::shared_ptr<const CaptureProgram> add(const std::string& key,
                                            std::shared_ptr<const CaptureProgram> program) {
    std::shared_ptr<const CaptureProgram> gone;  // dies after the lock is let go
    std::lock_guard guard(mutex_);
    ++built_;
    if (auto it = by_key_.find(key); it != by_key_.end()) return it->second->second;
    recent_.emplace_front(key, program);
    by_key_.emplace(recent_.front().first, recent_.begin());
    if (recent_.size() > most_kept_captures) {
      by_key_.erase(recent_.back().first);
      gone = std::move(recent_.back().second);
      recent_.pop_back();
    }
    return program;
  }
  CaptureStatistics statistics() const {
    std::lock_guard guard(mutex_);
    return {recent_.size(), hits_, built_};
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const CaptureProgram>>;
  mutable std::mutex mutex_;
  std::list<Entry> recent_;
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  size_t hits_ = 0, built_ = 0;
};

}  // namespace gradus::interpreter
