#include "python/errors.h"

#include <optional>

#include "gradus/onnx.h"

namespace gradus::python {

namespace {

// Dropped with the thread; Kept copes with any thread and time.
thread_local std::optional<PythonFault> cause;

// The package's classes. Kept for good: what is raised last, when modules can no longer be
// imported, needs them too.
struct Classes {
  PyObject *error, *unsupported, *resource, *internal;
};
Classes classes;

// A source line and its caret, which are shown indented.
std::string unindented(std::string_view lines) {
  std::string out;
  while (!lines.empty()) {
    size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    std::string_view line = lines.substr(0, end);
    if (line.starts_with("  ")) line.remove_prefix(2);
    out += line;
    lines.remove_prefix(end);
  }
  return out;
}

// `what()` is "file:line:column: error: message", then line and caret, where a place is known.
nb::object error_object(const Error& e, nb::handle type) {
  const std::string whole = e.what();
  nb::object file = nb::none(), line = nb::none(), column = nb::none(), excerpt = nb::none();
  if (e.where().known()) {
    line = nb::int_(e.where().line);
    column = nb::int_(e.where().column);
    std::string mark = fmt::format(":{}:{}: error: ", e.where().line, e.where().column);
    if (size_t at = whole.find(mark); at != whole.npos) file = nb::str(whole.substr(0, at).c_str());
    if (size_t at = whole.find('\n'); at != whole.npos)
      excerpt = nb::cast(unindented(std::string_view(whole).substr(at + 1)));
  }
  return type(nb::str(whole.c_str(), whole.size()), e.bare(), file, line, column, excerpt);
}

void raise_object(const nb::object& value) {
  if (cause && nb::cast<std::string>(nb::str(value)).find(cause->what()) != std::string::npos)
    PyException_SetCause(value.ptr(), cause->value().inc_ref().ptr());
  cause.reset();
  PyErr_SetObject(value.type().ptr(), value.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  IntoPython scope;
  try {
    std::rethrow_exception(thrown);
  } catch (const PythonFault& e) {
    e.raise();
  } catch (const onnx::Unsupported& e) {
    nb::object error = error_object(e, classes.unsupported);
    error.attr("reason") = e.reason();
    raise_object(error);
  } catch (const Error& e) {
    raise_object(error_object(e, classes.error));
  } catch (const ResourceError& e) {
    raise_object(nb::handle(classes.resource)(e.what()));
  } catch (const InternalError& e) {
    raise_object(nb::handle(classes.internal)(e.what()));
  }
}

}  // namespace

PythonFault::PythonFault(nb::python_error& error) {
  error.restore();
#if PY_VERSION_HEX < 0x030C0000
  // What C code raised may be a class and a string yet.
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  value_ = Kept(nb::steal(value));
#else
  value_ = Kept(nb::steal(PyErr_GetRaisedException()));
#endif
  what_ = nb::cast<std::string>(value_.get().type().attr("__name__"));
  // What str gives is the user's: it may raise, too.
  if (PyObject* text = PyObject_Str(value_.get().ptr())) {
    if (const char* utf8 = PyUnicode_AsUTF8(text); utf8 && *utf8) what_ += std::string(": ") + utf8;
    Py_DECREF(text);
  }
  PyErr_Clear();
}

void PythonFault::raise() const { PyErr_SetObject(value_.get().type().ptr(), value_.get().ptr()); }

void PythonFault::add_note(const std::string& note) const {
  IntoPython scope;
  if (!nb::hasattr(value_.get(), "add_note")) return;
  value_.get().attr("add_note")(note);
}

void raise_thrown(const std::exception_ptr& thrown) noexcept {
  try {
    translate(thrown, nullptr);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception that is no std::exception");
  }
}

void set_cause(const PythonFault& fault) { cause = fault; }

void register_exceptions() {
  nb::module_ errors = nb::module_::import_("gradus.errors");
  auto take = [&](const char* name) { return nb::object(errors.attr(name)).release().ptr(); };
  classes = {take("Error"), take("Unsupported"), take("ResourceError"), take("InternalError")};
  nb::register_exception_translator(translate, nullptr);
}

}  // namespace gradus::python
