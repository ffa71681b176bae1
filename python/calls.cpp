// Calls of Python functions that run as programs: which program, found again by the signature.
#include <algorithm>
#include <unordered_map>

#include "gradus/staged_function.h"
#include "python/bindings.h"
#include "python/context.h"
#include "python/errors.h"
#include "python/signature.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

// When what is recorded was used last: the package lets the oldest go.
struct LastUse {
  uint64_t time = 0;
  void touch() {
    static uint64_t now = 0;
    time = ++now;
  }
};

// What runs for a signature: a program, or the Python function itself.
struct Ready {
  Signature signature;
  std::shared_ptr<Context> context;
  nb::object keeper, used;                 // the StagedFunction and the LastUse, for both of:
  const StagedFunction* staged = nullptr;  // null: the function itself
  LastUse* last_use = nullptr;
  std::vector<Variable> constants;  // behind the call's tensors
  std::vector<size_t> inputs;       // of the program: which tensor each is
  Structure results;

  Variables operator()(const Variables& given) const {
    Variables in;
    in.reserve(inputs.size());
    for (size_t i : inputs) in.push_back(i < given.size() ? given[i] : constants[i - given.size()]);
    return unlocked([&] { return (*staged)(in); });
  }
};

// Something that a function reads beside its arguments, and what it was: a cell; a dict or a class,
// and the name there; a function, and its code, its defaults and those by name.
struct Guard {
  nb::object holder, name, value;
  bool holds() const {
    PyObject* p = holder.ptr();
    if (PyCell_Check(p)) return PyCell_GET(p) == value.ptr();
    if (PyFunction_Check(p))
      return is(0, PyFunction_GET_CODE(p)) && is(1, PyFunction_GET_DEFAULTS(p)) &&
             is(2, PyFunction_GET_KW_DEFAULTS(p));
    if (PyType_Check(p)) p = reinterpret_cast<PyTypeObject*>(p)->tp_dict;
    return PyDict_GetItem(p, name.ptr()) == value.ptr();
  }
  bool same_as(const Guard& o) const {
    return holder.is(o.holder) && name.is(o.name) && value.is(o.value);
  }

 private:
  bool is(Py_ssize_t i, PyObject* now) const {
    return PyTuple_GET_ITEM(value.ptr(), i) == (now ? now : Py_None);
  }
};

std::vector<Guard> guards_from(nb::handle list) {
  std::vector<Guard> guards;
  for (nb::handle g : list)
    guards.push_back({nb::borrow(g[0]), nb::borrow(g[1]), nb::borrow(g[2])});
  return guards;
}

// The base of what is called as a Python function and runs as a program. A derived class has
//   _plain                              the function itself, for traces and where no program does
//   _prepare(args, kwargs, tensors)     for a signature that is new: a tuple of the StagedFunction,
//                                       its LastUse, the number of each input among the tensors
//                                       and then the constants, the constants, the results'
//                                       structure, and guards for what the arguments are; None: the
//                                       function itself runs, False: for this call alone
//   _changed()                          a guard does not hold any more; guards are set anew
// All with the interpreter's lock, which a run lets go.
class CallCache {
 public:
  static constexpr size_t most_signatures = 4096;

  nb::object call(nb::handle self, nb::handle args, nb::handle kwargs) {
    if (direct || autograd::thread_state().recorder) return plain(self, args, kwargs);
    for (const Guard& g : guards_)
      if (!g.holds()) {
        self.attr("_changed")();
        break;
      }
    Signature signature = Signature::of(args, kwargs, autograd::recording(), floats);
    const uint64_t hash = signature.hash();
    std::shared_ptr<const Ready> ready = find(signature, hash);
    if (!ready) ready = prepare(self, args, kwargs, signature, hash);
    if (!ready->staged) return plain(self, args, kwargs);
    ready->last_use->touch();
    return ready->results.build((*ready)(signature.tensors));
  }

