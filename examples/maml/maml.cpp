// Meta-learning through gradient descent, beside its first-order approximation. README.md says what
// comes out.
#include "examples/command_line.h"
#include "examples/plot.h"
#include "examples/training.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr int64_t shots = 10, adaptation = 5;  // points of a task, and gradient steps on them
constexpr double rate = 0.03;                  // of these steps

struct Sine {
  double amplitude, phase;
  double operator()(double x) const { return amplitude * std::sin(x - phase); }
};
Sine draw(Random& random) { return {random.uniform(0.1, 5), random.uniform(0, std::numbers::pi)}; }

// Tasks' points to learn from and to be judged by: a program's inputs but for rates and weights.
std::vector<Tensor> points(const std::vector<Sine>& tasks, int64_t many, Random& random) {
  std::vector<Tensor> out;
  for (const int64_t count : {many, many}) {
    Vector x, y;
    for (const Sine& task : tasks)
      for (int64_t k = 0; k < count; ++k) {
        x.push_back(random.uniform(-5, 5));
        y.push_back(task(x.back()));
      }
    const Sizes shape{static_cast<int64_t>(tasks.size()), count, 1};
    out.push_back(Tensor::from(DType::f64, shape, x));
    out.push_back(Tensor::from(DType::f64, shape, y));
  }
  return out;
}
std::vector<Tensor> draw_points(int tasks, int64_t many, Random& random) {
  std::vector<Sine> out;
  for (int k = 0; k < tasks; ++k) out.push_back(draw(random));
  return points(out, many, random);
}

std::vector<Tensor> inputs(std::vector<Tensor> points, int64_t steps,
                           const std::vector<Tensor>& weights) {
  points.push_back(
      Tensor::from(DType::f64, Sizes{steps}, Vector(static_cast<size_t>(steps), rate)));
  return with(std::move(points), weights);
}

// Of three layers: weights[in, out] and biases[1, out] in turns.
std::vector<Tensor> first_weights(int64_t width, Random& random) {
  std::vector<Tensor> out;
  for (const auto& [from, to] :
       {std::pair<int64_t, int64_t>{1, width}, {width, width}, {width, 1}}) {
    out.push_back(random.normals({from, to}, 1 / std::sqrt(static_cast<double>(from))));
    out.push_back(random.normals({1, to}, 0.1));
  }
  return out;
}

Vector flat(const std::vector<Tensor>& tensors) {
  Vector out;
  for (const Tensor& t : tensors)
    for (double v : t.to_doubles()) out.push_back(v);
  return out;
}
double length(const Vector& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}
double apart(const Vector& a, const Vector& b) {
  Vector off;
  for (size_t k = 0; k < a.size(); ++k) off.push_back(a[k] - b[k]);
  return length(off) / length(b);
}

struct Programs {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/maml.ir").module;
  TrainingStep exact{*graph(module, "maml"), "w1"};
  TrainingStep first_order{*graph(module, "first_order"), "w1"};
  Runner values{*graph(module, "maml")};
};

// Both gradients of a small network and few tasks against central differences, weight by weight.
struct Checked {
  double exact, first_order;
};
Checked check(Programs& programs, Random& random) {
  const std::vector<Tensor> given = draw_points(3, 5, random);
  const std::vector<Tensor> weights = first_weights(6, random);
  Vector differences;
  for (size_t p = 0; p < weights.size(); ++p)
    for (int64_t k = 0; k < weights[p].numel(); ++k) {
      constexpr double h = 1e-5;
      auto loss = [&](double off) {
        std::vector<Tensor> moved = weights;
        moved[p] = weights[p].copy();
        moved[p].mutable_data_as<double>()[k] += off;
        return programs.values.run(inputs(given, adaptation, moved))[0].item();
      };
      differences.push_back((loss(h) - loss(-h)) / (2 * h));
    }
  auto off = [&](TrainingStep& way) {
    way.run(inputs(given, adaptation, weights));
    return apart(flat(way.gradients()), differences);
  };
  return {off(programs.exact), off(programs.first_order)};
}

