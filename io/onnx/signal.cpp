// Windows and Fourier transforms.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/onnx/call.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

constexpr double turn = 2 * std::numbers::pi;
// More weights would be larger than any model.
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

// The number of real and imaginary parts in the last dimension.
bool is_complex(Call& c, const Value& x) {
  Dim n = x.rank() > 1 ? x.dims().back() : Dim(0);
  if (!(n == Dim(1)) && !(n == Dim(2))) c.fail("its last dimension is 1 or 2: real, imaginary");
  return n == Dim(2);
}

// With both parts. Zeros follow, or elements are left out, until it has this size along the axis.
Value fitted(const Value& x, int64_t axis, const Dim& size) {
  const int last = x.rank() - 1;
  Value both = pad_zeros(x, last, 0, Dim(2) - x.dims()[static_cast<size_t>(last)]);
  return pad_zeros(both, axis, 0, size - x.dims()[static_cast<size_t>(axis)]);
}
Value transformed(const Value& x, int64_t axis, bool inverse) {
  return emit("fft", {x},
              {{"dim", axis}, {"inverse", inverse}, {"norm", inverse ? "size" : "none"}});
}
// The first half, which says all of a real signal.
Value half_of(const Value& y, int64_t axis, const Dim& length) {
  return slice(y, axis, 0, floor_div(length, 2) + 1);
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
  const Dim there = x.dims()[static_cast<size_t>(axis)];
  const bool to_real = half && inverse;
  if (half && !inverse && complex)
    c.fail("one side of the spectrum says all of a real signal alone");
  const Dim length = c.given(1) ? Dim(c.integer(1, "dft_length"))
                     : to_real  ? 2 * (there - 1)
                                : there;
  if (length.is_constant() && length.value() < 1) c.fail("its length is {}", length.value());
  if (to_real) {
    Value y = emit("irfft", {fitted(x, axis, there)}, {{"n", length}, {"dim", axis}});
    return c.give(unsqueeze(y, y.rank()));
  }
  Value y = transformed(fitted(x, axis, length), axis, inverse);
  c.give(half ? half_of(y, axis, length) : y);
}

void stft(Call& c) {
  Value x = c.x();
  if (x.rank() != 3) c.fail("it wants [batch, length, 1 or 2]");
  is_complex(c, x);
  bool half = c.flag("onesided", true);
  int64_t step = c.integer(1, "frame_step");
  if (c.given(2) && c.rank(2) != 1) c.fail("its window is a list");
  auto window = c.given(2) ? c.type(2).dims[0].constant() : std::nullopt;
  if (!c.given(3) && !window) c.fail("neither frame_length nor a window is there");
  int64_t length = c.given(3) ? c.integer(3, "frame_length") : *window;
  if (step < 1 || length < 1) c.fail("frames of {} elements, {} apart", length, step);
  // [batch, frames, 1 or 2, length]
  Value frames = emit("unfold", {x}, {{"dim", 1}, {"size", length}, {"step", step}});
  if (c.given(2)) frames = frames * c.x(2);
  Value y = transformed(fitted(transpose(frames, 2, 3), 2, length), 2, false);
  c.give(half ? half_of(y, 2, length) : y);
}

double mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }

// Triangles on the mel scale, each from the centre before its own to the one after.
void mel_weights(Call& c) {
  int64_t bins = c.integer(0, "num_mel_bins"), length = c.integer(1, "dft_length");
  double rate = static_cast<double>(c.integer(2, "sample_rate"));
  double low = mel(c.number(3, "lower_edge_hertz")), high = mel(c.number(4, "upper_edge_hertz"));
  if (bins < 1 || bins > longest || length < 1 || length > longest || !(rate > 0) ||
      !std::isfinite(low) || !std::isfinite(high))
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
    for (int64_t k = std::max<int64_t>(left, 0); k <= std::min(top, shape[0]); ++k)
      if (left != top) set(k, static_cast<double>(k - left) / static_cast<double>(top - left));
    for (int64_t k = std::max<int64_t>(top, 0); k < std::min(right, shape[0]); ++k)
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
