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
#include "gradus/passes.h"
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
  return fmt::format("expected a whole number from 0 to 2^64 - 1, found '{}'", printable(text));
}

// An empty word is a shell variable without a value, not an option that was left out.
std::string check_given(const std::string& value) {
  return value.empty() ? "its value is empty" : "";
}

std::string check_named(const std::string& path) {
  return path.empty() ? "the name of the file is empty" : "";
}

// CLI11's own checks do not say what is wrong with a word that is no number, or how far an open
// range goes.
CLI::Validator whole(int64_t least, int64_t most = INT_MAX) {
  const bool open = most == INT_MAX;
  const std::string range = fmt::format("from {} to {}", least, most);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const auto number = whole_number<int64_t>(text);
        if (number && *number >= least && *number <= most) return "";
        return fmt::format("expected a whole number {}, found '{}'", range, printable(text));
      },
      open ? fmt::format("{}..", least) : fmt::format("{}..{}", least, most));
}

CLI::Validator one_of(std::vector<std::string_view> words) {
  std::string list = fmt::format("{}", fmt::join(words, ","));
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        if (std::ranges::count(words, text) > 0) return "";
        return fmt::format("'{}' is none of {}{}", printable(text), fmt::join(words, ", "),
                           did_you_mean(text, words));
      },
      "{" + list + "}");
}

// Each order makes a program several times as long.
constexpr int most_order = 16;

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
  if constexpr (std::is_same_v<T, std::optional<uint64_t>> || std::is_same_v<T, uint64_t>)
    option->check(check_whole);
  if constexpr (std::is_same_v<T, std::string>) option->check(check_given);
  return option;
}

// A list that is one word, with commas.
void add_list(CLI::App& command, const char* name, std::vector<std::string>& value,
              const char* type, const char* doc) {
  add(command, name, value, type, doc)
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// What several commands have.
void add_program(CLI::App& command, std::string& program) {
  command.add_option("PROGRAM", program, "A file: " + importable())->required()->check(check_named);
}
void add_memory_budget(CLI::App& command, std::optional<uint64_t>& bytes) {
  add(command, "--memory-budget", bytes, "BYTES",
      "The most bytes held between stages; later stages recompute the rest");
}
void add_fast_functions(CLI::App& command, bool& fast) {
  command.add_flag("--fast-functions", fast,
                   "Compute exp, tanh, sigmoid and silu in f32 within 4 ulp in place of 1");
}
void add_inputs(CLI::App& command, InputOptions& from) {
  add(command, "--inputs", from.inputs, "F.npz|F.safetensors",
      "Inputs by name; if several files have a name, the last one counts")
      ->check(check_named);
  add(command, "--random", from.random, "SEED",
      "Random values for inputs that no file has: floats N(0, 1), integers and bools 0 or 1");
  add(command, "--set", from.set, "DIM=N",
      "The size of a dimension that does not follow from an input");
}
void add_weights(CLI::App& command, InputOptions& from) {
  add(command, "--weights", from.weights, "F.npz|F.safetensors",
      "Parameters by name, for inputs that no file of --inputs has");
}
void add_wrt(CLI::App& command, std::vector<std::string>& wrt) {
  add_list(command, "--wrt", wrt, "a,b", "Differentiate with respect to these inputs only");
}
void add_text_out(CLI::App& command, std::string& out) {
  add(command, "-o", out, "OUT.ir", "The file to write; without it, standard output");
}

void add_run(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "run", "Run the stages in order and print their results",
                                  [&c] { run(c.run); });
  add_program(command, c.run.program);
  add_inputs(command, c.run.from);
  add_weights(command, c.run.from);
  add(command, "--stages", c.run.stages, "N", "Run the first N stages only")->check(whole(1));
  add_memory_budget(command, c.run.memory_budget);
  add_fast_functions(command, c.run.fast_functions);
  add(command, "--outputs", c.run.outputs, "OUT.npz|OUT.safetensors",
      "Write all results that are not absent, by name");
  add(command, "--save-state", c.run.save_state, "S.state",
      "Save the values that later stages need, after the last stage of this run");
  add(command, "--resume", c.run.resume, "S.state", "Continue from a saved state");
  add(command, "--threads", c.run.threads, "N", "Threads for a loop; 0: one per core")
      ->check(whole(0, 1024));
  CLI::Option* fusion =
      add(command, "--fusion", c.run.fusion, "MODE",
          "When groups of instructions are compiled to kernels: off (never; the default, because "
          "a single run ends before compiling pays), behind (while the rounds of --repeat run) or "
          "first (before the run)")
          ->check(one_of({"off", "behind", "first"}));
  command
      .add_option_function<std::string>(
          "--engine",
          [&c](const std::string& name) { c.run.fusion = name == "fused" ? "first" : "off"; },
          "The same as --fusion: interpret is off, fused is first")
      ->type_name("NAME")
      ->check(one_of({"interpret", "fused"}))
      ->excludes(fusion);
  add(command, "--kernels", c.run.kernels, "FOLDER",
      "A folder that keeps compiled kernels for later runs");
  command.add_flag(
      "--symbols", c.run.symbols,
      "Register kernels with gdb, with the program's lines, and write a map file for perf");
  add(command, "--dump-after", c.run.dump_after, "STEP",
      "Print one of these: bind, share, group, overlap, make, place: the plan after this step of "
      "planning; fusion: the groups that ran; cuda: their CUDA sources; x86-64-v3, x86-64-v4, "
      "aarch64: their assembly for this instruction set")
      ->check(one_of({"bind", "share", "group", "overlap", "make", "place", "fusion", "cuda",
                      "x86-64-v3", "x86-64-v4", "aarch64"}));
  command.add_flag("--times", c.run.times,
                   "With --dump-after group: what the cost model expects of each group that it has "
                   "weighed, and what the group takes, on one thread");
  command.add_flag("--stats", c.run.stats,
                   "Print how many groups were compiled, and on a device what ran on the host");
  add(command, "--device", c.run.device, "NAME",
      "The device of all stages: cpu (the default), or cuda:0, whose stages run as kernels");
  command.add_flag("--atomics", c.run.atomics,
                   "On a device: scatter by atomic additions, which is faster, in no fixed order; "
                   "without it, in index order, with the same bits as on the CPU");
  add(command, "--ranks", c.run.ranks, "HOW",
      "mpi: the processes that mpirun started are the ranks of the program's groups; rank 0 "
      "prints. "
      "%r in a file's name is the number of the rank; files whose names lack it are written by "
      "rank 0")
      ->check(one_of({"mpi"}));
  add(command, "--repeat", c.run.repeat, "N",
      "Run N times; if N is above 1, print the median time of each stage")
      ->check(whole(1));
  add(command, "--profile", c.run.profile, "T.json",
      "Write the times of the last run's instructions, as a trace for Perfetto or Chrome");
}

