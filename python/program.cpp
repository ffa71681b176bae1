// Program and Code in Python.
#include "python/program.h"

#include <algorithm>
#include <fstream>

#include "gradus/code.h"
#include "gradus/files.h"
#include "gradus/gradcheck.h"
#include "gradus/import.h"
#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/plugin.h"
#include "gradus/pt2.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "python/bindings.h"
#include "python/errors.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;
using Names = std::optional<std::vector<std::string>>;

NamedTensors tensors_from(const nb::dict& inputs) {
  NamedTensors out;
  for (auto [name, value] : inputs) {
    auto key = nb::cast<std::string>(name);
    // A number takes the type of the input when it is looked for; as a tensor it is an f64 or i64.
    Variable v = PyFloat_Check(value.ptr()) ? variable_from(value, DType::f64, "an input")
                                            : variable_from(value, DType::i64, "an input");
    out.emplace(std::move(key), v.defined() ? v.data() : Tensor());
  }
  return out;
}

Program load(const std::string& path, const nb::dict& values,
             const std::map<std::string, int64_t>& lengths) {
  const NamedTensors known = tensors_from(values);
  ImportOptions options;
  options.value = [&](std::string_view name) {
    auto it = known.find(name);
    return it == known.end() ? Tensor() : it->second;
  };
  options.length = [&](std::string_view name) -> std::optional<int64_t> {
    auto it = lengths.find(std::string(name));
    return it == lengths.end() ? std::nullopt : std::optional(it->second);
  };
  return unlocked([&] {
    if (!importer_of(path).model && (!known.empty() || !lengths.empty()))
      throw Error("{}: values and lengths are for models: {}", path, importable(true));
    ImportedProgram program = import_program(path, options);
    return Program{std::make_shared<const ir::Module>(std::move(program.module)),
                   std::move(program.weights)};
  });
}

const ir::Stage& stage_of(const ir::Graph& graph, size_t stage) {
  if (stage >= graph.stages.size())
    throw Error("there is no stage {}: '{}' has {}", stage, graph.name, graph.stages.size());
  return graph.stages[stage];
}

nb::list inputs_of(const ir::Graph& graph, size_t stage) {
  nb::list list;
  for (ir::ValueId v : stage_of(graph, stage).inputs)
    list.append(nb::make_tuple(graph[v].name, graph[v].type));
  return list;
}

nb::list results_of(const ir::Graph& graph, size_t stage) {
  nb::list list;
  for (const ir::Result& r : stage_of(graph, stage).results)
    list.append(nb::make_tuple(
        r.name, r.value == ir::no_value ? nb::none() : nb::cast(graph[r.value].type)));
  return list;
}

// The same inputs of stage 0, another graph: the weights stay.
template <class F>
Program derive(const Program& p, F&& f) {
  return unlocked([&] { return program_of(f(p.graph()), p.weights); });
}

GradcheckReport check(const Program& p, int order, const nb::dict& inputs, const Names& wrt,
                      const DimSizes& sizes, uint64_t seed, double tolerance, int64_t max_elements,
                      int directions, int tries, nb::object progress) {
  require_dimensions(p.graph(), sizes);
  NamedTensors given = tensors_from(inputs);
  GradcheckOptions options{.order = order,
                           .wrt = wrt,
                           .seed = seed,
                           .tolerance = tolerance,
                           .max_elements = max_elements,
                           .directions = directions,
                           .tries = tries};
  if (!progress.is_none())
    options.progress = [&progress](int stage, double fraction) {
      call_python([&] { progress(stage, fraction); });
    };
  return unlocked([&] {
    auto context = autograd::current_context();
    InputSources sources = random_sources(seed, context);
    sources.find = [&](std::string_view name) -> std::optional<FoundTensor> {
      if (auto it = given.find(name); it != given.end()) return FoundTensor{it->second, "inputs"};
      if (auto it = p.weights.find(name); it != p.weights.end())
        return FoundTensor{it->second, "the model"};
      return std::nullopt;
    };
    for (const auto& [name, size] : sizes) sources.sizes.emplace(name, size);
    return gradus::gradcheck(p.graph(), sources, options, context);
  });
}

// Called after each pass, with what the program is then.
ir::DumpHook dump_to(const nb::object& dump) {
  if (dump.is_none()) return {};
  return [&dump](std::string_view pass, const ir::Graph& graph) {
    call_python([&] { dump(std::string(pass), program_of(graph)); });
  };
}

// A pass in Python takes a Program and gives another.
CompilePass pass_from(std::string name, nb::object function) {
  return {std::move(name), [f = Kept(std::move(function))](ir::Graph& graph) {
            graph = call_python([&] {
              nb::object result = f.get()(program_of(graph));
              const Program* program = nullptr;
              if (!nb::try_cast(result, program) || !program)
                throw Error("what it gives is no Program");
              return program->graph();
            });
          }};
}

