// Energy, forces, training through forces, and a Hessian, of 13 argon atoms.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "gradus/state.h"
#include "gradus/text.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr int atoms = 13;
constexpr double true_eps = 0.01032, true_sigma = 3.405;  // eV, angstrom
constexpr double mass = 39.948;                           // u
constexpr double accelerate = 9648.533;  // angstrom/ps^2 for a force of 1 eV/angstrom on 1 u

// The program as one would use it in a loop: numbers in, numbers out.
class Argon {
 public:
  explicit Argon(std::shared_ptr<const Code> code) : state_(std::move(code)) {
    for (int a = 0; a < atoms; ++a)
      for (int b = a + 1; b < atoms; ++b) {
        i_.push_back(a);
        j_.push_back(b);
      }
  }
  struct Forward {
    double energy;
    Vector force;
    double loss;
  };
  // Stage 0.
  Forward forward(const Vector& r, double eps, double sigma, const Vector& force_ref) {
    int64_t pairs = static_cast<int64_t>(i_.size());
    state_.restart();
    auto out = state_.run(std::vector<Tensor>{
        positions(r), Tensor::scalar(DType::f64, eps), Tensor::scalar(DType::f64, sigma),
        positions(force_ref), Tensor::from(DType::i64, Sizes{pairs}, i_),
        Tensor::from(DType::i64, Sizes{pairs}, j_)});
    return {out[0].item(), out[1].to_doubles(), out[2].item()};
  }
  // Stage 1: the gradient of `energy_weight * energy + loss_weight * loss`, after forward. The
  // results are d1_r, d1_eps, d1_sigma, d1_force_ref.
  std::vector<Tensor> backward(double energy_weight, double loss_weight) {
    auto weight = [](double w) { return w == 0 ? Tensor() : Tensor::scalar(DType::f64, w); };
    return state_.run(std::vector<Tensor>{weight(energy_weight), Tensor(), weight(loss_weight)});
  }
  // Stage 2: the Hessian of what stage 1 differentiated, times a vector, after backward. The state
  // itself stays where it is, so that more vectors can be tried.
  std::vector<Tensor> hessian_times(const Tensor& v_r, const Tensor& v_eps, const Tensor& v_sigma) {
    return state_.clone().run(std::vector<Tensor>{v_r, v_eps, v_sigma, Tensor()});
  }
  static Tensor positions(const Vector& r) { return Tensor::from(DType::f64, Sizes{atoms, 3}, r); }

 private:
  State state_;
  Vector i_, j_;
};

// One atom in the middle, twelve around it at the distance where two atoms attract most.
Vector icosahedron() {
  const double golden = (1 + std::sqrt(5.0)) / 2, scale = 3.76 / std::sqrt(1 + golden * golden);
  Vector r(3, 0.0);
  for (int axis = 0; axis < 3; ++axis)
    for (double a : {-1.0, 1.0})
      for (double b : {-golden, golden}) {
        double point[3] = {};
        point[(axis + 1) % 3] = a * scale;
        point[(axis + 2) % 3] = b * scale;
        r.insert(r.end(), point, point + 3);
      }
  return r;
}

void relax(Argon& argon, Vector& r) {
  for (int step = 0; step < 2000; ++step) {
    auto now = argon.forward(r, true_eps, true_sigma, r);
    for (size_t k = 0; k < r.size(); ++k) r[k] += 1.5 * now.force[k];
  }
}

void move_atoms(Argon& argon, Vector r) {
  std::printf("\n2. Molecular dynamics: velocity Verlet, 2 fs steps, forces from stage 0\n");
  std::printf("     time/ps   potential/eV     kinetic/eV       total/eV\n");
  std::mt19937 random(13);
  Vector v(r.size());
  for (double& x : v)
    x = 1.2 * (static_cast<double>(random()) / 4294967296.0 - 0.5);  // angstrom/ps
  auto now = argon.forward(r, true_eps, true_sigma, r);
  const double dt = 0.002;
  double first = 0, worst = 0;
  for (int step = 0; step <= 5000; ++step) {
    double kinetic = 0;
    for (double x : v) kinetic += 0.5 * mass * x * x / accelerate;
    double total = now.energy + kinetic;
    if (step == 0) first = total;
    worst = std::max(worst, std::abs(total - first));
    if (step % 1000 == 0)
      std::printf("   %9.1f %14.6f %14.6f %14.6f\n", step * dt, now.energy, kinetic, total);
    for (size_t k = 0; k < r.size(); ++k) v[k] += 0.5 * dt * accelerate / mass * now.force[k];
    for (size_t k = 0; k < r.size(); ++k) r[k] += dt * v[k];
    now = argon.forward(r, true_eps, true_sigma, r);
    for (size_t k = 0; k < r.size(); ++k) v[k] += 0.5 * dt * accelerate / mass * now.force[k];
  }
  std::printf("   energy is conserved: it wanders by at most %.1e of %.3f eV in 5000 steps\n",
              worst, std::abs(first));
}

