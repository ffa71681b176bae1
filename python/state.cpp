// State in Python: running a program stage by stage.
#include "interpreter/state.h"

#include "base/text.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "python/program.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

fusion::FusionMode mode_from(std::string_view name) {
  if (name == "behind") return fusion::FusionMode::behind;
  if (name == "first") return fusion::FusionMode::first;
  if (name == "off") return fusion::FusionMode::off;
  throw Error("there is no fusion mode '{}'; the modes are 'behind', 'first' and 'off'", name);
}

// What Python raised within an instruction says where in the program that was.
template <class F>
auto placed(const State& state, F&& f) {
  try {
    return unlocked(std::forward<F>(f));
  } catch (const PythonFault& fault) {
    if (!state.fault().empty()) fault.add_note(state.fault());
    throw;
  }
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
  if (named == by_name.size()) return tensors;
  for (auto [key, value] : by_name) {
    auto name = nb::cast<std::string>(key);
    bool known = false, given = false;
    for (size_t i = 0; i < wanted; ++i) {
      if (state.input_name(i) != name) continue;
      known = true, given = i < in_order.size();
    }
    if (!known) throw Error("stage {} has no input '{}'", state.next_stage(), printable(name));
    if (given) throw Error("input '{}' is given twice: by its place and by its name", name);
  }
  throw Error("stage {}: input '{}' is missing", state.next_stage(),
              state.input_name(tensors.size()));
}

nb::object run(State& state, const nb::args& in_order, const nb::kwargs& keywords) {
  RunOptions options;
  nb::kwargs by_name = nb::steal<nb::kwargs>(PyDict_Copy(keywords.ptr()));
  if (by_name.contains("copy_inputs")) {
    options.copy_inputs = nb::cast<bool>(by_name["copy_inputs"]);
    nb::del(by_name["copy_inputs"]);
  }
  if (by_name.contains("timeout")) {
    if (nb::object timeout = by_name["timeout"]; !timeout.is_none())
      options.deadline = std::chrono::steady_clock::now() +
                         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                             std::chrono::duration<double>(nb::cast<double>(timeout)));
    nb::del(by_name["timeout"]);
  }
  std::vector<Tensor> tensors = inputs_from(state, in_order, by_name);
  const size_t stage = state.next_stage();
  std::vector<Tensor> results = placed(state, [&] { return state.run(tensors, options); });
  nb::list values, names;
  for (Tensor& t : results)
    values.append(t.defined() ? nb::cast(Variable(std::move(t))) : nb::none());
  for (const ir::Result& r : state.code()->results(stage)) names.append(r.name);
  IntoPython scope;
  return nb::module_::import_("gradus._results").attr("Results")(values, names);
}

}  // namespace

void bind_state(nb::module_& m) {
  nb::class_<State>(m, "State",
                    "One run of a program, stage by stage, holding what later stages read. For one "
                    "thread at a time. `fusion`: kernels are compiled 'behind' the run for states "
                    "made later, 'first', or not at all ('off').")
      .def(
          "__init__",
          [](State* self, std::shared_ptr<Code> code, std::string_view fusion) {
            StateOptions options{.fusion = mode_from(fusion)};
            unlocked([&] { new (self) State(code, Context::default_context(), options); });
          },
          "code"_a, "fusion"_a = "behind")
      .def("run", run,
           nb::sig("def run(self, *inputs: ArrayLike | None, copy_inputs: bool = False, timeout: "
                   "float | None = None, **named: ArrayLike | None) -> Results"),
           "Runs the next stage: inputs in order, then by name. None is an absent cotangent, or a "
           "result that is structurally zero. An Error in the middle poisons the state: `restart`, "
           "or go on from a clone. Arrays are not copied; with copy_inputs, those are that later "
           "stages read, so that their owner may write to them. `timeout` in seconds.")
      .def(
          "clone", [](const State& s) { return unlocked([&] { return s.clone(); }); },
          "An independent state at the same point that shares the tensors.")
      .def(
          "restart", [](State& s) { unlocked([&] { s.restart(); }); },
          "Back to before stage 0, also where a run has failed.")
      .def(
          "save", [](const State& s, const std::string& path) { unlocked([&] { s.save(path); }); },
          "path"_a, "Writes what later stages need to a file.")
      .def_static(
          "resume",
          [](std::shared_ptr<Code> code, const std::string& path, std::string_view fusion) {
            StateOptions options{.fusion = mode_from(fusion)};
            return unlocked(
                [&] { return State::resume(code, path, Context::default_context(), options); });
          },
          "code"_a, "path"_a, "fusion"_a = "behind",
          "Goes on from a file that `save` wrote, with code of the same program.")
      .def_prop_ro("next_stage", &State::next_stage, "The stage that `run` runs next.")
      .def_prop_ro("finished", &State::finished)
      .def_prop_ro("poisoned", &State::poisoned, "Whether a run has failed in the middle.")
      .def_prop_ro(
          "input_names",
          [](const State& s) {
            std::vector<std::string> names;
            if (s.finished()) return names;
            for (size_t i = 0; i < s.code()->inputs(s.next_stage()); ++i)
              names.push_back(s.input_name(i));
            return names;
          },
          "The names of the next stage's inputs.")
      .def_prop_ro("code", [](const State& s) { return std::const_pointer_cast<Code>(s.code()); })
      .def("dimension", &State::dimension, "name"_a, "The size of a named dimension, once known.");
}

}  // namespace gradus::python
