// The command line, and exit codes: 0 fine, 1 the program or its input is wrong, 2 usage, 3 a fault
// of Gradus itself.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <functional>
#include <new>

#include <CLI/CLI.hpp>

#include "gradus/build.h"
#include "gradus/import.h"
#include "gradus/messages.h"
#include "gradus/onnx.h"
#include "gradus/plugin.h"
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
  CheckPotentialCommand check_potential;
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
std::string check_whole(const std::string& text) {
  if (whole_number<uint64_t>(text)) return "";
  return fmt::format("{} is no whole number below 2^64", printable(text));
}

std::string check_named(const std::string& path) {
  return path.empty() ? "the name of the file is empty" : "";
}

// CLI11's own checks do not say what is wrong with a word that is no number, or how far an open
// range goes.
CLI::Validator whole(int64_t least, int64_t most = INT_MAX) {
  const bool open = most == INT_MAX;
  const std::string range =
      open ? fmt::format("from {} on", least) : fmt::format("from {} to {}", least, most);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const auto number = whole_number<int64_t>(text);
        if (number && *number >= least && *number <= most) return "";
        return fmt::format("{} is no whole number {}", printable(text), range);
      },
      open ? fmt::format("{}..", least) : fmt::format("{}..{}", least, most));
}

CLI::Validator one_of(std::vector<std::string_view> words) {
  std::string list = fmt::format("{}", fmt::join(words, ","));
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        if (std::ranges::count(words, text) > 0) return "";
        return fmt::format("{} is none of {}{}", printable(text), fmt::join(words, ", "),
                           did_you_mean(text, words));
      },
      "{" + list + "}");
}

// A command, and what it does.
CLI::App& add_command(CLI::App& app, Commands& c, const char* name, const char* doc,
                      std::function<void()> does) {
  CLI::App* command = app.add_subcommand(name, doc);
  command->callback([&c, does = std::move(does)] { c.chosen = does; });
  return *command;
}

// An option with a value. Of a list each has one; numbers that count bytes and seeds are checked.
template <class T>
CLI::Option* add(CLI::App& command, const char* name, T& value, const char* type, const char* doc) {
  CLI::Option* option = command.add_option(name, value, doc)->type_name(type);
  if constexpr (std::is_same_v<T, std::vector<std::string>>) option->allow_extra_args(false);
  if constexpr (std::is_same_v<T, std::optional<uint64_t>>) option->check(check_whole);
  return option;
}

// What several commands have.
void add_program(CLI::App& command, std::string& program) {
  command.add_option("PROGRAM", program, "A file: " + importable())->required()->check(check_named);
}
void add_memory_budget(CLI::App& command, std::optional<uint64_t>& bytes) {
  add(command, "--memory-budget", bytes, "BYTES",
      "Hold at most so much between stages: later ones compute the rest again");
}
void add_inputs(CLI::App& command, InputOptions& from) {
  add(command, "--inputs", from.inputs, "F.npz|F.safetensors",
      "Inputs by name; of several files a later one wins")
      ->check(check_named);
  add(command, "--random", from.random, "SEED",
      "Fill inputs that are not found: floats N(0, 1), integers and bools 0 or 1");
  add(command, "--set", from.set, "DIM=N", "The size of a dimension that no input settles");
}
void add_wrt(CLI::App& command, std::vector<std::string>& wrt) {
  add(command, "--wrt", wrt, "a,b", "Differentiate with respect to these inputs only")
      ->delimiter(',');
}
void add_text_out(CLI::App& command, std::string& out) {
  add(command, "-o", out, "OUT.ir", "Write here, not to standard output");
}

