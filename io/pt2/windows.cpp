// Windows of a signal. Their lengths are numbers, so that a window is a constant.
#include <cmath>
#include <numbers>

#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

constexpr double pi = std::numbers::pi;

// A window over `last` steps, in f64; `periodic` leaves the last place out.
struct Window {
  int64_t length, last;
  Value place;  // 0, 1, .. of each element

  explicit Window(Call& c) : length(c.integer("window_length")) {
    if (length < 0) c.fail("its window has {} elements", length);
    last = c.flag("periodic", true) ? length : length - 1;
    place = cast(arange(c.world(), length), DType::f64);
  }
  // A window of one element is 1, whatever its formula says.
  bool is_short() const { return length < 2; }
};

void give_window(Call& c, Value (*formula)(Call&, const Window&)) {
  const Window w(c);
  Value y = w.is_short() ? ones_like(w.place) : formula(c, w);
  c.give(c.settled(cast(y, c.result().dtype)));
}

Value cosine(const Window& w, double turns) {
  return unary("cos", w.place * (2 * pi * turns / static_cast<double>(w.last)));
}

Value raised_cosine(const Window& w, double alpha, double beta) {
  return alpha - cosine(w, 1) * beta;
}

void hann_window(Call& c) {
  give_window(c, [](Call&, const Window& w) { return raised_cosine(w, 0.5, 0.5); });
}

void hamming_window(Call& c) {
  give_window(c, [](Call& c, const Window& w) {
    return raised_cosine(w, c.number("alpha", 0.54), c.number("beta", 0.46));
  });
}

void blackman_window(Call& c) {
  give_window(c, [](Call&, const Window& w) {
    Value first = cosine(w, 1) * 0.5, second = cosine(w, 2) * 0.08;
    return second - first + 0.42;
  });
}

void bartlett_window(Call& c) {
  give_window(c, [](Call&, const Window& w) {
    Value rising = w.place * (2 / static_cast<double>(w.last));
    return binary("minimum", rising, 2.0 - rising);
  });
}

// The modified Bessel function of order 0, of x with x^2 / 4 = t <= most. Its series has positive
// terms only: 1 + t / 1^2 (1 + t / 2^2 (1 + ..)).
Value bessel_i0(const Value& t, double most) {
  int64_t terms = 1;
  for (double term = 1, sum = 1; term > sum * 1e-17; ++terms) {
    term *= most / static_cast<double>(terms * terms);
    sum += term;
  }
  Value y = ones_like(t);
  for (int64_t k = terms; k > 0; --k) y = t * y / static_cast<double>(k * k) + 1.0;
  return y;
}

void kaiser_window(Call& c) {
  give_window(c, [](Call& c, const Window& w) {
    const double beta = c.number("beta", 12);
    constexpr double most = 700;  // further on the function has no value in f64
    if (!(std::abs(beta) <= most)) c.fail("its beta is {}; {} is the greatest", beta, most);
    const double half = static_cast<double>(w.last) / 2, t = beta * beta / 4;
    Value from_centre = (w.place - half) / half;
    Value inner = binary("maximum", 1.0 - from_centre * from_centre, num(0.0)) * t;
    return bessel_i0(inner, t) / bessel_i0(full(c.world(), {}, t, DType::f64), t);
  });
}

constexpr RuleEntry window_table[] = {
    {"hann_window", hann_window},         {"hamming_window", hamming_window},
    {"blackman_window", blackman_window}, {"bartlett_window", bartlett_window},
    {"kaiser_window", kaiser_window},
};

}  // namespace

constinit const Rules window_rules = window_table;

}  // namespace gradus::pt2
