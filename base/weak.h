// References that do not keep their object alive.
#pragma once

#include <mutex>

#include "base/ref.h"

#pragma GCC visibility push(default)

namespace gradus {

// What weak references to one object share. The object owns one, makes it on demand, and calls
// `clear` first thing in its destructor. Thread-safe.
template <class T>
class Anchor final : public RefCounted {
 public:
  explicit Anchor(T* object) : object_(object) {}
  // The object, kept alive; null if it is gone or going.
  Ref<T> lock() const {
    std::lock_guard guard(mutex_);
    return Ref<T>::if_alive(object_);
  }
  void clear() {
    std::lock_guard guard(mutex_);
    object_ = nullptr;
  }

 private:
  mutable std::mutex mutex_;
  T* object_;
};

}  // namespace gradus

#pragma GCC visibility pop
