// Objects that something outside may still use when their owner goes.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace gradus {

// Until the process ends; thread-safe.
template <class T>
void keep_for_good(T object) {
  static std::mutex mutex;
  static auto& kept = *new std::list<T>();
  std::lock_guard guard(mutex);
  kept.push_back(std::move(object));
}

}  // namespace gradus
