// A variable that has another value for a while.
#pragma once

#include <utility>

#pragma GCC visibility push(default)

namespace gradus::autograd {

// Until the end of the scope; then it is what it was before.
template <class T>
class ValueGuard {
 public:
  ValueGuard(T& place, T value) : place_(place), saved_(std::exchange(place, std::move(value))) {}
  ~ValueGuard() { place_ = std::move(saved_); }
  ValueGuard(const ValueGuard&) = delete;

 private:
  T& place_;
  T saved_;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
