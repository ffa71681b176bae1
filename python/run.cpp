#include "python/run.h"

#include <bit>

#include "gradus/messages.h"
#include "python/errors.h"
#include "python/exchange.h"

namespace gradus::python {

namespace {

// "its inputs are: x, w"
template <class NameAt>
std::string names_there(std::string_view what, size_t count, NameAt name) {
  if (count == 0) return fmt::format("it has no {}", what);
  std::string list;
  for (size_t i = 0; i < count; ++i) list += fmt::format("{}{}", i ? ", " : "", printable(name(i)));
  return fmt::format("its {} are: {}", what, list);
}

// The next stage's inputs: in order, then by name.
std::vector<Tensor> inputs_from(const State& state, const nb::args& in_order,
                                const nb::kwargs& by_name) {
  const size_t wanted = state.finished() ? 0 : state.code()->inputs(state.next_stage());
  std::vector<Tensor> tensors;
  size_t named = 0;
  auto add = [&](nb::handle item, const std::string& what, bool known) {
    Variable v = known ? variable_from(item, state.input_type(tensors.size()).dtype, what.c_str())
                       : variable_from(item, what.c_str());
    tensors.push_back(v.defined() ? v.data() : Tensor());
  };
  for (nb::handle item : in_order) {
    const bool known = tensors.size() < wanted;
    add(item, fmt::format("input '{}'", known ? state.input_name(tensors.size()) : "?"), known);
  }
  while (tensors.size() < wanted) {
    const std::string& name = state.input_name(tensors.size());
    if (!by_name.contains(name.c_str())) break;
    add(by_name[name.c_str()], fmt::format("input '{}'", name), true);
    ++named;
  }
  if (named == by_name.size() || state.finished()) return tensors;
  for (auto [key, value] : by_name) {
    auto name = nb::cast<std::string>(key);
    bool known = false, given = false;
    for (size_t i = 0; i < wanted; ++i) {
      if (state.input_name(i) != name) continue;
      known = true, given = i < in_order.size();
    }
    if (!known)
      throw Error("stage {} has no input '{}'; {}", state.next_stage(), printable(name),
                  names_there("inputs", wanted, [&](size_t i) { return state.input_name(i); }));
    if (given) throw Error("input '{}' is given twice: by its place and by its name", name);
  }
  throw Error("stage {}: input '{}' is missing; give it by its place or by its name",
              state.next_stage(), state.input_name(tensors.size()));
}

// Calls those of an object's methods `before`, `after`, `group`, `host`, `before_in_step` and
// `after_in_step` that it has. Made and dropped with the lock.
class PythonObserver final : public InstructionObserver {
 public:
  explicit PythonObserver(nb::handle object)
      : before_(method(object, "before")),
        after_(method(object, "after")),
        group_(method(object, "group")),
        host_(method(object, "host")),
        before_in_step_(method(object, "before_in_step")),
        after_in_step_(method(object, "after_in_step")) {
    for (const nb::object* m :
         {&before_, &after_, &group_, &host_, &before_in_step_, &after_in_step_})
      if (!m->is_none()) return;
    throw Error(
        "an observer has methods before, after, group, host, before_in_step or after_in_step; this "
        "one has none");
  }
  void before(size_t stage, size_t i) override { tell(before_, stage, i); }
  void after(size_t stage, size_t i) override { tell(after_, stage, i); }
  void host(size_t stage, size_t i) override { tell(host_, stage, i); }
  void before_in_step(const StepPoint& at) override { tell(before_in_step_, at); }
  void after_in_step(const StepPoint& at) override { tell(after_in_step_, at); }
  void group(size_t stage, std::span<const uint32_t> instructions) override {
    if (group_.is_none()) return;
    call_python([&] {
      nb::list numbers;
      for (uint32_t i : instructions) numbers.append(i);
      group_(stage, numbers);
    });
  }

