// A Laplace approximation of a small network, by Hessian-vector products. README.md says what comes
// out.
#include "examples/command_line.h"
#include "examples/laplace/posterior.h"
#include "examples/plot.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr int64_t points = 60;
constexpr double noise = 0.1;  // laplace.ir knows it, too

double truth(double x) { return std::sin(2.5 * x); }

double length(const Vector& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Newton's steps with the exact Hessian: damped until it is positive definite and the loss falls.
Tensor descend(Posterior& posterior, Tensor w, int steps) {
  double damping = 1;
  Progress progress("Newton's steps", steps);
  for (int step = 0; step < steps; ++step) {
    progress.step(step);
    const double loss = posterior.train(w);
    const Vector g = posterior.gradient()[0].to_doubles();
    if (length(g) < 1e-8) break;
    const Tensor h = posterior.hessian(w);
    for (; damping < 1e12; damping *= 4) {
      const auto solved = posterior.solve(h, damping, column(g));
      if (!solved) continue;
      Vector next = w.to_doubles();
      for (size_t k = 0; k < next.size(); ++k)
        next[k] -= (*solved)[0].item(static_cast<int64_t>(k));
      const Tensor tried = Tensor::from(DType::f64, Sizes{weights}, next);
      if (posterior.loss(tried) > loss) continue;
      w = tried;
      break;
    }
    damping /= 10;
  }
  return w;
}

// The Hessian times a direction against differences of gradients, of its own size.
double check(Posterior& posterior, const Tensor& w, Random& random) {
  const Tensor v = random.normals({weights}, 1);
  const Vector product = posterior.hessian_times(w, v).to_doubles();
  auto gradient = [&](double h) {
    Vector at = w.to_doubles();
    for (size_t k = 0; k < at.size(); ++k) at[k] += h * v.item(static_cast<int64_t>(k));
    posterior.train(Tensor::from(DType::f64, Sizes{weights}, at));
    return posterior.gradient()[0].to_doubles();
  };
  const double h = 1e-5;
  const Vector up = gradient(h), down = gradient(-h);
  Vector off;
  for (size_t k = 0; k < product.size(); ++k)
    off.push_back(product[k] - (up[k] - down[k]) / (2 * h));
  return length(off) / length(product);
}

struct Prediction {
  Vector x, mean, deviation;
};
// The network's mean and the weights' share of its standard deviation along x.
Prediction predict(Posterior& posterior, const ir::Module& module, const Tensor& w) {
  Prediction out;
  for (int k = 0; k <= 200; ++k) out.x.push_back(-3.5 + 7.0 * k / 200);
  Runner slopes(ir::jacobian(*graph(module, "network"), {.wrt = {{"w"}}}));
  const std::vector<Tensor> now = slopes.run(std::array{w, column(out.x)});
  out.mean = now[0].to_doubles();
  const Vector rows = now[1].to_doubles();  // f64[201, 1, weights]
  const size_t n = out.x.size(), many = weights;
  Vector columns(rows.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < many; ++k) columns[k * n + i] = rows[i * many + k];
  const auto solved =
      posterior.solve(posterior.hessian(w), 0, matrix(weights, static_cast<int64_t>(n), columns));
  if (!solved)
    throw Error("the Hessian is not positive definite: this is no minimum; train longer");
  const Vector half = (*solved)[1].to_doubles();
  for (size_t i = 0; i < n; ++i) {
    double variance = 0;
    for (size_t k = 0; k < many; ++k) variance += half[k * n + i] * half[k * n + i];
    out.deviation.push_back(std::sqrt(variance));
  }
  return out;
}

// The mean deviation where `inside` says, and the share of places there whose truth is within two.
struct Judged {
  double deviation = 0, covered = 0;
};
template <class Inside>
Judged judge(const Prediction& p, Inside inside) {
  Judged out;
  int count = 0;
  for (size_t i = 0; i < p.x.size(); ++i) {
    if (!inside(std::abs(p.x[i]))) continue;
    ++count;
    out.deviation += p.deviation[i];
    out.covered += std::abs(p.mean[i] - truth(p.x[i])) < 2 * p.deviation[i];
  }
  return {out.deviation / count, out.covered / count};
}

bool run(const CommandLine& line) {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/laplace.ir").module;
  Random random(5);
  Vector x, y;
  for (int64_t k = 0; k < points; ++k) {  // none between -0.7 and 0.7
    x.push_back((k % 2 == 0 ? -1 : 1) * random.uniform(0.7, 2.2));
    y.push_back(truth(x.back()) + noise * random.normal());
  }
  Posterior posterior(module, column(x), column(y));
  Adam adam({random.normals({weights}, 0.5)});
  Stopwatch watch;
  for (int step = 0; step < 1000; ++step) {
    posterior.train(adam.parameters()[0]);
    adam.step(posterior.gradient(), 0.01);
  }
  const double before = posterior.train(adam.parameters()[0]);
  const Tensor w = descend(posterior, adam.parameters()[0], line.steps.value_or(1000));
  const double loss = posterior.train(w);
  std::printf("loss %.4f after Adam, %.4f after Newton's steps, %.2f s\n", before, loss,
              watch.seconds());
  bool right =
      holds("length of the gradient", length(posterior.gradient()[0].to_doubles()), 0, 1e-5);
  right &= holds("Hessian-vector product from differences, of its size",
                 check(posterior, w, random), 0, 1e-5);

  const Prediction p = predict(posterior, module, w);
  const Judged near = judge(p, [](double at) { return at > 0.8 && at < 2.1; });
  const Judged between = judge(p, [](double at) { return at < 0.4; });
  const Judged outside = judge(p, [](double at) { return at > 2.8; });
  right &= holds("standard deviation among the data", near.deviation, 0.01, 0.1);
  right &= holds("between them, of that", between.deviation / near.deviation, 2, 1e3);
  right &= holds("outside, of that", outside.deviation / near.deviation, 4, 1e4);
  right &= holds("share of the truth within two deviations, among the data", near.covered, 0.7, 1);
  if (!line.plot.empty()) {
    Vector low, high, exact;
    for (size_t i = 0; i < p.x.size(); ++i) {
      low.push_back(p.mean[i] - 2 * p.deviation[i]);
      high.push_back(p.mean[i] + 2 * p.deviation[i]);
      exact.push_back(truth(p.x[i]));
    }
    using plot::Mark;
    plot::write_svg(
        line.plot,
        std::vector<plot::Panel>{{"Laplace approximation",
                                  "x",
                                  "y",
                                  {{"mean", p.x, p.mean},
                                   {"two deviations", p.x, low, Mark::line, 4},
                                   {"", p.x, high, Mark::line, 4},
                                   {"truth", p.x, exact, Mark::dashes, 5},
                                   {"data", x, y, Mark::points, 1}}},
                                 {"Deviation", "x", "deviation", {{"", p.x, p.deviation}}, true}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
