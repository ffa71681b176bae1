// A network whose layers lie on different ranks, each with a program of its own. README.md says
// what comes out.
#include "examples/ranks.h"
#include "examples/training.h"

using namespace gradus;

namespace {

constexpr int64_t width = 16, rows = 8, parts = 4;  // a batch is four parts of eight rows

// The program of one rank: it receives, computes a layer, and sends; the first has the rows
// instead, the last the loss.
std::string program_of(int rank, int ranks) {
  const bool first = rank == 0, last = rank == ranks - 1;
  std::string text = fmt::format(
      "graph layer {{\n  stage 0 ({}, {}%w: f64[{}, {}] varying(pipe), %b: f64[{}] varying(pipe)) "
      "{{\n",
      first ? fmt::format("%x: f64[{}, 2] varying(pipe)", rows) : "%token: f64[0] varying(pipe)",
      last ? fmt::format("%t: f64[{}, 1] varying(pipe), ", rows) : "", last ? 1 : width,
      first ? 2 : width, last ? 1 : width);
  if (!first)
    text += fmt::format(
        "    %x = receive(%token) {{group = \"pipe\", source = {}, shape = [{}, {}]}}\n", rank - 1,
        rows, width);
  text += "    %a = linear(%x, %w, %b)\n";
  if (last)
    return text +
           "    %miss = sub(%a, %t)\n    %miss2 = square(%miss)\n    %loss = mean(%miss2)\n    "
           "return loss = %loss\n  }\n}\n";
  return text + fmt::format(
                    "    %h = tanh(%a)\n    %sent = send(%h) {{group = \"pipe\", dest = {}}}\n    "
                    "return sent = %sent\n  }}\n}}\n",
                    rank + 1);
}

// The whole on one rank.
std::string whole_program(int ranks) {
  std::string inputs = fmt::format("%x0: f64[{}, 2], %t: f64[{}, 1]", rows, rows), body;
  for (int r = 0; r < ranks; ++r) {
    const bool last = r == ranks - 1;
    inputs += fmt::format(", %w{0}: f64[{1}, {2}], %b{0}: f64[{1}]", r, last ? 1 : width,
                          r == 0 ? 2 : width);
    body += fmt::format("    %a{0} = linear(%x{0}, %w{0}, %b{0})\n", r);
    if (!last) body += fmt::format("    %x{} = tanh(%a{})\n", r + 1, r);
  }
  return fmt::format(
      "graph whole {{\n  stage 0 ({}) {{\n{}    %miss = sub(%a{}, %t)\n    %miss2 = "
      "square(%miss)\n "
      "   %loss = mean(%miss2)\n    return loss = %loss\n  }}\n}}\n",
      inputs, body, ranks - 1);
}

struct Part {
  Tensor x, t;
};

// What is learned: a wave.
std::vector<Part> batch(Random& random) {
  std::vector<Part> all;
  for (int64_t p = 0; p < parts; ++p) {
    std::vector<double> x, t;
    for (int64_t r = 0; r < rows; ++r) {
      x.push_back(random.uniform(-1, 1));
      x.push_back(random.uniform(-1, 1));
      t.push_back(std::sin(3 * x[x.size() - 2]) * x.back());
    }
    all.push_back(
        {Tensor::from(DType::f64, Sizes{rows, 2}, x), Tensor::from(DType::f64, Sizes{rows, 1}, t)});
  }
  return all;
}

std::vector<Tensor> weights_of(int rank, int ranks) {
  Random random(static_cast<uint32_t>(10 + rank));
  return layers({rank == 0 ? 2 : width, rank == ranks - 1 ? 1 : width}, random);
}

// The gradients of all parts, added up, over their number.
void add(std::vector<Tensor>& sum, std::span<const Tensor> more) {
  for (size_t k = 0; k < sum.size(); ++k) {
    const std::vector<double> add = more[k].to_doubles();
    for (size_t i = 0; i < add.size(); ++i)
      sum[k].mutable_data_as<double>()[i] += add[i] / static_cast<double>(parts);
  }
}

std::vector<Tensor> zeros_like(const std::vector<Tensor>& of) {
  std::vector<Tensor> zeros;
  for (const Tensor& t : of) zeros.push_back(Tensor::zeros(DType::f64, Sizes(t.shape())));
  return zeros;
}

// Losses of the steps: of the last rank; the others' are 0. All parts go forward before the first
// goes back, each in a state of its own, so that ranks work at the same time.
std::vector<double> train(const Ranks& ranks, int steps) {
  const bool first = ranks->rank() == 0, last = ranks->rank() == ranks->size() - 1;
  const ir::Graph program = ir::differentiate(
      ir::parse(program_of(ranks->rank(), ranks->size())).program(), {.order = 1});
  const auto code = Code::compile(program);
  const State begin(code, context_of("pipe", ranks), {.fusion = FusionMode::first});
  const Tensor token = Tensor::zeros(DType::f64, Sizes{0});
  Adam weights(weights_of(ranks->rank(), ranks->size()));
  Random random(3);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<State> states;
    double loss = 0;
    for (const Part& part : batch(random)) {
      State& state = states.emplace_back(begin.clone());
      std::vector<Tensor> in{first ? part.x : token};
      if (last) in.push_back(part.t);
      const auto out = state.run(with(in, weights.parameters()));
      if (last) loss += out[0].item() / static_cast<double>(parts);
    }
    std::vector<Tensor> gradients = zeros_like(weights.parameters());
    for (State& state : states) {
      const Tensor ct = last ? Tensor::scalar(DType::f64, 1) : token;
      const auto out = state.run(std::array{ct});
      add(gradients, std::span(out).last(2));  // before them those of what the rank was given
    }
    weights.step(gradients, 1e-2);
    losses.push_back(loss);
  }
  return losses;
}

