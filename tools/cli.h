// The command-line tool: what main.cpp reads from the command line, and the commands it calls.
// A command prints to standard output only what was asked for, and throws: Error, ResourceError
// (exit 1), UsageError (exit 2); anything else is a fault of Gradus (exit 3).
#pragma once

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/communicator.h"
#include "gradus/error.h"

namespace gradus::cli {

// Reads the command line, does what it says, and returns the exit status.
int tool(int argc, char** argv);

// The command line cannot mean anything, or means something that this build cannot do.
class UsageError : public Exception {
 public:
  template <class... Args>
  explicit UsageError(fmt::format_string<Args...> format, Args&&... args)
      : Exception(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The number that is all of a text; absent where it is none, or does not fit.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

// Where a program's inputs come from.
struct InputOptions {
  std::vector<std::string> inputs;      // .npz or .safetensors; a later one wins
  std::string weights;                  // asked after those
  std::optional<uint64_t> random;       // the seed for what is not found
  std::vector<std::string> set;         // "N=32"
  std::shared_ptr<Communicator> ranks;  // that this process is one of; null: it is alone
};

struct RunCommand {
  std::string program;
  std::optional<uint64_t> memory_budget;  // bytes held between stages; absent: as many as there are
  InputOptions from;
  std::optional<uint64_t> stages;  // absent: all
  std::string outputs, profile;    // files, empty: none
  std::string resume, save_state;  // states to go on from, and left after the last stage
  std::string ranks;               // "mpi": this process is one of several that run the program
  std::string device = "cpu";
  std::string fusion;      // off, behind, first; empty: first on a device, else off
  std::string kernels;     // a folder that keeps compiled kernels, empty: none
  std::string dump_after;  // "fusion": the groups are printed; else their code for
                           // that, "cuda" or an Isa's name
  bool fast_functions = false;
  bool symbols = false;  // of kernels, for gdb and perf
  bool stats = false;    // of kernels
  bool times = false;    // of groups beside the estimates, with --dump-after group
  bool atomics = false;  // sums over indices in any order, on a device
  int threads = 0;       // 0: one per core
  int repeat = 1;
};
void run(const RunCommand& command);

// What there is of CUDA.
void devices();

struct ViewCommand {
  std::optional<uint64_t> memory_budget;
  std::string program, out, profile;  // no out: an SVG to standard output
  std::string device;                 // empty: as the program's types say
  InputOptions from;                  // sizes, and values that decide a model's structure
  bool written = false;               // the program as it is written, not as it runs
  bool modules = false;               // as it is written, by modules
};
void view(const ViewCommand& command);

struct GradCommand {
  std::string program, out;  // no out: standard output
  int order = 1;
  std::vector<std::string> wrt;  // empty: all floating inputs
  std::string batch;             // the last stage's cotangents have this size in front; empty: none
};
void grad(const GradCommand& command);

// Derivatives along directions, and matrices of them: gradus/passes.h.
struct DirectionCommand {
  std::string kind;  // jvp, hvp, laplacian, jacobian, hessian
  std::string program, out;
  std::vector<std::string> wrt;
  std::string batch;  // a number or a name: so many of the inputs of `wrt`
};
void directions(const DirectionCommand& command);

struct GradcheckCommand {
  std::string program;
  InputOptions from;
  std::optional<int> order;  // absent: the program's last stage, at least 1
  std::vector<std::string> wrt;
};
// Throws Error, after the report, if a derivative is off.
void gradcheck(const GradcheckCommand& command);

struct CheckPotentialCommand {
  std::string program, weights;  // no weights: the program has none, or brings its own
  std::optional<double> cutoff;  // absent: as the weights say
  std::vector<std::string> species;
  std::optional<double> spacing;  // absent: by the cutoff
  uint64_t seed = 0;
};
// Throws Error, after the report, if a check failed.
void check_potential(const CheckPotentialCommand& command);

struct ImportCommand {
  std::string model, out, weights;  // no out: standard output
  InputOptions from;
};
void import_model(const ImportCommand& command);

struct ExportCommand {
  std::string program, out;  // out: an .onnx
  InputOptions from;         // weights
  int opset = 0;             // 0: the oldest that is written
};
void export_model(const ExportCommand& command);

struct CheckOnnxCommand {
  std::vector<std::string> folders;
  int gradients = 0;     // derivatives are checked up to this order
  bool exports = false;  // programs are written as models again, and those are run
  int opset = 0;         // as of `export`
  int least = 0;         // how many tests have to pass
};
// Throws Error, after the report, if a test failed or too few passed.
void check_onnx(const CheckOnnxCommand& command);

void verify(const std::string& program);
void print(const std::string& program, const std::string& dump_after);
struct DisasmCommand {
  std::optional<uint64_t> memory_budget;
  std::string program;
  std::string device;            // as of a run; empty: what the program's types say
  std::vector<std::string> set;  // "N=32"
  std::string fusion = "off";    // off or first: what memory is said for
  bool fast_functions = false;
  std::string dump_after;  // "memory": what is alive where stages take most
};
void disasm(const DisasmCommand& command);

enum class TableFormat { text, markdown, json };
void list_operators(TableFormat format);

}  // namespace gradus::cli