 private:
  static nb::object method(nb::handle object, const char* name) {
    return nb::hasattr(object, name) ? nb::object(object.attr(name)) : nb::none();
  }
  static void tell(const nb::object& method, size_t stage, size_t i) {
    if (!method.is_none()) call_python([&] { method(stage, i); });
  }
  static void tell(const nb::object& method, const StepPoint& at) {
    if (method.is_none()) return;
    call_python([&] { method(at.body.graph().name, at.step, at.instruction); });
  }
  nb::object before_, after_, group_, host_, before_in_step_, after_in_step_;
};

std::chrono::steady_clock::duration seconds(double n) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(n));
}

// A call's keywords: options are taken out, and inputs by name are left.
class Keywords {
 public:
  Keywords(const State& state, const nb::kwargs& given)
      : state_(state), left_(nb::steal<nb::kwargs>(PyDict_Copy(given.ptr()))) {}

  // None where it is not there, or an input of that name is.
  nb::object take(const char* name) {
    if (!left_.contains(name) || is_input(name)) return nb::none();
    nb::object value = left_[name];
    nb::del(left_[name]);
    return value;
  }
  bool flag(const char* name) {
    nb::object value = take(name);
    return !value.is_none() && nb::cast<bool>(value);
  }
  const nb::kwargs& left() const { return left_; }

 private:
  bool is_input(std::string_view name) const {
    if (state_.finished()) return false;
    for (size_t i = 0; i < state_.code()->inputs(state_.next_stage()); ++i)
      if (state_.input_name(i) == name) return true;
    return false;
  }
  const State& state_;
  nb::kwargs left_;
};

// The caller's memory for a result.
Tensor buffer_from(nb::handle object, const std::string& name) {
  if (object.is_none()) return {};
  if (nb::isinstance<Variable>(object))
    throw Error("result '{}': a tensor's memory is never written to; give a NumPy array", name);
  if (!has_buffer(object)) throw Error("result '{}': it goes into an array, or None", name);
  try {
    return tensor_from_buffer(object, /*written=*/true);
  } catch (const Error& e) {
    throw Error("result '{}': {}", name, e.bare());
  }
}

// An entry for each of the next stage's results, from a list, or a dict by name.
std::vector<Tensor> buffers_from(const State& state, nb::handle into) {
  if (state.finished()) return {};
  const auto& results = state.code()->results(state.next_stage());
  std::vector<Tensor> buffers(results.size());
  if (into.is_none()) return buffers;
  if (!nb::isinstance<nb::dict>(into)) {
    if (nb::len(into) != results.size())
      throw Error("stage {} has {} results, `into` has {}", state.next_stage(), results.size(),
                  nb::len(into));
    for (size_t i = 0; i < results.size(); ++i) buffers[i] = buffer_from(into[i], results[i].name);
    return buffers;
  }
  for (auto [key, value] : nb::cast<nb::dict>(into)) {
    const auto name = nb::cast<std::string>(key);
    auto it = std::ranges::find(results, name, &ir::Result::name);
    if (it == results.end())
      throw Error(
          "stage {} has no result '{}'; {}", state.next_stage(), printable(name),
          names_there("results", results.size(), [&](size_t i) { return results[i].name; }));
    buffers[static_cast<size_t>(it - results.begin())] = buffer_from(value, name);
  }
  return buffers;
}

}  // namespace

nb::object run(State& state, const nb::args& in_order, const nb::kwargs& keywords) {
  Keywords given(state, keywords);
  RunOptions options;
  options.copy_inputs = given.flag("copy_inputs");
  options.results_on_device = given.flag("results_on_device");
  if (nb::object timeout = given.take("timeout"); !timeout.is_none())
    options.deadline = std::chrono::steady_clock::now() + seconds(nb::cast<double>(timeout));
  const nb::object cancel = given.take("cancel"), watcher = given.take("observer");
  if (!cancel.is_none()) options.cancel = nb::cast<const CancelToken*>(cancel);
  std::optional<PythonObserver> observer;
  if (!watcher.is_none()) options.observer = &observer.emplace(watcher);
  std::vector<Tensor> results = buffers_from(state, given.take("into"));
  const std::vector<Tensor> tensors = inputs_from(state, in_order, given.left());

  const size_t stage = state.next_stage();
  run_placed(state, [&] { state.run_into(tensors, results, options); });
  nb::list values, names;
  for (Tensor& t : results)
    values.append(t.defined() ? nb::cast(Variable(std::move(t))) : nb::none());
  for (const ir::Result& r : state.code()->results(stage)) names.append(r.name);
  IntoPython scope;
  return nb::module_::import_("gradus._results").attr("Results")(values, names);
}

