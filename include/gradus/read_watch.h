// Who wants to know when a tensor's values are read back.
#pragma once

#pragma GCC visibility push(default)

namespace gradus {

class Tensor;

// Told, on the thread that it is set for, before values are converted or copied out of a tensor
// (`to_doubles`, `to_int64s`, `item`, `to`, `copy`). What operators and kernels read is not told,
// nor what is read through the pointer that `data` gives.
class ReadWatch {
 public:
  // May throw Error to refuse.
  virtual void reads(const Tensor& tensor) const = 0;

  // This thread's. In the library, so that a module which hides its symbols has none of its own.
  static ReadWatch*& current();

 protected:
  ~ReadWatch() = default;
};

// Whether it has a shape and no values, since it was made in a trace that computes none
// (TraceOptions::shapes_only). What is read of it are zeros.
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