void add_grad(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "grad", "Append the derivative stages up to stage N",
                                  [&c] { grad(c.grad); });
  add_program(command, c.grad.program);
  add(command, "--order", c.grad.order, "N",
      "The number of the last stage to append; each stage is about three times as long as the one "
      "before")
      ->required()
      ->check(whole(0, most_order));
  add_wrt(command, c.grad.wrt);
  add(command, "--batch", c.grad.batch, "N",
      "The cotangents of the last stage have a first dimension N; the stage returns a gradient "
      "for each of them");
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
        "For N points at once: the inputs of --wrt and all results have a first dimension N");
    add_text_out(command, c.direction.out);
  }
}

void add_gradcheck(CLI::App& app, Commands& c) {
  CLI::App& command =
      add_command(app, c, "gradcheck",
                  "Compare each derivative stage with central differences of the stage before",
                  [&c] { gradcheck(c.gradcheck); });
  add_program(command, c.gradcheck.program);
  add_inputs(command, c.gradcheck.from);
  add_weights(command, c.gradcheck.from);
  add(command, "--order", c.gradcheck.order, "N",
      "The last stage to check; by default the program's last one, and at least 1")
      ->check(whole(1, most_order));
  add_wrt(command, c.gradcheck.wrt);
}

void add_check_potential(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "check-potential",
                                  "Test an interatomic potential on random atoms: forces, "
                                  "symmetries, cutoff, virial",
                                  [&c] { check_potential(c.check_potential); });
  CheckPotentialCommand& to = c.check_potential;
  add_program(command, to.program);
  add(command, "--weights", to.weights, "FILE",
      "The weights: .safetensors, with cutoff and species in its metadata, or .npz");
  add(command, "--cutoff", to.cutoff, "LENGTH", "The longest edge, if the weights do not state it");
  add_list(command, "--species", to.species, "A,B", "The species, in the order of their numbers");
  add(command, "--spacing", to.spacing, "LENGTH",
      "The distance between neighbours; 0.4 of the cutoff by default");
  add(command, "--random", to.seed, "SEED", "The seed of the atoms' positions and species");
}