std::shared_ptr<Code> compile(const Program& p, const std::optional<int64_t>& memory_budget,
                              const DimSizes& sizes, const nb::object& dump, const nb::list& passes,
                              bool fast_functions) {
  CompileOptions options;
  options.fast_functions = fast_functions;
  options.dump = dump_to(dump);
  if (memory_budget) options.memory_budget = {*memory_budget, sizes};
  for (nb::handle item : passes)
    options.passes.push_back(pass_from(nb::cast<std::string>(item[0]), nb::object(item[1])));
  return unlocked([&] { return std::const_pointer_cast<Code>(Code::compile(p.graph(), options)); });
}

std::string line_of(const GradcheckEntry& e) {
  std::string line = fmt::format("stage {} {}: {}", e.stage, e.input, e.verdict());
  if (e.passed || e.checked > 0) line += fmt::format(" (error {:.3g})", e.error);
  return e.why.empty() ? line : line + ": " + e.why;
}

void bind_report(nb::module_& m) {
  nb::class_<GradcheckEntry>(m, "GradcheckEntry", "One gradient of one derivative stage.")
      .def_ro("stage", &GradcheckEntry::stage)
      .def_ro("input", &GradcheckEntry::input)
      .def_ro("error", &GradcheckEntry::error)
      .def_ro("element", &GradcheckEntry::element)
      .def_ro("analytic", &GradcheckEntry::analytic)
      .def_ro("numeric", &GradcheckEntry::numeric)
      .def_ro("passed", &GradcheckEntry::passed)
      .def_ro("why", &GradcheckEntry::why)
      .def_prop_ro("verdict", &GradcheckEntry::verdict, "`ok`, `WRONG`, or `UNCHECKED`.")
      .def("__repr__", [](const GradcheckEntry& e) { return line_of(e); });
  nb::class_<GradcheckReport>(m, "GradcheckReport", "What a gradcheck found; true if all agree.")
      .def_prop_ro("entries", [](const GradcheckReport& r) { return r.entries; })
      .def_prop_ro("passed", &GradcheckReport::passed)
      .def("__bool__", &GradcheckReport::passed)
      .def("__repr__", [](const GradcheckReport& r) {
        std::string text = r.passed() ? "passed" : "FAILED";
        for (const GradcheckEntry& e : r.entries) text += "\n  " + line_of(e);
        return text;
      });
}

// A number, a Dim, or a name.
ir::Dim size_from(nb::handle size) {
  if (PyUnicode_Check(size.ptr())) return ir::Dim::symbol(nb::cast<std::string>(size));
  const ir::Dim n = dim_from(size);
  if (n.is_constant() && n.value() < 0) throw Error("a size must be 0 or more, not {}", n.value());
  return n;
}

// With `points`, a size, of a program of one point: the inputs `mapped`, their tangents and all
// results have a dimension of the points in front.
void bind_directions(nb::class_<Program>& program) {
  auto define = [&](const char* name,
                    ir::Graph (*pass)(const ir::Graph&, const ir::DirectionOptions&),
                    const char* doc) {
    program.def(
        name,
        [pass](const Program& p, const Names& wrt, const std::vector<std::string>& mapped,
               nb::handle points) {
          ir::DirectionOptions options{wrt};
          if (mapped.empty() == !points.is_none())
            throw Error(
                "`mapped`, the inputs that differ between points, and `points`, the number "
                "of these, are given together");
          if (!points.is_none()) options.points = {mapped, size_from(points)};
          return derive(p, [&](const ir::Graph& g) { return pass(g, options); });
        },
        "wrt"_a = nb::none(), "mapped"_a = std::vector<std::string>(), "points"_a = nb::none(),
        nb::sig(fmt::format("def {}(self, wrt: collections.abc.Sequence[str] | None = None, "
                            "mapped: collections.abc.Sequence[str] = [], points: int | str | Dim | "
                            "None = None) -> Program",
                            name)
                    .c_str()),
        doc);
  };
  define(
      "jvp", ir::jvp,
      "A program that takes a tangent t_<x> for each input and gives t_<y> for each result. With "
      "`points`, a size, here and below: for so many points at once; the inputs `mapped`, their "
      "tangents and all results have that dimension in front.");
  define("hvp", ir::hvp,
         "Of a program with one 0-d result: takes tangents t_<x>, gives hvp_<x>, the Hessian "
         "times them.");
  define("laplacian", ir::laplacian,
         "Of a program with one 0-d result: gives laplacian_<x> beside it.");
  define("jacobian", ir::jacobian, "Gives jacobian_<y>_<x> beside the results.");
  define("hessian", ir::hessian,
         "Of a program with one 0-d result: gives hessian_<x>_<w> beside it.");
}

}  // namespace

