// Steps of a program on one or several ranks, and what of them the calls of its groups take:
//   [mpirun -np 2] build/dev/bin/bench_rank_steps PROGRAM.ir INPUTS%r.npz STEPS
// Rank 0 prints a line of JSON: by step, in microseconds, the whole and the calls; and the calls of
// a step, with their bytes.
#include <chrono>
#include <cstdio>

#include "gradus/communicator.h"
#include "gradus/context.h"
#include "gradus/files.h"
#include "gradus/inspect.h"
#include "gradus/kernels.h"
#include "gradus/state.h"
#include "gradus/text.h"

using namespace gradus;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Measures what another group takes.
class Timed final : public Communicator {
 public:
  explicit Timed(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool in_rank_order() const override { return inner_->in_rank_order(); }
  uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) override {
    calls.push_back(call);
    const auto begin = Clock::now();
    const uint64_t ticket = inner_->start(call, in, out);
    spent += microseconds_since(begin);
    return ticket;
  }
  void wait(uint64_t ticket) override {
    const auto begin = Clock::now();
    inner_->wait(ticket);
    spent += microseconds_since(begin);
  }
  void forget_calls(const std::shared_ptr<const void>& memory) noexcept override {
    inner_->forget_calls(memory);
  }
  void abandon(std::string_view reason) noexcept override { inner_->abandon(reason); }

  double spent = 0;  // microseconds
  std::vector<CollectiveCall> calls;

 private:
  std::shared_ptr<Communicator> inner_;
};

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.2f", i ? ", " : "", values[i]);
  std::printf("], ");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw Error("bench_rank_steps PROGRAM.ir INPUTS%r.npz STEPS");
  const auto group = std::make_shared<Timed>(mpi_ranks());
  const auto context = std::make_shared<Context>(ContextOptions{.workers = 1});
  const ir::Graph program = ir::parse_file(argv[1]).module.program();
  for (const std::string& name : groups_of(program)) rank_groups(*context).bind(name, group);
  std::string file = argv[2];
  if (const size_t at = file.find("%r"); at != std::string::npos)
    file.replace(at, 2, std::to_string(group->rank()));
  const NamedTensors given = read_npz(file);
  const auto code = Code::compile(program);
  StateOptions options;
  options.fusion = FusionMode::first;
  State state(code, context, options);
  auto step = [&] {
    state.restart();
    for (size_t s = 0; s < code->stages(); ++s) {
      std::vector<Tensor> inputs;
      for (const ir::ValueId v : program.stages[s].inputs) {
        const auto found = given.find(program[v].name);
        inputs.push_back(found == given.end() ? Tensor::scalar(program[v].type.dtype, 1)
                                              : found->second);
      }
      state.run(inputs);
    }
  };
  for (int i = 0; i < 50; ++i) step();
  wait_for_kernels(*context);
  std::vector<double> whole, calls;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    group->spent = 0;
    group->calls.clear();
    const auto begin = Clock::now();
    step();
    whole.push_back(microseconds_since(begin));
    calls.push_back(group->spent);
  }
  if (group->rank() > 0) return 0;
  std::printf("{");
  print("whole", whole);
  print("calls", calls);
  std::printf("\"bytes\": [");
  for (size_t i = 0; i < group->calls.size(); ++i)
    std::printf("%s%lld", i ? ", " : "",
                static_cast<long long>(group->calls[i].count *
                                       static_cast<int64_t>(size_of(group->calls[i].dtype))));
  std::printf("], \"ranks\": %d}\n", group->size());
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