void add_inspection(CLI::App& app, Commands& c) {
  add_program(add_command(app, c, "verify", "Check a program; print nothing if it is valid",
                          [&c] { verify(c.program); }),
              c.program);
  CLI::App& printing =
      add_command(app, c, "print", "Print the program", [&c] { print(c.program, c.dump_after); });
  add_program(printing, c.program);
  add(printing, "--dump-after", c.dump_after, "PASS",
      fmt::format("Print the program after this pass: {}", fmt::join(ir::pipeline_steps(), ", "))
          .c_str());
  CLI::App& disassembling =
      add_command(app, c, "disasm", "Show the compiled stages: registers, frees, places",
                  [&c] { disasm(c.disasm); });
  add_program(disassembling, c.disasm.program);
  add(disassembling, "--set", c.disasm.set, "DIM=N",
      "The size of a dimension, to compute the memory of the stages");
  add_memory_budget(disassembling, c.disasm.memory_budget);
  add_fast_functions(disassembling, c.disasm.fast_functions);
  add(disassembling, "--fusion", c.disasm.fusion, "MODE",
      "Show the memory that stages take as single instructions (off, the default) or with kernels "
      "(first)")
      ->check(one_of({"off", "first"}));
  add(disassembling, "--dump-after", c.disasm.dump_after, "STEP",
      "memory: list the live values where each stage uses most memory")
      ->check(one_of({"memory"}));
  add(disassembling, "--device", c.disasm.device, "NAME",
      "cuda:0, also without a GPU: list what the host does in each stage there");
}

void add_ops(CLI::App& app, Commands& c) {
  CLI::App& command = add_command(app, c, "ops", "List the operators from their definitions", [&c] {
    list_operators(c.markdown ? TableFormat::markdown
                   : c.json   ? TableFormat::json
                              : TableFormat::text);
  });
  CLI::Option* markdown = command.add_flag("--markdown", c.markdown, "Print a Markdown table");
  command.add_flag("--json", c.json, "Print JSON")->excludes(markdown);
}

void add_onnx(CLI::App& app, Commands& c) {
  CLI::App& importing = add_command(app, c, "import", "Convert a model to a program text",
                                    [&c] { import_model(c.import); });
  importing.add_option("MODEL", c.import.model, "A file: " + importable(true))
      ->required()
      ->check(check_named);
  add_text_out(importing, c.import.out);
  add(importing, "--weights", c.import.weights, "OUT.npz|OUT.safetensors",
      "Write the weights by name");
  add(importing, "--inputs", c.import.from.inputs, "F.npz",
      "Inputs by name; inputs whose values determine the program's structure become constants");

  CLI::App& exporting = add_command(app, c, "export", "Write the first stage as an ONNX model",
                                    [&c] { export_model(c.export_); });
  add_program(exporting, c.export_.program);
  add(exporting, "-o", c.export_.out, "OUT.onnx", "The model to write")->required();
  add(exporting, "--weights", c.export_.from.weights, "F.npz|F.safetensors",
      "Values of the model's initializers, by name");
  add(exporting, "--inputs", c.export_.from.inputs, "F.npz",
      "For a PROGRAM that is a model: inputs whose values determine its structure");
  const auto opset = [](CLI::App& command, int& to) {
    add(command, "--opset", to, "N",
        fmt::format("The operator set version to write; {} by default", onnx::ExportOptions().opset)
            .c_str())
        ->check(whole(onnx::oldest_exported_opset, onnx::newest_exported_opset));
  };
  opset(exporting, c.export_.opset);

  CLI::App& checking = add_command(app, c, "check-onnx", "Run ONNX backend tests",
                                   [&c] { check_onnx(c.check_onnx); });
  c.check_onnx.folders = {"/usr/share/libonnx-testdata/data"};
  checking.add_option("FOLDER", c.check_onnx.folders, "Folders that contain tests")
      ->capture_default_str();
  add(checking, "--gradients", c.check_onnx.gradients, "N",
      "Also compare derivatives up to order N with central differences")
      ->check(whole(0, 10));
  checking.add_flag("--exports", c.check_onnx.exports,
                    "Also export each program as a model and run the model");
  opset(checking, c.check_onnx.opset);
  add(checking, "--least", c.check_onnx.least, "N", "Fail if fewer tests pass or are exported")
      ->check(whole(0));
}