void require_dimensions(const ir::Graph& graph, const DimSizes& sizes) {
  const std::vector<std::string> known = graph.dimension_names();
  for (const auto& [name, size] : sizes)
    if (!std::ranges::binary_search(known, name))
      throw Error("sizes: the program has no dimension '{}'; {}", printable(name),
                  known.empty() ? "none of its sizes is open"
                                : fmt::format("it has {}", fmt::join(known, ", ")));
}

void bind_program(nb::module_& m) {
  bind_report(m);
  nb::class_<Code>(m, "Code", "A compiled program: never changes, for any number of states.")
      .def_prop_ro("stages", &Code::stages)
      .def(
          "inputs", [](const Code& c, size_t s) { return inputs_of(c.graph(), s); }, "stage"_a = 0,
          nb::sig("def inputs(self, stage: int = 0) -> list[tuple[str, Type]]"))
      .def(
          "results", [](const Code& c, size_t s) { return results_of(c.graph(), s); },
          "stage"_a = 0,
          nb::sig("def results(self, stage: int = 0) -> list[tuple[str, Type | None]]"))
      .def(
          "reads_later",
          [](const Code& c, size_t stage) {
            stage_of(c.graph(), stage);
            std::vector<bool> read;
            for (Register r : c.stage(stage).inputs)
              read.push_back(r != no_register && c.outlives_stage(r, stage));
            return read;
          },
          "stage"_a = 0, "Of each input of a stage, whether a later stage reads it.")
      .def(
          "reads",
          [](const Code& c, size_t stage) {
            stage_of(c.graph(), stage);
            std::vector<bool> read;
            for (Register r : c.stage(stage).inputs) read.push_back(r != no_register);
            return read;
          },
          "stage"_a = 0, "Of each input of a stage, whether anything reads it.")
      .def(
          "disassemble", [](const Code& c) { return disassemble(c); },
          "The instructions, as text.");

  auto program = nb::class_<Program>(
      m, "Program", "A staged graph program. Never changes: what derives from it is another one.");
  program.def_prop_ro("name", [](const Program& p) { return p.graph().name; })
      .def_prop_ro("stages", [](const Program& p) { return p.graph().stages.size(); })
      .def(
          "inputs", [](const Program& p, size_t s) { return inputs_of(p.graph(), s); },
          "stage"_a = 0, nb::sig("def inputs(self, stage: int = 0) -> list[tuple[str, Type]]"),
          "Names and types of a stage's inputs.")
      .def(
          "results", [](const Program& p, size_t s) { return results_of(p.graph(), s); },
          "stage"_a = 0,
          nb::sig("def results(self, stage: int = 0) -> list[tuple[str, Type | None]]"),
          "Names and types of a stage's results; None is a structural zero.")
      .def_prop_ro(
          "weights",
          [](const Program& p) {
            nb::dict d;
            for (const auto& [name, t] : p.weights) d[name.c_str()] = Variable(t);
            return d;
          },
          nb::sig("def weights(self) -> dict[str, Tensor]"),
          "The values that a model brings for some of its inputs.")
      .def(
          "differentiate",
          [](const Program& p, int order, const Names& wrt, bool total, bool cotangents) {
            return derive(p, [&](const ir::Graph& g) {
              return ir::differentiate(
                  g, {.order = order, .wrt = wrt, .cotangents = cotangents, .total = total});
            });
          },
          "order"_a = 1, "wrt"_a = nb::none(), "total"_a = false, "cotangents"_a = true,
          "The program with derivative stages up to `order`, by the inputs of stage 0 that `wrt` "
          "names (None: all floating ones) and, with `cotangents`, by those of later stages. With "
          "`total` a stage takes a cotangent for every result of every earlier one.")
      .def(
          "join_stages",
          [](const Program& p, size_t from, const std::vector<std::string>& absent) {
            return derive(p, [&](const ir::Graph& g) { return ir::join_stages(g, from, absent); });
          },
          "from_stage"_a = 0, "absent"_a = std::vector<std::string>(),
          "A program of one stage with the inputs of all stages, and the results of those from "
          "`from_stage` on. Inputs that `absent` names are zeros, and none any more.")
      .def(
          "select_results",
          [](const Program& p, const std::vector<std::string>& names) {
            return derive(p, [&](const ir::Graph& g) { return ir::select_results(g, names); });
          },
          "names"_a, "Of a program of one stage: with these results alone, in this order.")
      .def(
          "keep_results",
          [](const Program& p, size_t stage, const std::vector<std::string>& names) {
            stage_of(p.graph(), stage);
            return derive(p, [&](ir::Graph g) {
              for (ir::Result& r : g.stages[stage].results)
                if (std::ranges::find(names, r.name) == names.end()) r.value = ir::no_value;
              return g;
            });
          },
          "stage"_a, "names"_a,
          "With structural zeros as the other results of a stage, which then computes nothing for "
          "them.")
      .def(
          "rename",
          [](const Program& p, const std::vector<std::string>& inputs,
             const std::vector<std::string>& results) {
            return unlocked([&] { return program_of(ir::rename(p.graph(), inputs, results)); });
          },
          "inputs"_a, "results"_a,
          "Of a program of one stage: with these names of its inputs and results, in order. It "
          "brings no weights.")
      .def(
          "batch",
          [](const Program& p, const std::vector<std::string>& inputs, nb::handle size) {
            const ir::Dim n = size_from(size);
            return derive(p, [&](const ir::Graph& g) { return ir::batch(g, inputs, n); });
          },
          "inputs"_a, "size"_a,
          nb::sig("def batch(self, inputs: collections.abc.Sequence[str], size: int | str | Dim) "
                  "-> Program"),
          "Of a program of one stage: for many of these inputs at once. They and all results have "
          "a dimension `size` in front.")
      .def("compile", compile, "memory_budget"_a = nb::none(), "sizes"_a = DimSizes(),
           "dump"_a = nb::none(), "passes"_a = nb::list(), "fast_functions"_a = false,
           nb::sig("def compile(self, memory_budget: int | None = None, sizes: dict[str, int] = "
                   "{}, dump: collections.abc.Callable[[str, Program], object] | None = None, "
                   "passes: list[tuple[str, collections.abc.Callable[[Program], Program]]] = [], "
                   "fast_functions: bool = False) -> Code"),
           "Throws Error with the program's line where it cannot run. `memory_budget`: how many "
           "bytes may be held between stages for inputs of these `sizes`; later stages compute "
           "again what would be more. `dump` is called after each pass with its name and the "
           "program then. `passes` are the caller's own, run first: names, and functions from a "
           "program to another. `fast_functions`: exp, tanh, sigmoid and silu are "
           "computed within 4 ulp of f32 in place of 1; f64 does not change.")
      .def("gradcheck", check, "order"_a = 1, "inputs"_a = nb::dict(), "wrt"_a = nb::none(),
           "sizes"_a = DimSizes(), "seed"_a = 0, "tolerance"_a = 1e-6,
           "max_elements"_a = GradcheckOptions().max_elements,
           "directions"_a = GradcheckOptions().directions, "tries"_a = GradcheckOptions().tries,
           "progress"_a = nb::none(),
           "Holds stages 1 to `order` against central differences of the stage before, in f64. "
           "Inputs that are not given are random. Of an input max_elements are looked at one by "
           "one; a larger one is moved as a whole along `directions`, too. At kinks it goes on "
           "with nudged inputs, `tries` times. `progress` is called with a stage and a fraction.")
      .def("__str__",
           [](const Program& p) {
             if (p.module->graphs.size() > 1) return ir::print(*p.module);
             // With the graphs that loops and branches of it run.
             return fmt::format("gradus {}\n\n{}", ir::text_version, ir::print(p.graph()));
           })
      .def("__repr__", [](const Program& p) {
        const size_t stages = p.graph().stages.size();
        return fmt::format("<Program '{}', {} stage{}>", p.graph().name, stages,
                           stages == 1 ? "" : "s");
      });
  bind_directions(program);
  add_views(m, program);

  m.def(
      "parse",
      [](std::string text, std::string file) {
        return unlocked([&] {
          return Program{std::make_shared<const ir::Module>(ir::parse(text, file)), {}};
        });
      },
      "text"_a, "file"_a = "", "The program of a text. `file` is its name in messages.");
  m.def("load_program", load, "path"_a, "values"_a = nb::dict(),
        "lengths"_a = std::map<std::string, int64_t>());
  m.def(
      "import_pt2",
      [](const nb::bytes& archive, const std::string& name) {
        std::span<const std::byte> bytes(static_cast<const std::byte*>(archive.data()),
                                         archive.size());
        return unlocked([&] {
          ImportedProgram program = pt2::import_bytes(bytes, name, pt2::OtherGuards::left);
          return Program{std::make_shared<const ir::Module>(std::move(program.module)),
                         std::move(program.weights)};
        });
      },
      "archive"_a, "name"_a,
      "The program of an archive of torch.export in memory. The caller checks its guards: those "
      "that a "
      "program cannot state are left out.");
  m.def("load_tensors", [](const std::string& path) {
    return unlocked([&] {
      TensorFile file(path);
      std::vector<std::pair<std::string, Variable>> list;
      for (const std::string& name : file.names()) list.emplace_back(name, file.read(name));
      return list;
    });
  });
  m.def(
      "load_plugin", [](const std::string& path) { unlocked([&] { load_plugin(path); }); },
      "path"_a, "Loads a shared library that registers C++ functions and operators.");
}

}  // namespace gradus::python