  void clear() {
    auto gone = std::exchange(ready_, {});  // their ends may run anything
    std::vector<Guard> guards(guards_.begin(),
                              guards_.begin() + static_cast<ptrdiff_t>(own_guards_));
    guards_.swap(guards);
    count_ = 0;
  }
  void set_guards(nb::handle list, nb::handle place) {
    clear();
    place_ = nb::borrow(place);
    std::vector<Guard> guards = guards_from(list);
    own_guards_ = guards.size();
    guards_.swap(guards);
  }
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(place_.ptr());
    for (const Guard& g : guards_) {
      Py_VISIT(g.holder.ptr());
      Py_VISIT(g.value.ptr());
    }
    for (const auto& [hash, ready] : ready_) {
      if (ready.use_count() > 1) continue;  // it runs
      for (const nb::object& o : ready->signature.objects) Py_VISIT(o.ptr());
      if (int found = ready->results.traverse(visit, arg)) return found;
    }
    return 0;
  }

  bool direct = false;          // no program runs
  std::vector<int64_t> floats;  // see Signature

 private:
  static nb::object plain(nb::handle self, nb::handle args, nb::handle kwargs) {
    nb::object function = self.attr("_plain");
    PyObject* result = PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr());
    if (!result) throw nb::python_error();
    return nb::steal(result);
  }

  std::shared_ptr<const Ready> find(const Signature& signature, uint64_t hash) const {
    const std::shared_ptr<Context>& context = autograd::current_context();
    for (auto [it, end] = ready_.equal_range(hash); it != end; ++it)
      if (it->second->context == context && it->second->signature.same_as(signature))
        return it->second;
    return nullptr;
  }

  std::shared_ptr<const Ready> prepare(nb::handle self, nb::handle args, nb::handle kwargs,
                                       const Signature& signature, uint64_t hash) {
    nb::object named = kwargs.is_valid() ? nb::borrow(kwargs) : nb::dict();
    nb::object made = self.attr("_prepare")(args, named, to_python(signature.tensors));
    auto ready = std::make_shared<Ready>();
    if (made.is(nb::handle(Py_False))) return ready;
    ready->signature = signature;
    ready->signature.tensors = {};
    ready->context = autograd::current_context();
    if (!made.is_none()) {
      ready->keeper = made[0], ready->used = made[1];
      ready->staged = nb::cast<const StagedFunction*>(ready->keeper);
      ready->last_use = nb::cast<LastUse*>(ready->used);
      ready->inputs = nb::cast<std::vector<size_t>>(made[2]);
      for (nb::handle c : nb::object(made[3]))
        ready->constants.push_back(variable_from(c, "a default"));
      ready->results = Structure(made[4], place_);
    }
    if (count_ >= most_signatures) clear();
    if (!made.is_none()) add_guards(made[5]);
    ++count_;
    ready_.emplace(hash, ready);
    return ready;
  }

  void add_guards(nb::handle list) {
    for (Guard& g : guards_from(list))
      if (std::ranges::none_of(guards_, [&](const Guard& o) { return o.same_as(g); }))
        guards_.push_back(std::move(g));
  }

  std::unordered_multimap<uint64_t, std::shared_ptr<const Ready>> ready_;
  size_t count_ = 0;
  std::vector<Guard> guards_;  // the function's own, then those of arguments
  size_t own_guards_ = 0;
  nb::object place_;  // the type of what stands for a tensor in a structure
};

PyObject* call_slot(PyObject* self, PyObject* args, PyObject* kwargs) {
  try {
    return nb::inst_ptr<CallCache>(self)->call(self, args, kwargs).release().ptr();
  } catch (...) {
    raise_thrown(std::current_exception());
    return nullptr;
  }
}

int traverse_slot(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return nb::inst_ptr<CallCache>(self)->traverse(visit, arg);
}

int clear_slot(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  nb::inst_ptr<CallCache>(self)->clear();
  return 0;
}

PyType_Slot call_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_slot)},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse_slot)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_slot)},
                            {0, nullptr}};

}  // namespace

void bind_calls(nb::module_& m) {
  nb::class_<LastUse>(m, "LastUse", "When something was used last.")
      .def(nb::init<>())
      .def("touch", &LastUse::touch)
      .def_ro("time", &LastUse::time);
  nb::class_<CallCache>(m, "CallCache", nb::type_slots(call_slots),
                        "The base of functions that run as programs.")
      .def(nb::init<>())
      .def_rw("floats", &CallCache::floats,
              "The arguments by place, also from the end, in whose trees a float is a tensor.")
      .def_rw("direct", &CallCache::direct, "The function itself runs at every call.")
      .def("forget", &CallCache::clear, "No signature is known any more.")
      .def("set_guards", &CallCache::set_guards, "guards"_a, "place"_a);
}

}  // namespace gradus::python
