// Programs on prepared states, bound to memory, for bench/python/peers.py, told by lines what to
// do:
//
//   load FILE FOLDER WORKERS   the program of a file, of one stage; its inputs are the bytes of
//                              FOLDER/input_0, input_1, ...
//   run TIMES                  gives the seconds of a run
//   results FOLDER             writes result_0, result_1, ...
//
// An answer is a line: a number, or "error" and a message. Runs are bound to memory.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gradus/context.h"
#include "gradus/error.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::bench {
namespace {

// Of the clock on the wall, or of the processors.
double now() {
  const char* clock = std::getenv("GRADUS_PEERS_CLOCK");
  if (clock && clock == std::string("process")) {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::streamsize bytes_of(const Tensor& t) {
  return static_cast<std::streamsize>(t.numel() * static_cast<int64_t>(size_of(t.dtype())));
}

class Prepared {
 public:
  Prepared(const std::string& file, const std::string& folder, int workers) {
    auto code = Code::compile(ir::parse_file(file).module.program());
    ContextOptions options;
    options.workers = workers;
    auto context = std::make_shared<Context>(options);
    State state(code, context, StateOptions{.fusion = FusionMode::first});
    state.prepare({});
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < code->inputs(0); ++i) {
      const ir::Type type = code->input_type(0, i);
      Sizes shape;
      for (const ir::Dim& d : type.dims) shape.push_back(d.value());
      Tensor t = Tensor::of_layout(Layout(type.dtype, shape), *context);
      std::ifstream from(fmt::format("{}/input_{}", folder, i), std::ios::binary);
      if (!from.read(reinterpret_cast<char*>(t.mutable_data()), bytes_of(t)))
        throw Error("input {} has too few bytes", i);
      inputs.push_back(t);
    }
    bound_.emplace(std::move(state), std::move(inputs));
  }
  double run(int times) {
    const double start = now();
    for (int i = 0; i < times; ++i) bound_->run();
    return (now() - start) / times;
  }
  void write(const std::string& folder) {
    for (size_t i = 0; i < bound_->results().size(); ++i) {
      const Tensor& t = bound_->results()[i];
      std::ofstream(fmt::format("{}/result_{}", folder, i), std::ios::binary)
          .write(reinterpret_cast<const char*>(t.data()), bytes_of(t));
    }
  }

 private:
  std::optional<BoundRun> bound_;
};

double answer(std::optional<Prepared>& row, const std::string& line) {
  std::istringstream words(line);
  std::string what, file, folder;
  int number = 1;
  words >> what;
  if (what == "load") {
    words >> file >> folder >> number;
    row.reset();
    const double start = now();
    row.emplace(file, folder, number);
    return now() - start;
  }
  if (!row) throw Error("no program is loaded");
  if (what == "run") {
    words >> number;
    return row->run(number);
  }
  if (what != "results") throw Error("what is '{}'?", what);
  words >> folder;
  row->write(folder);
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main() {
  std::optional<gradus::bench::Prepared> row;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << fmt::format("{}", gradus::bench::answer(row, line)) << std::endl;
    } catch (const gradus::Error& e) {
      std::string message = e.what();
      for (char& c : message)
        if (c == '\n') c = ' ';
      std::cout << "error " << message << std::endl;
    }
  }
  return 0;
}
