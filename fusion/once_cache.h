// Code by key, made once however many threads ask for it at a time.
#pragma once

#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "gradus/context.h"

namespace gradus::fusion {

// Keeps what was asked for last. What it no longer keeps lives on where it is used. Thread-safe.
class OnceCache {
 public:
  using Code = std::shared_ptr<const void>;  // of what its key names
  struct Statistics {
    uint64_t hits = 0;     // answered by what was there, or was being made for another
    uint64_t evicted = 0;  // left out again for others
    size_t size = 0;       // there now
  };

  explicit OnceCache(size_t capacity = SIZE_MAX);

  // Who asks for what another thread is making waits for that. What `make` throws reaches all who
  // wait, and it is tried anew by who asks next.
  Code get(const std::string& key, FunctionRef<Code()> make);
  Statistics statistics() const;

 private:
  struct Entry {
    std::shared_future<Code> result;
    std::list<std::string>::iterator place;
  };

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> order_;  // keys, the last asked for first
  Statistics statistics_;
};

}  // namespace gradus::fusion