// Weights to begin a task from, and how they came to be.
struct Learned {
  std::vector<Tensor> weights;
  Vector at, loss;     // of tasks that are not trained on, after the adaptation
  double time = 0;     // of a step
  double differs = 0;  // how far the first-order gradient is off the exact one, on the mean
};
// `way` is one of the programs' two, which adapts by `steps_within` steps. Tasks are the same.
Learned learn(Programs& programs, TrainingStep& way, int64_t steps_within, int steps,
              const std::vector<Tensor>& held_out) {
  Random random(11);
  Adam adam(first_weights(40, random));
  Learned out;
  Progress progress("meta-training", steps);
  int compared = 0;
  for (int step = 0; step <= steps; ++step) {
    if (step % 100 == 0) {
      const auto given = inputs(held_out, adaptation, adam.parameters());
      out.at.push_back(step);
      out.loss.push_back(programs.values.run(given)[0].item());
    }
    if (step == steps) break;
    const auto given = inputs(draw_points(16, shots, random), steps_within, adam.parameters());
    Stopwatch watch;
    way.run(given);
    out.time += watch.seconds() / steps;
    if (&way == &programs.exact && step % 100 == 0) {
      programs.first_order.run(given);
      out.differs += apart(flat(programs.first_order.gradients()), flat(way.gradients()));
      ++compared;
    }
    adam.step(way.gradients(), 1e-3 * (1.02 + std::cos(std::numbers::pi * step / steps)));
    progress.step(step);
  }
  out.differs /= std::max(compared, 1);
  out.weights = adam.parameters();
  return out;
}

// The loss of new tasks after 0, 1, .. steps.
Vector adapt(Programs& programs, const Learned& from, const std::vector<Tensor>& tasks,
             int64_t most) {
  Vector out;
  for (int64_t n = 0; n <= most; ++n)
    out.push_back(programs.values.run(inputs(tasks, n, from.weights))[0].item());
  return out;
}

// One new task, and what a network says of it along x after so many steps.
struct Example {
  std::vector<Tensor> given;
  Vector x, y;
  Example() {
    Random random(20);
    const Sine task{3.5, 1.2};
    given = points({task}, shots, random);
    for (int k = 0; k <= 200; ++k) {
      x.push_back(-5 + 0.05 * k);
      y.push_back(task(x.back()));
    }
    const Sizes shape{1, static_cast<int64_t>(x.size()), 1};
    given[2] = Tensor::from(DType::f64, shape, x);
    given[3] = Tensor::from(DType::f64, shape, y);
  }
  Vector said(Programs& programs, const Learned& by, int64_t steps) const {
    return programs.values.run(inputs(given, steps, by.weights))[1].to_doubles();
  }
};

bool run(const CommandLine& line) {
  Programs programs;
  Random random(5);
  const Checked checked = check(programs, random);
  bool right = holds("exact gradient off central differences, of its size", checked.exact, 0, 1e-6);
  std::printf("%-58s %10.4g\n", "first-order gradient off them", checked.first_order);

  const std::vector<Tensor> held_out = draw_points(100, shots, random);
  const int steps = line.steps.value_or(line.small ? 400 : 6000);
  const Learned exact = learn(programs, programs.exact, adaptation, steps, held_out);
  const Learned first = learn(programs, programs.first_order, adaptation, steps, held_out);
  const Learned joint = learn(programs, programs.exact, 0, steps, held_out);
  std::printf("%d meta-training steps of 16 tasks, %.2f ms each; first order: %.2f ms\n", steps,
              1e3 * exact.time, 1e3 * first.time);
  std::printf("%-58s %10.4g\n", "first-order gradient off the exact one, in training",
              exact.differs);
  const Vector by_exact = adapt(programs, exact, held_out, 10);
  const Vector by_first = adapt(programs, first, held_out, 10);
  const Vector by_joint = adapt(programs, joint, held_out, 10);
  right &=
      holds("loss of new tasks after 5 steps", by_exact[adaptation], 0, line.small ? 1.5 : 0.3);
  right &= holds("by the first-order approximation", by_first[adaptation], 0, line.small ? 2.5 : 1);
  holds("by training without adaptation", by_joint[adaptation], 0, 5);

  if (!line.plot.empty()) {
    const Example example;
    Vector counts;
    for (size_t n = 0; n < by_exact.size(); ++n) counts.push_back(static_cast<double>(n));
    plot::write_svg(
        line.plot,
        std::vector<plot::Panel>{
            {"Meta-training",
             "step",
             "loss of new tasks after 5 steps",
             {{"exact", exact.at, exact.loss}, {"first order", first.at, first.loss}},
             true},
            {"Adaptation",
             "gradient steps on 10 points",
             "loss of new tasks",
             {{"exact", counts, by_exact},
              {"first order", counts, by_first},
              {"trained without", counts, by_joint}},
             true},
            {"A new task",
             "x",
             "y",
             {{"exact, before", example.x, example.said(programs, exact, 0), plot::Mark::line, 4},
              {"after 5 steps", example.x, example.said(programs, exact, adaptation),
               plot::Mark::line, 0},
              {"first order", example.x, example.said(programs, first, adaptation),
               plot::Mark::line, 1},
              {"truth", example.x, example.y, plot::Mark::dashes, 5},
              {"", example.given[0].to_doubles(), example.given[1].to_doubles(), plot::Mark::points,
               5}}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
