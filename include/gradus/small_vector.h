// A vector whose first N elements need no heap memory: for shapes and lists of operands and
// results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)

namespace gradus {

// Whether an object may be moved by copying its bytes, without destroying the old object. The
// object must contain no pointer to itself.
template <class T>
inline constexpr bool is_relocatable = std::is_trivially_copyable_v<T>;
template <class... T>
inline constexpr bool is_relocatable<std::variant<T...>> = (is_relocatable<T> && ...);

// A vector with the interface of std::vector. An index out of range ends the program if
// _GLIBCXX_ASSERTIONS is defined. Throws std::length_error for 2^31 elements.
template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  // These use the default constructor, so that the destructor runs if a copy throws.
  explicit SmallVector(size_t n, const T& value = T()) : SmallVector() { resize(n, value); }
  SmallVector(std::initializer_list<T> list) : SmallVector() { append(list.begin(), list.end()); }
  template <class It>
  requires(!std::is_integral_v<It>) SmallVector(It first, It last) : SmallVector() {
    append(first, last);
  }
  explicit SmallVector(std::span<const T> s) : SmallVector() { append(s.begin(), s.end()); }
  SmallVector(const SmallVector& o) : SmallVector() { copy(o); }
  SmallVector(SmallVector&& o) noexcept { take(std::move(o)); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) {
      clear();
      copy(o);
    }
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      destroy();
      take(std::move(o));
    }
    return *this;
  }
  ~SmallVector() { destroy(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[inside(i)]; }
  const T& operator[](size_t i) const { return data_[inside(i)]; }
  T& front() { return data_[inside(0)]; }
  const T& front() const { return data_[inside(0)]; }
  T& back() { return data_[inside(size_t{size_} - 1)]; }
  const T& back() const { return data_[inside(size_t{size_} - 1)]; }
  operator std::span<const T>() const { return {data_, size_}; }  // NOLINT: a view is free
  operator std::span<T>() { return {data_, size_}; }              // NOLINT: a view is free

  void push_back(T value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    // The element is made before the others move, because an argument may refer to one of them.
    if (size_ == capacity_) return append_grown(T(std::forward<Args>(args)...));
    new (data_ + size_) T(std::forward<Args>(args)...);
    return data_[size_++];
  }
  void pop_back() {
    inside(0);
    data_[--size_].~T();
  }
  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void resize(size_t n, const T& value = T()) {
    while (size_ > n) pop_back();
    if (size_ == n) return;
    T copy(value);  // `value` may be an element
    reserve(n);
    for (; size_ < n; ++size_) new (data_ + size_) T(copy);
  }
  void assign(size_t n, const T& value) {
    T copy(value);
    clear();
    resize(n, copy);
  }
  // The range may be a part of this vector.
  template <class It>
  void append(It first, It last) {
    if constexpr (std::contiguous_iterator<It> && std::is_same_v<std::iter_value_t<It>, T>) {
      const T* from = std::to_address(first);
      auto n = static_cast<size_t>(last - first);
      std::less<const T*> before;
      bool own = !before(from, data_) && before(from, data_ + size_);
      size_t at = own ? static_cast<size_t>(from - data_) : 0;
      reserve_more(n);
      if (own) from = data_ + at;
      for (size_t i = 0; i < n; ++i, ++size_) new (data_ + size_) T(from[i]);
    } else {
      for (; first != last; ++first) emplace_back(*first);
    }
  }
  T* insert(const T* at, T value) {
    auto i = static_cast<size_t>(at - data_);
    emplace_back(std::move(value));
    std::rotate(data_ + i, data_ + size_ - 1, data_ + size_);
    return data_ + i;
  }
  T* erase(const T* at) {
    T* p = data_ + (at - data_);
    std::move(p + 1, end(), p);
    pop_back();
    return p;
  }
  // A loop, because comparing few elements takes less time than a call.
  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    for (uint32_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  size_t inside(size_t i) const {
#ifdef _GLIBCXX_ASSERTIONS
    __glibcxx_assert(i < size_);
#endif
    return i;
  }
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  // Requires that this vector is empty.
  void copy(const SmallVector& o) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (o.size_ <= capacity_) {
        for (uint32_t i = 0; i < o.size_; ++i) new (data_ + i) T(o.data_[i]);
        size_ = o.size_;
        return;
      }
    }
    append(o.begin(), o.end());
  }
  void reserve_more(size_t n) {
    if (capacity_ - size_ < n) grow(size_ + n);
  }
  // Not inlined: vectors seldom grow, and every push_back would contain the code.
  [[gnu::noinline]] T& append_grown(T value) {
    grow(size_ + 1);
    new (data_ + size_) T(std::move(value));
    return data_[size_++];
  }
  [[gnu::noinline]] void grow(size_t least) {
    static_assert(std::is_nothrow_move_constructible_v<T>, "moving must not fail half-way");
    if (least > UINT32_MAX / 2) throw std::length_error("a SmallVector of 2^31 elements");
    size_t n = std::max(least, size_t{capacity_} * 2);
    T* fresh = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    relocate(data_, size_, fresh);
    const uint32_t size = std::exchange(size_, 0);
    destroy();
    data_ = fresh;
    size_ = size;
    capacity_ = static_cast<uint32_t>(n);
  }
  void destroy() {
    std::destroy_n(data_, size_);
    if (data_ != inline_data()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = inline_data();
    size_ = 0;
    capacity_ = N;
  }
  void take(SmallVector&& o) {
    if (o.data_ != o.inline_data()) {
      data_ = std::exchange(o.data_, o.inline_data());
      size_ = std::exchange(o.size_, 0);
      capacity_ = std::exchange(o.capacity_, N);
    } else {
      size_ = std::exchange(o.size_, 0);
      relocate(o.data_, size_, data_);
    }
  }
  // The elements move; the old places are then uninitialised.
  static void relocate(T* from, uint32_t n, T* to) {
    if constexpr (is_relocatable<T>) {
      for (uint32_t i = 0; i < n; ++i)
        std::memcpy(static_cast<void*>(to + i), static_cast<const void*>(from + i), sizeof(T));
    } else {
      std::uninitialized_move_n(from, n, to);
      std::destroy_n(from, n);
    }
  }
  alignas(T) std::byte inline_[sizeof(T) * N];
  T* data_ = inline_data();
  uint32_t size_ = 0;  // small, because nodes and types contain vectors
  uint32_t capacity_ = N;
};

}  // namespace gradus

#pragma GCC visibility pop
