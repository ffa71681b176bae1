// Windows and Fourier transforms, as products with matrices of cosines and sines.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/onnx/call.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

constexpr double turn = 2 * std::numbers::pi;
// A matrix of more rows would be larger than any model.
constexpr int64_t longest = 2048;

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)
void window(Call& c) {
  int64_t size = c.integer(0, "size");
  if (size < 0 || size > 1'000'000) c.fail("its size is {}", size);
  DType dtype = c.dtype("output_datatype", 1);
  double a0 = 0.5, a1 = 0.5, a2 = 0;
  if (c.op() == "HammingWindow") a0 = 25.0 / 46, a1 = 21.0 / 46;
  if (c.op() == "BlackmanWindow") a0 = 0.42, a2 = 0.08;
  bool periodic = c.flag("periodic", true);
  double period = static_cast<double>(periodic ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    double angle = turn * static_cast<double>(i) / period;
    values.push_back(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  c.give(c.constant(Tensor::from(dtype, std::span(&size, 1), values)));
}

// Row n, column k: cos or -sin of 2 pi n k / length, or sin where it is inverse.
struct Waves {
  Value cosines, sines;
};
Waves waves(Call& c, DType dtype, int64_t rows, int64_t columns, int64_t length, bool inverse) {
  if (rows > longest || columns > longest) c.unsupported("{} of {} elements", c.op(), rows);
  std::vector<double> cosines, sines;
  double scale = inverse ? 1 / static_cast<double>(length) : 1;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t k = 0; k < columns; ++k) {
      double angle = turn * static_cast<double>(n * k % length) / static_cast<double>(length);
      cosines.push_back(std::cos(angle) * scale);
      sines.push_back((inverse ? std::sin(angle) : -std::sin(angle)) * scale);
    }
  int64_t shape[] = {rows, columns};
  return {c.constant(Tensor::from(dtype, shape, cosines)),
          c.constant(Tensor::from(dtype, shape, sines))};
}

// Of [.., n] (im may be undefined), as [.., bins, 2].
Value transformed(Call& c, const Value& re, const Value& im, int64_t length, int64_t bins,
                  bool inverse) {
  int64_t rows = re.dims().back().value();
  Waves w = waves(c, re.dtype(), rows, bins, length, inverse);
  Value y_re = matmul(re, w.cosines), y_im = matmul(re, w.sines);
  if (im.defined()) {
    y_re = y_re - matmul(im, w.sines);
    y_im = y_im + matmul(im, w.cosines);
  }
  return emit_all(c.world(), "stack", std::vector{y_re, y_im}, {{"dim", -1}})[0];
}

Value component(const Value& x, int64_t i) { return select(x, -1, i); }

// The number of real and imaginary parts in the last dimension.
bool is_complex(Call& c, const Value& x) {
  Dim n = x.rank() > 1 ? x.dims().back() : Dim(0);
  if (!(n == Dim(1)) && !(n == Dim(2))) c.fail("its last dimension is 1 or 2: real, imaginary");
  return n == Dim(2);
}

// The real signal of which a spectrum's first half is known: the other half is its mirror image.
Value real_signal(Call& c, const Value& re, const Value& im, int64_t length) {
  int64_t rows = re.dims().back().value();
  if (rows > longest || length > longest) c.unsupported("{} of {} elements", c.op(), length);
  std::vector<double> cosines, sines;
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t m = 0; m < length; ++m) {
      double angle = turn * static_cast<double>(k * m % length) / static_cast<double>(length);
      double weight = (k == 0 || 2 * k == length ? 1 : 2) / static_cast<double>(length);
      cosines.push_back(std::cos(angle) * weight);
      sines.push_back(2 * k == length ? 0 : -std::sin(angle) * weight);
    }
  int64_t shape[] = {rows, length};
  Value y = matmul(re, c.constant(Tensor::from(re.dtype(), shape, cosines)));
  if (im.defined()) y = y + matmul(im, c.constant(Tensor::from(re.dtype(), shape, sines)));
  return unsqueeze(y, y.rank());
}

// The axis is an attribute, and an input since version 20.
int axis_of_dft(Call& c) {
  if (c.opset() < 20) return c.axis("axis", 1);
  return c.axis(c.given(2) ? c.integer(2, "axis") : -2, c.rank());
}

