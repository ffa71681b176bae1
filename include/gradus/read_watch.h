// Notifications when the values of a tensor are read.
#pragma once

#pragma GCC visibility push(default)

namespace gradus {

class Tensor;

// Is notified, on the thread for which it is set, before values are converted or copied from a
// tensor: by `to_doubles`, `to_int64s`, `item`, `to`, `copy`, bitwise_equal, to_dlpack and as
// inputs of State::run. It is not notified of operators on variables, or of reads through the
// pointer that `data` returns.
class ReadWatch {
 public:
  // May throw Error to reject the read.
  virtual void reads(const Tensor& tensor) const = 0;

  // This thread's watch. The library defines it, because a module with hidden symbols would have a
  // separate one.
  static ReadWatch*& current();

 protected:
  ~ReadWatch() = default;
};

// Whether a tensor has a shape but no values, because a trace that computes no values made it
// (TraceOptions::shapes_only). Its elements read as zeros.
bool has_no_values(const Tensor& tensor);

// Sets this thread's watch (null: none) until the end of the scope.
class ReadWatchGuard {
 public:
  explicit ReadWatchGuard(ReadWatch* watch) : saved_(ReadWatch::current()) {
    ReadWatch::current() = watch;
  }
  ~ReadWatchGuard() { ReadWatch::current() = saved_; }
  ReadWatchGuard(const ReadWatchGuard&) = delete;

 private:
  ReadWatch* saved_;
};

}  // namespace gradus

#pragma GCC visibility pop
