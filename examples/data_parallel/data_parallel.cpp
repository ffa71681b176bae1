// The force field of ../force_field, trained by several ranks: each has a share of every batch, all
// have the weights. README.md says what comes out.
#define FORCE_FIELD_FOLDER EXAMPLE_FOLDER "/../force_field"
#include <fstream>
#include <sstream>

#include "examples/force_field/model.h"
#include "examples/plot.h"
#include "examples/ranks.h"

using namespace gradus;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw Error("force_field.ir no longer says '{}'", from);
  return text.replace(at, from.size(), to);
}

// force_field.ir with the geometries shared out, and the loss the mean of the ranks' losses: four
// lines of its text. The gradients' sums over ranks follow from the types.
ir::Module shared_program() {
  std::ifstream file(FORCE_FIELD_FOLDER "/force_field.ir");
  std::stringstream all;
  all << file.rdbuf();
  std::string text = replaced(all.str(), "graph force_field {",
                              "graph force_field {\n  size R = ranks(data) from 1");
  text = replaced(text, "%r: f64[B, N, 3], %energy_ref: f64[B], %force_ref: f64[B, N, 3]",
                  "%r: f64[B, N, 3] varying(data), %energy_ref: f64[B] varying(data), "
                  "%force_ref: f64[B, N, 3] varying(data)");
  text = replaced(text, "return loss = %loss,",
                  "%all = all_reduce(%loss) {group = \"data\"}\n"
                  "    %mean = div(%all, R)\n    return loss = %mean,");
  return ir::parse(text, "data_parallel.ir");
}

struct Training {
  std::vector<double> losses;
  double milliseconds;  // the median of the steps': the first ones wait for kernels
};

Training train(ForceField& model, const clusters::Set& set, int steps, Random random) {
  std::vector<double> losses, times;
  for (int step = 0; step < steps; ++step) {
    const Stopwatch watch;
    losses.push_back(model.train_step(set, random, 5e-3));
    times.push_back(1e3 * watch.seconds());
  }
  const auto middle = times.begin() + steps / 2;
  std::nth_element(times.begin(), middle, times.end());
  return {losses, *middle};
}

bool run(const CommandLine& line) {
  const int steps = line.steps.value_or(line.small ? 20 : 1000);
  bool right = true;
  on_ranks(line, [&](const Ranks& ranks) {
    if (ForceField::batch % ranks->size() != 0)
      throw Error("a batch has {} geometries, which {} ranks cannot share evenly",
                  ForceField::batch, ranks->size());
    Random random(1);
    const clusters::Set set =
        clusters::sample(lennard_jones(), line.small ? 4 : 40, 16, random);  // the same everywhere
    const Random draws = random;
    Random first = draws;
    ForceField ours(set, first,
                    {shared_program(), context_of("data", ranks), ranks->rank(), ranks->size()});
    const auto [together, milliseconds] = train(ours, set, steps, draws);
    if (ranks->rank() > 0) return;
    // On one worker, as each of the ranks is.
    Random again = draws;
    ForceField alone(set, again, {program("force_field.ir"), context_of("data", ranks), 0, 1});
    const auto [expected, on_one] = train(alone, set, steps, draws);
    std::printf("%d ranks, %d steps, medians: %.2f ms a step; one rank %.2f ms\n", ranks->size(),
                steps, milliseconds, on_one);
    double largest = 0;
    for (size_t k = 0; k < together.size(); ++k)
      largest = std::max(largest, std::abs(together[k] - expected[k]) / expected[k]);
    right &= holds("the loss differs from that of one rank by, relatively", largest, 0,
                   line.small ? 1e-10 : 1e-4);
    right &= holds("the loss falls to, of the first", together.back() / together.front(), 0, 0.9);
    if (line.plot.empty()) return;
    std::vector<double> x(together.size());
    std::iota(x.begin(), x.end(), 1.0);
    plot::write_svg(
        line.plot, std::vector<plot::Panel>{{"Training",
                                             "step",
                                             "loss",
                                             {{fmt::format("{} ranks", ranks->size()), x, together},
                                              {"one rank", x, expected, plot::Mark::dashes}},
                                             true}});
  });
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
