// Exceptions across the door, both ways.
#pragma once

#include <exception>
#include <string>

#include <nanobind/stl/string.h>

#include "gradus/error.h"
#include "python/gil.h"

namespace gradus::python {

// What Python code raised, on its way through the library: any exception, with its traceback. May
// be copied and dropped on any thread.
class PythonFault final : public std::exception {
 public:
  // With the lock held.
  explicit PythonFault(nb::python_error& error);
  const char* what() const noexcept override { return what_.c_str(); }  // "ValueError: no"
  nb::handle value() const { return value_.get(); }
  // Raises it in Python again. With the lock held.
  void raise() const;
  // Adds a line to what is shown below its traceback.
  void add_note(const std::string& note) const;

 private:
  Kept value_;
  std::string what_;
};

// Runs Python code with the lock; what it raises is thrown as PythonFault.
template <class F>
auto call_python(F&& f) {
  WithLock lock;
  try {
    return std::forward<F>(f)();
  } catch (nb::python_error& e) {
    throw PythonFault(e);
  }
}

// The next Error that this thread raises in Python has this cause: for places where the library
// makes an Error of whatever is thrown.
void set_cause(const PythonFault& fault);

// Raises what C++ threw in Python: for slots of types, which return null then. With the lock held.
void raise_thrown(const std::exception_ptr& thrown) noexcept;

// Has the library's exceptions raised as those of gradus.errors.
void register_exceptions();

}  // namespace gradus::python
