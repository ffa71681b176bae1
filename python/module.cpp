// The module gradus._gradus: the library's own things, for the package around it to make pleasant.
#include "gradus/version.h"
#include "python/bindings.h"
#include "python/errors.h"

NB_MODULE(_gradus, m) {
  using namespace gradus::python;
  m.doc() = "The compiled part of gradus.";
  m.attr("__version__") = GRADUS_VERSION;
  // Registered functions live for good, and with them what they refer to.
  nb::set_leak_warnings(false);
  register_exceptions();
  bind_types(m);
  bind_context(m);
  bind_tensor(m);
  bind_operators(m);
  bind_program(m);
  bind_state(m);
  bind_trace(m);
  bind_points(m);
  bind_loops(m);
  bind_calls(m);
  bind_python_op(m);
  bind_potential(m);
  bind_ranks(m);
  // Runs when the program ends, before the interpreter is taken down.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] { shut_door(); }));
}