namespace {

// Arrays, by name as well. Most share the memory of the results.
nb::object arrays_of(const Bound& bound) {
  IntoPython scope;
  const nb::object as_array = nb::module_::import_("numpy").attr("asarray");
  nb::list values, names;
  for (const Tensor& t : bound.run.results())
    values.append(t.defined() ? as_array(Variable(t)) : nb::none());
  for (const ir::Result& r : bound.code->results(0)) names.append(r.name);
  return nb::module_::import_("gradus._results").attr("Results")(values, names);
}

}  // namespace

namespace {

// Why an array had to be copied, and what to do.
std::string_view why_copied(nb::handle interface) {
  const nb::object strides = interface.attr("get")("strides");
  if (!strides.is_none())
    for (nb::handle n : strides)
      if (nb::cast<int64_t>(n) < 0)
        return "because it has negative strides; give numpy.ascontiguousarray of it";
  const nb::object type = interface["typestr"];
  const char other = std::endian::native == std::endian::little ? '>' : '<';
  if (nb::cast<std::string>(type).front() == other)
    return "because of its byte order; give one in the machine's byte order";
  return "because its elements are not aligned; give a copy of it";
}

// An array that had to be copied would never be read again.
void check_shared(nb::handle object, std::span<const Tensor> inputs) {
  if (!nb::hasattr(object, "__array_interface__")) return;
  const nb::object interface = object.attr("__array_interface__");
  const nb::object data = interface["data"];
  const nb::object first = data[0];
  const auto address = nb::cast<uintptr_t>(first);
  for (const Tensor& t : inputs)
    if (t.defined() && (t.numel() == 0 || reinterpret_cast<uintptr_t>(t.data()) == address)) return;
  throw Error("an array of dtype {} cannot be bound: Gradus copies it, {}",
              printable(nb::str(nb::object(object.attr("dtype"))).c_str()), why_copied(interface));
}

}  // namespace

Bound bind(State& state, const nb::args& in_order, const nb::kwargs& keywords) {
  Keywords given(state, keywords);
  std::vector<Tensor> results = buffers_from(state, given.take("into"));
  std::vector<Tensor> inputs = inputs_from(state, in_order, given.left());
  for (nb::handle item : in_order) check_shared(item, inputs);
  for (auto [name, item] : given.left()) check_shared(item, inputs);
  return run_placed(state, [&] {
    return Bound{state.code(), BoundRun(state.clone(), std::move(inputs), std::move(results))};
  });
}

void bind_bound(nb::module_& m) {
  nb::class_<Bound>(m, "BoundRun",
                    "A program of one stage, run again and again on the same memory "
                    "(State.bind). For one thread at a time.")
      .def(
          "run", [](Bound& b) { unlocked([&] { b.run.run(); }); },
          "Runs the stage on what the inputs' arrays hold now. After an Error the results have no "
          "values until a run succeeds.")
      .def_prop_ro("results", arrays_of, nb::sig("def results(self) -> Results"),
                   "The results as arrays, in order and by name; None is a structural zero. Arrays "
                   "are views that show the values of the latest run, but for dtypes that NumPy "
                   "lacks.");
}

void bind_cancel(nb::module_& m) {
  nb::class_<CancelToken>(m, "CancelToken",
                          "Ends the runs that were given it, between instructions, for good.")
      .def(nb::init<>())
      .def("cancel", &CancelToken::cancel, "On any thread.")
      .def_prop_ro("cancelled", &CancelToken::cancelled);
}

}  // namespace gradus::python
