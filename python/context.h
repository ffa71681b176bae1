// Contexts in Python.
#pragma once

#include "gradus/context.h"
#include "python/convert.h"

namespace gradus::python {

// What Python holds of a context. Entered by `with`, it is the current one of a thread.
// The last one lets go without the interpreter's lock, which threads may want that end with it.
struct PythonContext {
  explicit PythonContext(std::shared_ptr<Context> c) : context(std::move(c)) {}
  PythonContext(PythonContext&&) = default;
  ~PythonContext() {
    if (context) unlocked([this] { context.reset(); });
  }

  std::shared_ptr<Context> context;
};

// "cpu", or "cuda:" and a number.
Device device_from(std::string_view text);

// This thread's current one for None.
std::shared_ptr<Context> context_from(nb::handle object);

}  // namespace gradus::python
