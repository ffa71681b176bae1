// Intrusive reference counting, and weak references.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "gradus/small_vector.h"

#pragma GCC visibility push(default)

// Intrusive reference counting: a reference is one word. Copying it takes one atomic operation,
// moving it none.

namespace gradus {

// The base of counted objects. The count starts at 0, and the first Ref sets it to 1. Thread-safe.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  virtual ~RefCounted() = default;
  // Called when the count becomes 0. Objects in long chains override it, to free each other
  // iteratively.
  virtual void dispose() const { delete this; }

 private:
  template <class T>
  friend class Ref;
  void acquire() const { count_.fetch_add(1, std::memory_order_relaxed); }
  // For the creator of the object: no other thread has a reference, unless the constructor passed
  // one.
  void acquire_first() const {
    if (count_.load(std::memory_order_relaxed) == 0)
      count_.store(1, std::memory_order_relaxed);
    else
      acquire();
  }
  bool acquire_if_alive() const {
    uint32_t n = count_.load(std::memory_order_relaxed);
    while (n != 0 && !count_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
    }
    return n != 0;
  }
  void release() const {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) dispose();
  }
  mutable std::atomic<uint32_t> count_{0};
};

// A counted reference. May be null.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT: a null reference reads as nullptr
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->acquire();
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& o)
      : Ref(o.get()) {}  // NOLINT: as pointers convert
  ~Ref() {
    if (p_) p_->release();
  }
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  // The first reference to a new object: see make_ref.
  static Ref first(T* p) {
    p->acquire_first();
    Ref r;
    r.p_ = p;
    return r;
  }
  // Returns a reference to an object whose destruction may have begun; null if it has. The caller
  // must hold a lock that the destructor of the object takes first.
  static Ref if_alive(T* p) {
    Ref r;
    if (p && p->acquire_if_alive()) r.p_ = p;
    return r;
  }
  // Returns the pointer and does not change the count. The caller then owns the reference.
  T* leave() { return std::exchange(p_, nullptr); }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

template <class T>
inline constexpr bool is_relocatable<Ref<T>> = true;

// Makes an object and returns the first reference to it.
template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::first(new T(std::forward<Args>(args)...));
}

// Weak references.

// The data that the weak references to one object share. The object owns its anchor, makes it when
// needed, and calls `clear` at the start of its destructor. Thread-safe.
template <class T>
class Anchor final : public RefCounted {
 public:
  explicit Anchor(T* object) : object_(object) {}
  // Returns a reference to the object. Null if the object is destroyed or its destruction has
  // begun.
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