void add_run(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "run", "Run the stages in order; print their results",
                                  [&c] { run(c.run); });
  add_program(command, c.run.program);
  add_inputs(command, c.run.from);
  add(command, "--weights", c.run.from.weights, "F.npz|F.safetensors",
      "Parameters by name, after --inputs");
  add(command, "--stages", c.run.stages, "N", "Run the first N stages only")->check(whole(1));
  add_memory_budget(command, c.run.memory_budget);
  add(command, "--outputs", c.run.outputs, "OUT.npz|OUT.safetensors",
      "Write all results that are defined, by name");
  add(command, "--save-state", c.run.save_state, "S.state",
      "Save what later stages need after the last one that runs");
  add(command, "--resume", c.run.resume, "S.state", "Go on from a state that was saved");
  add(command, "--threads", c.run.threads, "N", "Threads for one loop; 0: one per core")
      ->check(whole(0, 1024));
  CLI::Option* fusion =
      add(command, "--fusion", c.run.fusion, "MODE",
          "Pointwise groups as compiled kernels: off (the default: a single run is over before "
          "they would pay), behind (compiled while the rounds of --repeat run) or first (compiled "
          "before)")
          ->check(one_of({"off", "behind", "first"}));
  command
      .add_option_function<std::string>(
          "--engine",
          [&c](const std::string& name) { c.run.fusion = name == "fused" ? "first" : "off"; },
          "Another name for --fusion: interpret is off, fused is first")
      ->type_name("NAME")
      ->check(one_of({"interpret", "fused"}))
      ->excludes(fusion);
  add(command, "--kernels", c.run.kernels, "FOLDER", "Keep compiled kernels for other runs");
  command.add_flag("--symbols", c.run.symbols,
                   "Tell gdb of kernels, with the program's lines, and write perf's map file");
  add(command, "--dump-after", c.run.dump_after, "STEP",
      "bind, share, group, make, place: print the plan after that step of planning; fusion: the "
      "groups that ran; cuda: their CUDA sources; x86-64-v3, x86-64-v4, aarch64: their assembly "
      "for such machines")
      ->check(one_of({"bind", "share", "group", "overlap", "make", "place", "fusion", "cuda",
                      "x86-64-v3", "x86-64-v4", "aarch64"}));
  command.add_flag("--stats", c.run.stats, "Print what became of the kernels");
  add(command, "--device", c.run.device, "NAME",
      "cpu; or cuda:0, where all stages run then (--fusion first)");
  command.add_flag("--atomics", c.run.atomics,
                   "On a device: add up what several indices add to one place by atomic additions, "
                   "faster and in no fixed order; without, in index order, with the CPU's bits");
  add(command, "--ranks", c.run.ranks, "HOW",
      "mpi: processes that mpirun has started are the ranks of the program's groups; %r in names "
      "of --inputs and --outputs is a rank's number, and rank 0 prints")
      ->check(one_of({"mpi"}));
  add(command, "--repeat", c.run.repeat, "N", "Run N times; print each stage's median time")
      ->check(whole(1));
  add(command, "--profile", c.run.profile, "T.json",
      "Write the last run's instructions as a trace for Perfetto or Chrome");
}

void add_grad(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "grad", "Append the derivative stages up to stage N",
                                  [&c] { grad(c.grad); });
  add_program(command, c.grad.program);
  add(command, "--order", c.grad.order, "N", "The last stage that will be there")
      ->required()
      ->check(whole(0, 1000));
  add_wrt(command, c.grad.wrt);
  add(command, "--batch", c.grad.batch, "N",
      "The last stage takes cotangents with a dimension N in front, and gives a gradient for "
      "each");
  add_text_out(command, c.grad.out);
}

void add_directions(CLI::App& app, Commands& c) {
  constexpr std::pair<const char*, const char*> kinds[] = {
      {"jvp", "Add the derivative along tangents t_<input>: t_<result>, forward mode"},
      {"hvp", "Add the Hessian of the 0-d result times tangents t_<input>: hvp_<input>"},
      {"laplacian", "Add the Laplacian of the 0-d result: laplacian_<input>"},
      {"jacobian", "Add the derivatives of all results: jacobian_<result>_<input>"},
      {"hessian", "Add the second derivatives of the 0-d result: hessian_<input>_<input>"}};
  for (auto [name, doc] : kinds) {
    CLI::App& command = add_command(app, c, name, doc, [&c, kind = name] {
      c.direction.kind = kind;
      directions(c.direction);
    });
    add_program(command, c.direction.program);
    add_wrt(command, c.direction.wrt);
    add(command, "--batch", c.direction.batch, "N",
        "For N points at once: the inputs of --wrt and all results have a dimension N in front");
    add_text_out(command, c.direction.out);
  }
}

void add_gradcheck(CLI::App& app, Commands& c) {
  CLI::App& command =
      add_command(app, c, "gradcheck",
                  "Hold every derivative stage against central differences of the one before",
                  [&c] { gradcheck(c.gradcheck); });
  add_program(command, c.gradcheck.program);
  add_inputs(command, c.gradcheck.from);
  add(command, "--order", c.gradcheck.order, "N", "Check stages 1 to N")->check(whole(1, 1000));
  add_wrt(command, c.gradcheck.wrt);
}