// Newton's method on the loss in (eps, sigma): the gradient is stage 1, the Hessian two runs of
// stage 2 on clones of one state.
void match_forces(Argon& argon, const Vector& r) {
  std::printf("\n3. Force matching: find eps and sigma from forces alone\n");
  std::printf("     step          loss          eps/eV   sigma/angstrom\n");
  Vector force_ref = argon.forward(r, true_eps, true_sigma, r).force;
  double eps = 0.0112, sigma = 3.36;
  const Tensor one = Tensor::scalar(DType::f64, 1);
  for (int step = 0; step <= 7; ++step) {
    double loss = argon.forward(r, eps, sigma, force_ref).loss;
    std::printf("   %6d  %12.3e  %14.8f %14.8f\n", step, loss, eps, sigma);
    auto gradient = argon.backward(0, 1);
    auto column_eps = argon.hessian_times(Tensor(), one, Tensor());
    auto column_sigma = argon.hessian_times(Tensor(), Tensor(), one);
    double g0 = gradient[1].item(), g1 = gradient[2].item();
    double h00 = column_eps[1].item(), h01 = column_sigma[1].item(), h11 = column_sigma[2].item();
    double det = h00 * h11 - h01 * h01;
    eps -= (h11 * g0 - h01 * g1) / det;
    sigma -= (h00 * g1 - h01 * g0) / det;
  }
  std::printf("   the forces were made with        %14.8f %14.8f\n", true_eps, true_sigma);
}

void probe_hessian(Argon& argon, const Vector& r) {
  std::printf("\n4. The Hessian of the energy, times a vector (stage 2)\n");
  Vector v(r.size()), zero(r.size(), 0.0);
  for (size_t k = 0; k < v.size(); ++k) v[k] = std::sin(1.0 + 2.0 * static_cast<double>(k));
  argon.forward(r, true_eps, true_sigma, r);
  argon.backward(1, 0);
  Vector hv = argon.hessian_times(Argon::positions(v), Tensor(), Tensor())[0].to_doubles();
  const double h = 1e-4;
  Vector up = r, down = r;
  for (size_t k = 0; k < r.size(); ++k) up[k] += h * v[k], down[k] -= h * v[k];
  Vector force_up = argon.forward(up, true_eps, true_sigma, r).force;
  Vector force_down = argon.forward(down, true_eps, true_sigma, r).force;
  double worst = 0, largest = 0;
  for (size_t k = 0; k < r.size(); ++k) {
    worst = std::max(worst, std::abs(hv[k] + (force_up[k] - force_down[k]) / (2 * h)));
    largest = std::max(largest, std::abs(hv[k]));
  }
  std::printf("   largest entry %.6f eV/angstrom^2; differs from differences of forces by %.1e\n",
              largest, worst);
}

int run(const char* file) {
  std::ifstream in(file);
  if (!in) throw Error("cannot read {}", file);
  std::string text(std::istreambuf_iterator<char>(in), {});
  ir::Module module = ir::parse(text, file);
  ir::Graph staged = ir::differentiate(module.program(), {.order = 2});
  auto code = Code::compile(staged);
  std::printf("13 argon atoms in an icosahedron; energy and forces from %s\n", file);
  for (size_t s = 0; s < code->stages(); ++s)
    std::printf("   stage %zu: %3zu instructions  (%s)\n", s, code->stage(s).instructions.size(),
                s == 0   ? "energy, forces, loss"
                : s == 1 ? "gradients"
                         : "Hessian-vector products");
  Argon argon(code);
  Vector r = icosahedron();
  relax(argon, r);
  double energy = argon.forward(r, true_eps, true_sigma, r).energy;
  std::printf("\n1. Relaxed along the forces: E = %.6f eV = %.4f eps (literature: -44.3268 eps)\n",
              energy, energy / true_eps);
  move_atoms(argon, r);
  Vector shaken = r;
  for (size_t k = 0; k < r.size(); ++k) shaken[k] += 0.1 * std::sin(7.0 * static_cast<double>(k));
  match_forces(argon, shaken);
  probe_hessian(argon, shaken);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "examples/argon.ir");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
