// State in Python: running a program stage by stage.
#include "gradus/state.h"

#include "python/bindings.h"
#include "python/context.h"
#include "python/exchange_table.h"
#include "python/program.h"
#include "python/run.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

FusionMode mode_from(std::string_view name) {
  if (name == "behind") return FusionMode::behind;
  if (name == "first") return FusionMode::first;
  if (name == "off") return FusionMode::off;
  throw Error("there is no fusion mode '{}'; the modes are 'behind', 'first' and 'off'", name);
}

}  // namespace

void bind_state(nb::module_& m) {
  bind_cancel(m);
  bind_bound(m);
  nb::class_<StageMemory>(m, "StageMemory", "What a run of a stage takes, in bytes.")
      .def_ro("buffer", &StageMemory::buffer,
              "Values that stay inside; the largest stage's counts.")
      .def_ro("held", &StageMemory::held, "Left for later stages alone.")
      .def_ro("results", &StageMemory::results)
      .def("__repr__", [](const StageMemory& m) {
        return fmt::format("StageMemory(buffer={}, held={}, results={})", m.buffer, m.held,
                           m.results);
      });
  nb::class_<State>(m, "State",
                    "One run of a program, stage by stage, holding what later stages read. For one "
                    "thread at a time. `fusion`: kernels are compiled 'behind' the run for states "
                    "made later, 'first', or not at all ('off').")
      .def(
          "__init__",
          [](State* self, std::shared_ptr<Code> code, std::string_view fusion, nb::handle context) {
            StateOptions options{.fusion = mode_from(fusion)};
            auto in = context_from(context);
            unlocked([&] { new (self) State(code, in, options); });
          },
          "code"_a, "fusion"_a = "behind", "context"_a = nb::none(),
          nb::sig(
              "def __init__(self, code: Code, fusion: str = \"behind\", context: Context | None "
              "= None) -> None"))
      .def("run", run,
           nb::sig("def run(self, *inputs: ArrayLike | None, copy_inputs: bool = False, timeout: "
                   "float | None = None, cancel: CancelToken | None = None, observer: typing.Any = "
                   "None, results_on_device: bool = False, into: collections.abc.Sequence["
                   "NDArray[typing.Any, typing.Any] | None] | dict[str, NDArray[typing.Any, "
                   "typing.Any]] | None = None, **named: ArrayLike | None) -> Results"),
           "Runs the next stage: inputs in order, then by name. None is an absent cotangent, or a "
           "result that is structurally zero. An Error in the middle poisons the state: `restart`, "
           "or go on from a clone. Arrays are not copied; with copy_inputs, those are that later "
           "stages read, so that their owner may write to them. `timeout` in seconds. `observer` "
           "is told of each instruction by its methods before(stage, instruction), after, "
           "group(stage, instructions) and host, and of those of a loop's steps by "
           "before_in_step(graph, step, instruction) and after_in_step. With results_on_device, "
           "results stay where the state runs. `into` has arrays that results are written to, in "
           "order or by name; one "
           "that later stages read must not be written before they ran.")
      .def(
          "bind", bind,
          nb::sig("def bind(self, *inputs: ArrayLike | None, into: collections.abc.Sequence["
                  "NDArray[typing.Any, typing.Any] | None] | dict[str, NDArray[typing.Any, "
                  "typing.Any]] | None = None, **named: ArrayLike | None) -> BoundRun"),
          "Binds a clone of a state at stage 0 of a program with one stage to memory: each "
          "BoundRun.run reads these arrays, which are not copied, and writes the arrays of `into`, "
          "or arrays of its own. Prepare the state first. Runs the stage once.")
      .def("run_exchanged", run_exchanged, "tensors"_a, "type"_a,
           nb::sig("def run_exchanged(self, tensors: collections.abc.Sequence[typing.Any], type: "
                   "typing.Any) -> list[typing.Any]"),
           "Runs the next stage on tensors of a type of another library's that brings DLPack's "
           "functions in C (torch.Tensor), and gives tensors of that type; None is an absent one. "
           "Nothing is copied but results that others read too.")
      .def(
          "prepare",
          [](State& s, const DimSizes& sizes) {
            return unlocked([&] { return s.prepare(sizes); });
          },
          "sizes"_a = DimSizes(),
          "Plans and compiles all stages for inputs of these sizes, so that runs on them plan and "
          "compile nothing. What each stage takes of memory.")
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
          [](std::shared_ptr<Code> code, const std::string& path, std::string_view fusion,
             nb::handle context) {
            StateOptions options{.fusion = mode_from(fusion)};
            auto in = context_from(context);
            return unlocked([&] { return State::resume(code, path, in, options); });
          },
          "code"_a, "path"_a, "fusion"_a = "behind", "context"_a = nb::none(),
          nb::sig("def resume(code: Code, path: str, fusion: str = \"behind\", context: Context | "
                  "None = None) -> State"),
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
      .def("dimension", &State::dimension, "name"_a, "The size of a named dimension, once known.")
      .def_prop_ro("held_bytes", &State::held_bytes, "What is held for later stages.")
      .def_prop_ro(
          "whole_stages",
          [](const State& s) {
            std::vector<size_t> stages;
            for (const WholeStage& whole : s.whole_stages()) stages.push_back(whole.stage);
            return stages;
          },
          "The stages that ran as one function each.")
      .def(
          "describe_kernels", [](const State& s) { return describe_groups(s); },
          "What of the stages that have run was a kernel, as text.")
      .def(
          "describe_memory", [](const State& s, size_t most) { return describe_peaks(s, most); },
          "most"_a = 30, "What is alive where each stage takes most of memory, as text.");
}

}  // namespace gradus::python
