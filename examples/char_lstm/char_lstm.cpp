// A character LSTM learns to count, and is judged by what it writes. README.md says what comes out.
#include "examples/char_lstm/counting.h"
#include "examples/char_lstm/unrolled.h"
#include "examples/command_line.h"
#include "examples/plot.h"
#include "examples/training.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr int64_t length = 48, batch = 16, units = 48, features = 16;

std::vector<Tensor> first_weights(Random& random) {
  const auto v = static_cast<int64_t>(counting::alphabet.size());
  Vector bias(4 * units);
  std::fill(bias.begin() + units, bias.begin() + 2 * units, 1.0);  // at first nothing is forgotten
  return {random.normals({v, features}, 1),
          random.normals({4 * units, features}, 1 / std::sqrt(double(features))),
          random.normals({4 * units, units}, 1 / std::sqrt(double(units))),
          Tensor::from(DType::f64, Sizes{4 * units}, bias),
          random.normals({v, units}, 1 / std::sqrt(double(units))),
          Tensor::zeros(DType::f64, Sizes{v})};
}

Tensor draw_texts(Random& random) {
  Vector out((length + 1) * batch);
  for (int64_t n = 0; n < batch; ++n) {
    std::string text = "\n";
    while (std::ssize(text) <= length) text += counting::line(random);
    for (int64_t t = 0; t <= length; ++t)
      out[static_cast<size_t>(t * batch + n)] = counting::code(text[static_cast<size_t>(t)]);
  }
  return Tensor::from(DType::i64, Sizes{length + 1, batch}, out);
}

// A character, each as probable as the network says.
size_t pick(const Tensor& scores, int64_t row, Random& random) {
  const size_t v = counting::alphabet.size();
  Vector weight(v);
  double total = 0;
  for (size_t k = 0; k < v; ++k) {
    weight[k] = std::exp(scores.item(row * static_cast<int64_t>(v) + static_cast<int64_t>(k)));
    total += weight[k];
  }
  double left = total * random.uniform();
  for (size_t k = 0; k + 1 < v; ++k)
    if ((left -= weight[k]) < 0) return k;
  return v - 1;
}

// Lines that the network writes, up to their end.
std::vector<std::string> write(const ir::Module& module, const std::vector<Tensor>& weights,
                               int64_t lines, Random& random) {
  Runner next(*graph(module, "next"));
  std::vector<std::string> out(static_cast<size_t>(lines));
  Vector last(out.size(), counting::code('\n'));
  Tensor h = Tensor::zeros(DType::f64, Sizes{lines, units}), c = h.copy();
  for (int step = 0; step < 80; ++step) {
    const std::vector<Tensor> in{Tensor::from(DType::i64, Sizes{lines}, last), h, c};
    const std::vector<Tensor> now = next.run(with(in, weights));
    h = now[1], c = now[2];
    for (size_t n = 0; n < out.size(); ++n) {
      const size_t k = pick(now[0], static_cast<int64_t>(n), random);
      last[n] = static_cast<double>(k);
      if (out[n].empty() || out[n].back() != '\n') out[n] += counting::alphabet[k];
    }
  }
  return out;
}

bool run(const CommandLine& line) {
  const std::string path = EXAMPLE_FOLDER "/char_lstm.ir";
  const ir::Module next = ir::parse_file(path).module;
  const ir::Module module = ir::parse(unrolled(length) + ir::print(next.program()), "unrolled");
  Random random(6);
  TrainingStep training(*graph(module, "train"), "table");
  Adam adam(first_weights(random));
  const int steps = line.steps.value_or(line.small ? 300 : 2000);
  Vector at, losses;
  Stopwatch watch;
  Progress progress("training", steps);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const double rate = 0.5e-2 * (1.02 + std::cos(std::numbers::pi * step / steps));
    const std::vector<Tensor> in{draw_texts(random)};
    loss += training.run(with(in, adam.parameters())) / 20;
    adam.step(training.gradients(), rate);
    progress.step(step);
    if (step % 20 != 19) continue;
    at.push_back(step + 1);
    losses.push_back(loss);
    loss = 0;
  }
  std::printf("%d training steps of %d x %d characters, %.2f ms each\n", steps,
              static_cast<int>(batch), static_cast<int>(length), 1e3 * watch.seconds() / steps);
  double right_words = 0, right_lines = 0;
  const std::vector<std::string> written = write(next, adam.parameters(), 200, random);
  for (size_t n = 0; n < written.size(); ++n) {
    if (n < 5) std::printf("   %s\n", written[n].substr(0, written[n].find('\n')).c_str());
    right_words += counting::spelt(written[n]) / 200;
    right_lines += counting::counts(written[n]) / 200.0;
  }
  bool right = holds("share of words that are numbers", right_words, line.small ? 0.65 : 0.97, 1);
  if (!line.small) right &= holds("share of lines that count", right_lines, 0.8, 1);
  right &= holds("loss, nats a character", losses.empty() ? loss : losses.back(), 0,
                 line.small ? 0.48 : 0.22);
  if (!line.plot.empty()) {
    plot::write_svg(line.plot,
                    std::vector<plot::Panel>{
                        {"Training", "step", "loss, nats a character", {{"", at, losses}}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