std::vector<double> train_whole(int ranks, int steps) {
  const ir::Graph program =
      ir::differentiate(ir::parse(whole_program(ranks)).program(), {.order = 1});
  State state(Code::compile(program), Context::default_context(), {.fusion = FusionMode::first});
  std::vector<Tensor> first;
  for (int r = 0; r < ranks; ++r) first = with(first, weights_of(r, ranks));
  Adam weights(first);
  Random random(3);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    double loss = 0;
    std::vector<Tensor> gradients = zeros_like(weights.parameters());
    for (const Part& part : batch(random)) {
      state.restart();
      loss += state.run(with({part.x, part.t}, weights.parameters()))[0].item() /
              static_cast<double>(parts);
      const auto out = state.run(std::array{Tensor::scalar(DType::f64, 1)});
      add(gradients, std::span(out).last(gradients.size()));
    }
    weights.step(gradients, 1e-2);
    losses.push_back(loss);
  }
  return losses;
}

bool run(const CommandLine& line) {
  const int steps = line.steps.value_or(line.small ? 40 : 400);
  bool right = true;
  on_ranks(line, [&](const Ranks& ranks) {
    if (ranks->size() < 2) throw Error("a pipeline has two ranks at least; add --ranks 2");
    const std::vector<double> losses = train(ranks, steps);
    if (ranks->rank() != ranks->size() - 1) return;
    const std::vector<double> expected = train_whole(ranks->size(), steps);
    double largest = 0;
    for (size_t k = 0; k < losses.size(); ++k)
      largest = std::max(largest, std::abs(losses[k] - expected[k]) / expected[0]);
    std::printf("%d layers on %d ranks, %d steps\n", ranks->size(), ranks->size(), steps);
    right &= holds("losses differ from those of one rank by, of the first", largest, 0, 1e-9);
    right &= holds("the loss falls to, of the first", losses.back() / losses.front(), 0,
                   line.small ? 0.95 : 0.5);
  });
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