void dft(Call& c) {
  Value x = c.x();
  bool complex = is_complex(c, x), inverse = c.flag("inverse");
  bool half = c.flag("onesided");
  int axis = axis_of_dft(c);
  if (axis == x.rank() - 1) c.fail("its axis is that of real and imaginary parts");
  if (!x.dims()[static_cast<size_t>(axis)].constant())
    c.unsupported("DFT along a size that has a name");
  int64_t there = x.dims()[static_cast<size_t>(axis)].value();
  const bool to_real = half && inverse;
  if (half && !inverse && complex)
    c.fail("one side of the spectrum says all of a real signal alone");
  int64_t length = c.given(1) ? c.integer(1, "dft_length") : to_real ? 2 * (there - 1) : there;
  if (length < 1) c.fail("its length is {}", length);
  const int64_t used = to_real ? length / 2 + 1 : length;
  auto along = [&](const Value& v) {
    Value last = emit("movedim", {v}, {{"source", axis}, {"destination", -1}});
    return there > used ? slice(last, -1, 0, used) : last;
  };
  Value re = along(component(x, 0)), im = complex ? along(component(x, 1)) : Value();
  Value y = to_real ? real_signal(c, re, im, length)
                    : transformed(c, re, im, length, half ? length / 2 + 1 : length, inverse);
  c.give(emit("movedim", {y}, {{"source", -2}, {"destination", axis}}));
}

void stft(Call& c) {
  Value x = c.x();
  if (x.rank() != 3) c.fail("it wants [batch, length, 1 or 2]");
  bool complex = is_complex(c, x), half = c.flag("onesided", true);
  int64_t step = c.integer(1, "frame_step");
  if (c.given(2) && c.rank(2) != 1) c.fail("its window is a list");
  auto window = c.given(2) ? c.type(2).dims[0].constant() : std::nullopt;
  if (!c.given(3) && !window) c.fail("neither frame_length nor a window is there");
  int64_t length = c.given(3) ? c.integer(3, "frame_length") : *window;
  if (step < 1 || length < 1) c.fail("frames of {} elements, {} apart", length, step);
  auto frames = [&](int64_t part) {
    Value f = emit("unfold", {component(x, part)}, {{"dim", 1}, {"size", length}, {"step", step}});
    return c.given(2) ? f * c.x(2) : f;
  };
  c.give(transformed(c, frames(0), complex ? frames(1) : Value(), length,
                     half ? length / 2 + 1 : length, false));
}

double mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }

// Triangles on the mel scale, each from the centre before its own to the one after.
void mel_weights(Call& c) {
  int64_t bins = c.integer(0, "num_mel_bins"), length = c.integer(1, "dft_length");
  double rate = static_cast<double>(c.integer(2, "sample_rate"));
  double low = mel(c.number(3, "lower_edge_hertz")), high = mel(c.number(4, "upper_edge_hertz"));
  if (bins < 1 || bins > longest || length < 1 || length > longest || !(rate > 0))
    c.fail("its numbers are out of range");
  DType dtype = c.dtype("output_datatype", 1);
  int64_t shape[] = {length / 2 + 1, bins};
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double at = low + static_cast<double>(i) * ((high - low) / static_cast<double>(bins + 2));
    double hertz = 700 * (std::pow(10.0, at / 2595) - 1);
    edges.push_back(static_cast<int64_t>(
        std::clamp(std::floor(static_cast<double>(length + 1) * hertz / rate), -1.0, 1e9)));
  }
  std::vector<double> values(static_cast<size_t>(shape[0] * bins));
  for (int64_t b = 0; b < bins; ++b) {
    auto at = static_cast<size_t>(b);
    int64_t left = edges[at], top = edges[at + 1], right = edges[at + 2];
    auto set = [&](int64_t row, double v) {
      if (row >= 0 && row < shape[0]) values[static_cast<size_t>(row * bins + b)] = v;
    };
    if (left == top) set(top, 1);
    for (int64_t k = left; k <= std::min(top, shape[0]); ++k)
      if (left != top) set(k, static_cast<double>(k - left) / static_cast<double>(top - left));
    for (int64_t k = top; k < std::min(right, shape[0]); ++k)
      set(k, static_cast<double>(right - k) / static_cast<double>(right - top));
  }
  c.give(c.constant(Tensor::from(dtype, shape, values)));
}

constexpr RuleEntry signal_table[] = {
    {"HannWindow", 17, window},
    {"HammingWindow", 17, window},
    {"BlackmanWindow", 17, window},
    {"DFT", 17, dft},
    {"STFT", 17, stft},
    {"MelWeightMatrix", 17, mel_weights},
};

}  // namespace

constinit const Rules signal_rules = signal_table;

}  // namespace gradus::onnx
