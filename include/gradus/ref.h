// Counted references: of objects that count themselves, and ones that do not keep their object
// alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "gradus/small_vector.h"

#pragma GCC visibility push(default)

// Intrusive reference counting: one word a reference, one atomic a copy, none a move.

namespace gradus {

// Base of counted objects. Starts at zero; the first Ref makes it one. Thread-safe.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  virtual ~RefCounted() = default;
  // Nobody refers to it any more. Objects that hang together in long chains free themselves one
  // after the other instead of each within the one before.
  virtual void dispose() const { delete this; }

 private:
  template <class T>
  friend class Ref;
  void acquire() const { count_.fetch_add(1, std::memory_order_relaxed); }
  // By who made it: nobody else knows of it, unless its constructor told.
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
  // The first reference to an object just made: see make_ref.
  static Ref first(T* p) {
    p->acquire_first();
    Ref r;
    r.p_ = p;
    return r;
  }
  // A reference to an object that may be on its way out: null then. Whoever calls this holds a lock
  // that the object's destructor takes first.
  static Ref if_alive(T* p) {
    Ref r;
    if (p && p->acquire_if_alive()) r.p_ = p;
    return r;
  }
  // Leaves the count as it is: the reference is the caller's to see to.
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

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::first(new T(std::forward<Args>(args)...));
}

// References that do not keep their object alive.

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