void add_view(CLI::App& app, Commands& c) {
  CLI::App& command =
      add_command(app, c, "view",
                  "Draw the compiled program: stages, kernels, and the values held between stages",
                  [&c] { view(c.view); });
  add_program(command, c.view.program);
  add(command, "-o", c.view.out, "OUT.svg|OUT.html",
      "An SVG drawing, or an HTML page with search, folding and selection; without it, the SVG "
      "drawing goes to standard output");
  add(command, "--profile", c.view.profile, "T.json",
      "Show the times of a profile that gradus run wrote");
  add_memory_budget(command, c.view.memory_budget);
  command.add_flag("--written", c.view.written,
                   "Draw the program as it is written, before compiling");
  command.add_flag("--modules", c.view.modules,
                   "Draw an imported model as it is written, each of its modules as a box that "
                   "unfolds");
  add(command, "--device", c.view.device, "NAME",
      "cuda:0, also without a GPU: draw the kernels of this device");
  add(command, "--set", c.view.from.set, "DIM=N", "The size of a dimension, to plan kernels");
  add(command, "--inputs", c.view.from.inputs, "F.npz",
      "Inputs by name; inputs whose values determine a model's structure become constants");
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
                     : command        ? "it belongs to no option, and the command takes no more"
                                      : "there is no such command",
                     *word == "help" ? "; did you mean --help?" : did_you_mean(*word, names));
}

// What CLI11 says, where it says it in its own terms.
std::string said_of(const CLI::ParseError& e) {
  const std::string text = e.what();
  const std::string option = text.substr(0, text.find(':'));
  if (text.find("At Most 1 required but received") != text.npos)
    return option + " is given more than once";
  if (text.find(": 1 required ") != text.npos) return option + " lacks its value";
  if (text.starts_with("Could not convert: ")) {
    const std::string rest = text.substr(text.find(' ', text.find(':')) + 1);
    const size_t equals = rest.find(" = ");
    if (equals != rest.npos)
      return fmt::format("{}: expected a number, found '{}'", rest.substr(0, equals),
                         printable(rest.substr(equals + 3)));
  }
  return text;
}

// Whether a word that stands behind values of that option can only be one more: a program is
// neither a file of tensors, a library nor DIM=N.
bool is_one_more(const std::string& option, const std::string& word) {
  if (word.starts_with("-")) return false;
  if (option == "--inputs") return word.ends_with(".npz") || word.ends_with(".safetensors");
  if (option == "--plugin") return word.ends_with(".so");
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
      const size_t equals = word.find('=');
      option = word.substr(0, equals);
      behind = equals != word.npos;
    } else if (behind++ > 0 && is_one_more(option, word)) {
      words.push_back(option);
    }
    words.push_back(word);
  }
  return words;
}

void load(const std::string& plugin) {
  try {
    load_plugin(plugin);
  } catch (const Error& e) {
    if (e.bare().find(plugin) != std::string::npos) throw;
    throw Error("--plugin {}: {}", printable(plugin), e.bare());
  }
}

void parse_and_run(int argc, char** argv) {
  CLI::App app("Runs staged graph programs and computes their derivatives.", "gradus");
  const std::string without = left_out();
  app.set_version_flag("--version",
                       "gradus " GRADUS_VERSION + (without.empty() ? "" : ", " + without));
  app.require_subcommand(1);
  app.fallthrough();  // so that --plugin may stand behind the command
  Commands c;
  add(app, "--plugin", c.plugins, "LIB.so", "A library with your own operators and functions")
      ->check(check_named);
  add_run(app, c);
  add_grad(app, c);
  add_directions(app, c);
  add_gradcheck(app, c);
  add_check_potential(app, c);
  add_inspection(app, c);
  add_ops(app, c);
  add_command(app, c, "devices", "List the CUDA devices and libraries, and what is missing",
              devices);
  add_onnx(app, c);
  add_view(app, c);
  app.footer(
      "Exit status: 0 success; 1 the program or its input is invalid, or the machine is out of "
      "memory or disk space; 2 invalid usage, or a feature that is not in this build; 3 an "
      "internal "
      "fault of Gradus.");
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
    throw UsageError(
        "{}\nRun gradus {}.", unknown.empty() ? said_of(e) : unknown,
        command ? command->get_name() + " --help for its options" : "--help for the commands");
  }
  for (const std::string& plugin : c.plugins) load(plugin);
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