void add_check_potential(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "check-potential",
                                  "Try an interatomic potential on atoms at random: forces, "
                                  "symmetries, cutoff, virial",
                                  [&c] { check_potential(c.check_potential); });
  CheckPotentialCommand& to = c.check_potential;
  add_program(command, to.program);
  add(command, "--weights", to.weights, "FILE",
      "Where its weights are: .safetensors, whose metadata say cutoff and species, or .npz");
  add(command, "--cutoff", to.cutoff, "LENGTH",
      "The longest edge, where the weights do not say it");
  add(command, "--species", to.species, "NAMES", "Its species, in the order of their numbers")
      ->delimiter(',');
  add(command, "--spacing", to.spacing, "LENGTH",
      "Between neighbours; 0.4 of the cutoff without it");
  add(command, "--random", to.seed, "SEED", "Choose the atoms by this number");
}

void add_inspection(CLI::App& app, Commands& c) {
  add_program(add_command(app, c, "verify", "Check a program; say nothing if it is fine",
                          [&c] { verify(c.program); }),
              c.program);
  CLI::App& printing =
      add_command(app, c, "print", "Print the program", [&c] { print(c.program, c.dump_after); });
  add_program(printing, c.program);
  add(printing, "--dump-after", c.dump_after, "PASS",
      "Print it as it is after a step of the pipeline");
  CLI::App& disassembling =
      add_command(app, c, "disasm", "Show the compiled stages: registers, frees, places",
                  [&c] { disasm(c.disasm); });
  add_program(disassembling, c.disasm.program);
  add(disassembling, "--set", c.disasm.set, "DIM=N",
      "The size of a dimension, for saying what stages take of memory");
  add_memory_budget(disassembling, c.disasm.memory_budget);
  add(disassembling, "--fusion", c.disasm.fusion, "MODE",
      "Say it for single instructions (off, the default) or for kernels (first)")
      ->check(one_of({"off", "first"}));
  add(disassembling, "--dump-after", c.disasm.dump_after, "STEP",
      "memory: say what is alive where each stage takes most")
      ->check(one_of({"memory"}));
  add(disassembling, "--device", c.disasm.device, "NAME",
      "cuda:0, which need not be there: say what the host does of each stage there");
}

void add_ops(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "ops", "List the operators from their definitions", [&c] {
    list_operators(c.markdown ? TableFormat::markdown
                   : c.json   ? TableFormat::json
                              : TableFormat::text);
  });
  CLI::Option* markdown = command.add_flag("--markdown", c.markdown, "As a Markdown table");
  command.add_flag("--json", c.json, "As JSON")->excludes(markdown);
}

void add_onnx(CLI::App& app, Commands& c) {
  CLI::App& importing = add_command(app, c, "import", "Convert a model to a program text",
                                    [&c] { import_model(c.import); });
  importing.add_option("MODEL", c.import.model, "A file: " + importable(true))
      ->required()
      ->check(check_named);
  add_text_out(importing, c.import.out);
  add(importing, "--weights", c.import.weights, "OUT.npz", "Write the weights by name");
  add(importing, "--inputs", c.import.from.inputs, "F.npz",
      "Inputs by name; those whose values decide the program's structure are fixed");

  CLI::App& exporting = add_command(app, c, "export", "Write the first stage as an ONNX model",
                                    [&c] { export_model(c.export_); });
  add_program(exporting, c.export_.program);
  add(exporting, "-o", c.export_.out, "OUT.onnx", "The model")->required();
  add(exporting, "--weights", c.export_.from.weights, "F.npz",
      "Inputs that the model has values for, by name");
  add(exporting, "--inputs", c.export_.from.inputs, "F.npz",
      "Of a model: inputs whose values decide the program's structure");
  const auto opset = [](CLI::App& command, int& to) {
    add(command, "--opset", to, "N", "The version of ONNX's operators that is written")
        ->check(whole(onnx::oldest_exported_opset, onnx::newest_exported_opset));
  };
  opset(exporting, c.export_.opset);

  CLI::App& checking = add_command(app, c, "check-onnx", "Run ONNX backend tests",
                                   [&c] { check_onnx(c.check_onnx); });
  c.check_onnx.folders = {"/usr/share/libonnx-testdata/data"};
  checking.add_option("FOLDER", c.check_onnx.folders, "Folders with tests in them")
      ->capture_default_str();
  add(checking, "--gradients", c.check_onnx.gradients, "N",
      "Hold derivatives up to order N against differences, too")
      ->check(whole(0, 10));
  checking.add_flag("--exports", c.check_onnx.exports,
                    "Write programs as models, too, and run those");
  opset(checking, c.check_onnx.opset);
  add(checking, "--least", c.check_onnx.least, "N", "Fail if fewer tests pass, or are exported")
      ->check(whole(0));
}

