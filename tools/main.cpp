// The command line, and exit codes: 0 fine, 1 the program or its input is wrong, 2 usage, 3 a fault
// of Gradus itself.
#include <charconv>
#include <cstdio>
#include <functional>
#include <new>

#include <CLI/CLI.hpp>

#include "base/build.h"
#include "base/text.h"
#include "interpreter/plugin.h"
#include "tools/cli.h"
#include "tools/functions.h"
#include "tools/output.h"

namespace gradus::cli {

namespace {

struct Commands {
  RunCommand run;
  GradCommand grad;
  DirectionCommand direction;
  GradcheckCommand gradcheck;
  ImportCommand import;
  ExportCommand export_;
  ViewCommand view;
  CheckOnnxCommand check_onnx;
  DisasmCommand disasm;
  std::string program, dump_after;
  bool markdown = false, json = false;
  std::vector<std::string> plugins;
  std::function<void()> chosen;
};

// What is not one is refused here: converting saturates without a word.
std::string whole_number(const std::string& text) {
  uint64_t value;
  auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && end == text.data() + text.size()
             ? ""
             : fmt::format("{} is no whole number below 2^64", printable(text));
}

void add_program(CLI::App& command, std::string& program) {
  command.add_option("PROGRAM", program, "A .ir text, or an .onnx model")->required();
}

void add_memory_budget(CLI::App& command, std::optional<uint64_t>& bytes) {
  command
      .add_option("--memory-budget", bytes,
                  "Hold at most so much between stages: later ones compute the rest again")
      ->type_name("BYTES")
      ->check(whole_number);
}

void add_inputs(CLI::App& command, InputOptions& from) {
  command.add_option("--inputs", from.inputs, "Inputs by name; of several files a later one wins")
      ->type_name("F.npz|F.safetensors")
      ->allow_extra_args(false);
  command
      .add_option("--random", from.random,
                  "Fill inputs that are not found: floats N(0, 1), "
                  "integers and bools 0 or 1")
      ->type_name("SEED")
      ->check(whole_number);
  command.add_option("--set", from.set, "The size of a dimension that no input settles")
      ->type_name("DIM=N")
      ->allow_extra_args(false);
}

void add_run(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("run", "Run the stages in order; print their results");
  add_program(*command, c.run.program);
  add_inputs(*command, c.run.from);
  command->add_option("--weights", c.run.from.weights, "Parameters by name, after --inputs")
      ->type_name("F.npz|F.safetensors");
  command->add_option("--stages", c.run.stages, "Run the first N stages only")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->check(whole_number);
  add_memory_budget(*command, c.run.memory_budget);
  command->add_option("--outputs", c.run.outputs, "Write all results that are defined, by name")
      ->type_name("OUT.npz|OUT.safetensors");
  command
      ->add_option("--save-state", c.run.save_state,
                   "Save what later stages need after the last one that runs")
      ->type_name("S.state");
  command->add_option("--resume", c.run.resume, "Go on from a state that was saved")
      ->type_name("S.state");
  command->add_option("--threads", c.run.threads, "Threads for one loop; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  CLI::Option* fusion =
      command
          ->add_option(
              "--fusion", c.run.fusion,
              "Pointwise groups as compiled kernels: off (the default: a single run is over "
              "before they would pay), behind (compiled while the rounds of --repeat run) or "
              "first (compiled before)")
          ->type_name("MODE")
          ->check(CLI::IsMember({"off", "behind", "first"}));
  command
      ->add_option_function<std::string>(
          "--engine",
          [&c](const std::string& name) { c.run.fusion = name == "fused" ? "first" : "off"; },
          "Another name for --fusion: interpret is off, fused is first")
      ->type_name("NAME")
      ->check(CLI::IsMember({"interpret", "fused"}))
      ->excludes(fusion);
  command->add_option("--kernels", c.run.kernels, "Keep compiled kernels for other runs")
      ->type_name("FOLDER");
  command->add_flag("--symbols", c.run.symbols,
                    "Tell gdb of kernels, with the program's lines, and write perf's map file");
  command
      ->add_option("--dump-after", c.run.dump_after,
                   "bind, share, group, make, place: print the plan after that step of planning; "
                   "fusion: the groups that ran; cuda: their CUDA sources; x86-64-v3, x86-64-v4, "
                   "aarch64: their assembly for such machines")
      ->type_name("STEP")
      ->check(CLI::IsMember({"bind", "share", "group", "make", "place", "fusion", "cuda",
                             "x86-64-v3", "x86-64-v4", "aarch64"}));
  command->add_flag("--stats", c.run.stats, "Print what became of the kernels");
  command
      ->add_option("--device", c.run.device,
                   "cpu; or cuda:0, where all stages run then (--fusion first)")
      ->type_name("NAME");
  command->add_flag(
      "--atomics", c.run.atomics,
      "On a device: add up what several indices add to one place by atomic additions, "
      "faster and in no fixed order; without, in index order, with the CPU's bits");
  command->add_option("--repeat", c.run.repeat, "Run N times; print each stage's median time")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--profile", c.run.profile,
                   "Write the last run's instructions as a trace for Perfetto or Chrome")
      ->type_name("T.json");
  command->callback([&c] { c.chosen = [&c] { run(c.run); }; });
}

void add_grad(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("grad", "Append the derivative stages up to stage N");
  add_program(*command, c.grad.program);
  command->add_option("--order", c.grad.order, "The last stage that will be there")
      ->type_name("N")
      ->required()
      ->check(CLI::Range(0, 1000));
  command->add_option("--wrt", c.grad.wrt, "Differentiate with respect to these inputs only")
      ->type_name("a,b")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--batch", c.grad.batch,
                   "The last stage takes cotangents with a dimension N in front, and gives a "
                   "gradient for each")
      ->type_name("N");
  command->add_option("-o", c.grad.out, "Write here, not to standard output")->type_name("OUT.ir");
  command->callback([&c] { c.chosen = [&c] { grad(c.grad); }; });
}

void add_directions(CLI::App& app, Commands& c) {
  constexpr std::pair<const char*, const char*> kinds[] = {
      {"jvp", "Add the derivative along tangents t_<input>: t_<result>, forward mode"},
      {"hvp", "Add the Hessian of the 0-d result times tangents t_<input>: hvp_<input>"},
      {"laplacian", "Add the Laplacian of the 0-d result: laplacian_<input>"},
      {"jacobian", "Add the derivatives of all results: jacobian_<result>_<input>"},
      {"hessian", "Add the second derivatives of the 0-d result: hessian_<input>_<input>"}};
  for (auto [name, doc] : kinds) {
    CLI::App* command = app.add_subcommand(name, doc);
    add_program(*command, c.direction.program);
    command->add_option("--wrt", c.direction.wrt, "Differentiate with respect to these inputs only")
        ->type_name("a,b")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("-o", c.direction.out, "Write here, not to standard output")
        ->type_name("OUT.ir");
    command->callback([&c, kind = name] {
      c.direction.kind = kind;
      c.chosen = [&c] { directions(c.direction); };
    });
  }
}

void add_gradcheck(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand(
      "gradcheck", "Hold every derivative stage against central differences of the one before");
  add_program(*command, c.gradcheck.program);
  add_inputs(*command, c.gradcheck.from);
  command->add_option("--order", c.gradcheck.order, "Check stages 1 to N")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command->add_option("--wrt", c.gradcheck.wrt, "Differentiate with respect to these inputs only")
      ->type_name("a,b")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->callback([&c] { c.chosen = [&c] { gradcheck(c.gradcheck); }; });
}

void add_inspection(CLI::App& app, Commands& c) {
  CLI::App* verifying = app.add_subcommand("verify", "Check a program; say nothing if it is fine");
  add_program(*verifying, c.program);
  verifying->callback([&c] { c.chosen = [&c] { verify(c.program); }; });
  CLI::App* printing = app.add_subcommand("print", "Print the program");
  add_program(*printing, c.program);
  printing
      ->add_option("--dump-after", c.dump_after, "Print it as it is after a step of the pipeline")
      ->type_name("PASS");
  printing->callback([&c] { c.chosen = [&c] { print(c.program, c.dump_after); }; });
  CLI::App* disassembling =
      app.add_subcommand("disasm", "Show the compiled stages: registers, frees, places");
  add_program(*disassembling, c.disasm.program);
  disassembling
      ->add_option("--set", c.disasm.set,
                   "The size of a dimension, for saying what stages take of memory")
      ->type_name("DIM=N")
      ->allow_extra_args(false);
  add_memory_budget(*disassembling, c.disasm.memory_budget);
  disassembling
      ->add_option("--fusion", c.disasm.fusion,
                   "Say it for single instructions (off, the default) or for kernels (first)")
      ->type_name("MODE")
      ->check(CLI::IsMember({"off", "first"}));
  disassembling
      ->add_option("--dump-after", c.disasm.dump_after,
                   "memory: say what is alive where each stage takes most")
      ->type_name("STEP")
      ->check(CLI::IsMember({"memory"}));
  disassembling
      ->add_option("--device", c.disasm.device,
                   "cuda:0, which need not be there: say what the host does of each stage there")
      ->type_name("NAME");
  disassembling->callback([&c] { c.chosen = [&c] { disasm(c.disasm); }; });
}

void add_ops(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("ops", "List the operators from their definitions");
  CLI::Option* markdown = command->add_flag("--markdown", c.markdown, "As a Markdown table");
  command->add_flag("--json", c.json, "As JSON")->excludes(markdown);
  command->callback([&c] {
    c.chosen = [&c] {
      list_operators(c.markdown ? TableFormat::markdown
                     : c.json   ? TableFormat::json
                                : TableFormat::text);
    };
  });
}

void add_devices(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("devices", "Say what there is of CUDA, and what is not");
  command->callback([&c] { c.chosen = devices; });
}

void add_import(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("import", "Convert an ONNX model to a program text");
  command->add_option("MODEL", c.import.model, "An .onnx model")->required();
  command->add_option("-o", c.import.out, "Write here, not to standard output")
      ->type_name("OUT.ir");
  command->add_option("--weights", c.import.weights, "Write the weights by name")
      ->type_name("OUT.npz");
  command
      ->add_option("--inputs", c.import.from.inputs,
                   "Inputs by name; those whose values decide the program's structure are fixed")
      ->type_name("F.npz")
      ->allow_extra_args(false);
  command->callback([&c] { c.chosen = [&c] { import_model(c.import); }; });
}

void add_export(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("export", "Write the first stage as an ONNX model");
  command->add_option("PROGRAM", c.export_.program, "A .ir text, or an .onnx model")->required();
  command->add_option("-o", c.export_.out, "The model")->type_name("OUT.onnx")->required();
  command
      ->add_option("--weights", c.export_.from.weights,
                   "Inputs that the model has values for, by name")
      ->type_name("F.npz");
  command
      ->add_option("--inputs", c.export_.from.inputs,
                   "Of a model: inputs whose values decide the program's structure")
      ->type_name("F.npz")
      ->allow_extra_args(false);
  command->callback([&c] { c.chosen = [&c] { export_model(c.export_); }; });
}

void add_check_onnx(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand("check-onnx", "Run ONNX backend tests");
  c.check_onnx.folders = {"/usr/share/libonnx-testdata/data"};
  command->add_option("FOLDER", c.check_onnx.folders, "Folders with tests in them")
      ->capture_default_str();
  command
      ->add_option("--gradients", c.check_onnx.gradients,
                   "Hold derivatives up to order N against differences, too")
      ->type_name("N")
      ->check(CLI::Range(0, 10));
  command->add_flag("--exports", c.check_onnx.exports,
                    "Write programs as models, too, and run those");
  command->add_option("--least", c.check_onnx.least, "Fail if fewer tests pass, or are exported")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command->callback([&c] { c.chosen = [&c] { check_onnx(c.check_onnx); }; });
}

void add_view(CLI::App& app, Commands& c) {
  CLI::App* command = app.add_subcommand(
      "view", "Draw the compiled program: stages, kernels, and what is held between stages");
  add_program(*command, c.view.program);
  command
      ->add_option("-o", c.view.out,
                   "A drawing, or a page that searches, folds and selects in it; if left out, the "
                   "drawing goes to standard output")
      ->type_name("OUT.svg|OUT.html");
  command->add_option("--profile", c.view.profile, "Show the times of a profile of gradus run")
      ->type_name("T.json");
  add_memory_budget(*command, c.view.memory_budget);
  command->add_flag("--written", c.view.written, "Draw the program as it is written");
  command
      ->add_option("--device", c.view.device,
                   "cuda:0, which need not be there: draw the kernels that would run on it")
      ->type_name("NAME");
  command->add_option("--set", c.view.from.set, "The size of a dimension, for planning kernels")
      ->type_name("DIM=N")
      ->allow_extra_args(false);
  command
      ->add_option("--inputs", c.view.from.inputs,
                   "Inputs by name; those whose values decide a model's structure are fixed")
      ->type_name("F.npz")
      ->allow_extra_args(false);
  command->callback([&c] { c.chosen = [&c] { view(c.view); }; });
}

void parse_and_run(int argc, char** argv) {
  CLI::App app("Runs staged graph programs and derives their derivatives.", "gradus");
  const std::string without = left_out();
  app.set_version_flag("--version",
                       "gradus " GRADUS_VERSION + (without.empty() ? "" : ", " + without));
  app.require_subcommand(1);
  app.fallthrough();  // so that --plugin may stand behind the command
  Commands c;
  app.add_option("--plugin", c.plugins, "A library with operators and functions of your own")
      ->type_name("LIB.so")
      ->allow_extra_args(false);
  add_run(app, c);
  add_grad(app, c);
  add_directions(app, c);
  add_gradcheck(app, c);
  add_inspection(app, c);
  add_ops(app, c);
  add_devices(app, c);
  add_import(app, c);
  add_export(app, c);
  add_check_onnx(app, c);
  add_view(app, c);
  app.footer(
      "Exit status: 0 fine, 1 the program or its input is wrong, 2 usage, 3 a fault of "
      "Gradus itself.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help, version
    app.exit(e);
    finish_output();
    return;
  } catch (const CLI::ParseError& e) {
    throw UsageError(
        "{}\nRun gradus {}--help for what can be said.", e.what(),
        app.get_subcommands().empty() ? "" : app.get_subcommands()[0]->get_name() + " ");
  }
  for (const std::string& plugin : c.plugins) load_plugin(plugin);
  c.chosen();
  finish_output();
}

int fail(int status, std::string_view message) {
  fmt::print(stderr, "{}\n", message);
  return status;
}

}  // namespace

int tool(int argc, char** argv) {
  try {
    register_functions();
    parse_and_run(argc, argv);
    return 0;
  } catch (const UsageError& e) {
    return fail(2, "error: " + e.message());
  } catch (const Error& e) {
    // What has a place says "file:line:col: error: " itself.
    return fail(1, (e.message() == e.bare() ? "error: " : "") + e.message());
  } catch (const ResourceError& e) {
    return fail(1, "error: " + e.message());
  } catch (const std::bad_alloc&) {
    return fail(1, "error: out of memory");
  } catch (const std::exception& e) {
    return fail(3, fmt::format("error: a fault of Gradus itself, please report it: {}", e.what()));
  }
}

}  // namespace gradus::cli