void add_view(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(
      app, c, "view", "Draw the compiled program: stages, kernels, and what is held between stages",
      [&c] { view(c.view); });
  add_program(command, c.view.program);
  add(command, "-o", c.view.out, "OUT.svg|OUT.html",
      "A drawing, or a page that searches, folds and selects in it; if left out, the drawing goes "
      "to standard output");
  add(command, "--profile", c.view.profile, "T.json", "Show the times of a profile of gradus run");
  add_memory_budget(command, c.view.memory_budget);
  command.add_flag("--written", c.view.written, "Draw the program as it is written");
  add(command, "--device", c.view.device, "NAME",
      "cuda:0, which need not be there: draw the kernels that would run on it");
  add(command, "--set", c.view.from.set, "DIM=N", "The size of a dimension, for planning kernels");
  add(command, "--inputs", c.view.from.inputs, "F.npz",
      "Inputs by name; those whose values decide a model's structure are fixed");
}

// What the command line has that the tool does not know, and what may have been meant; empty: CLI11
// knows every word. `command`: null where none was found.
std::string unknown_word(const CLI::App& app, const CLI::App* command) {
  const std::vector<std::string> unknown = app.remaining(true);
  auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  auto word = std::ranges::find_if(unknown, is_option);
  if (word == unknown.end()) word = unknown.begin();
  if (word == unknown.end()) return "";
  std::vector<std::string> known;
  if (is_option(*word)) {
    for (const CLI::App* a : {&app, command})
      if (a)
        for (const CLI::Option* o : a->get_options())
          for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
  } else if (!command) {
    for (const CLI::App* a : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(a->get_name());
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  return fmt::format("gradus {}{}: {}{}", command ? command->get_name() + " " : "",
                     printable(*word),
                     is_option(*word) ? "there is no such option"
                     : command        ? "this argument was not expected"
                                      : "there is no such command",
                     did_you_mean(*word, names));
}

// Whether a word that stands behind values of that option can only be one more: a program is
// neither a file of tensors nor DIM=N.
bool is_one_more(const std::string& option, const std::string& word) {
  if (word.starts_with("-")) return false;
  if (option == "--inputs") return word.ends_with(".npz") || word.ends_with(".safetensors");
  return option == "--set" && word.find('=') != std::string::npos;
}

// The command line, where `--inputs a.npz b.npz` says the option for each of its values.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words;
  std::string option;
  size_t behind = 0;  // words since the option
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) {
      option = word;
      behind = 0;
    } else if (behind++ > 0 && is_one_more(option, word)) {
      words.push_back(option);
    }
    words.push_back(word);
  }
  return words;
}

void parse_and_run(int argc, char** argv) {
  CLI::App app("Runs staged graph programs and derives their derivatives.", "gradus");
  const std::string without = left_out();
  app.set_version_flag("--version",
                       "gradus " GRADUS_VERSION + (without.empty() ? "" : ", " + without));
  app.require_subcommand(1);
  app.fallthrough();  // so that --plugin may stand behind the command
  Commands c;
  add(app, "--plugin", c.plugins, "LIB.so", "A library with operators and functions of your own")
      ->check(check_named);
  add_run(app, c);
  add_grad(app, c);
  add_directions(app, c);
  add_gradcheck(app, c);
  add_check_potential(app, c);
  add_inspection(app, c);
  add_ops(app, c);
  add_command(app, c, "devices", "Say what there is of CUDA, and what is not", devices);
  add_onnx(app, c);
  add_view(app, c);
  app.footer(
      "Exit status: 0 fine, 1 the program or its input is wrong, 2 usage, 3 a fault of "
      "Gradus itself.");
  try {
    std::vector<std::string> words = words_of(argc, argv);
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::Success& e) {  // help, version
    app.exit(e);
    finish_output();
    return;
  } catch (const CLI::ParseError& e) {
    const CLI::App* command =
        app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
    const std::string unknown = unknown_word(app, command);
    throw UsageError("{}\nRun gradus {}--help for what can be said.",
                     unknown.empty() ? e.what() : unknown,
                     command ? command->get_name() + " " : "");
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
