// Fourier transforms, and what goes with them.
#include <algorithm>
#include <numeric>

#include "io/pt2/complex.h"
#include "io/pt2/importer.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// How a transform scales what it gives, by torch's name for that. A transform there is one that is
// not `back`.
std::string scale_by_name(Call& c, bool back) {
  const std::string norm = c.text("norm", "backward");
  if (norm == "ortho") return "root";
  if (norm != "backward" && norm != "forward") c.fail("its norm is '{}'", norm);
  return back == (norm == "backward") ? "size" : "none";
}
std::string scale_by_number(Call& c) {
  const int64_t number = c.integer("normalization");
  if (number < 0 || number > 2) c.fail("its normalization is {}", number);
  return number == 0 ? "none" : number == 1 ? "root" : "size";
}

// Dimensions are those of the complex numbers, counted from the front.
Value transformed(Value whole, const Ints& dims, bool back, const std::string& scale) {
  for (int64_t d : dims)
    whole = emit("fft", {whole}, {{"dim", d}, {"inverse", back}, {"norm", scale}});
  return whole;
}
Value of_real(const Value& x, int64_t dim, const std::string& scale) {
  return emit("rfft", {x}, {{"dim", dim}, {"norm", scale}});
}
Value to_real(const Value& whole, int64_t dim, const Dim& n, const std::string& scale) {
  return emit("irfft", {whole}, {{"n", n}, {"dim", dim}, {"norm", scale}});
}
Value with_size(const Value& x, int64_t dim, const Dim& n) {
  return pad_zeros(x, dim, 0, n - size_at(x.dims(), dim));
}
Value conjugate_whole(Call& c, const Value& whole) {
  const Pair z = c.importer().parts(whole);
  return c.importer().joined({z.re, -z.im});
}

// What a node transforms along: dimensions, with the sizes that it wants first, where it says any.
struct Axes {
  Ints dims;
  std::vector<std::optional<Dim>> sizes;
};

int rank_of(Call& c) { return static_cast<int>(c.meta().sizes.size()); }

Axes one_axis(Call& c) {
  if (rank_of(c) == 0) c.fail("a tensor without dimensions has no transform");
  Axes axes{{c.dim("dim", -1, rank_of(c))}, {std::nullopt}};
  if (c.given("n")) axes.sizes[0] = c.size("n");
  return axes;
}

// Of all dimensions, or of the last two.
Axes some_axes(Call& c, bool two) {
  const int rank = rank_of(c);
  Axes axes;
  Dims sizes;
  if (c.given("s")) sizes = c.sizes("s");
  if (c.given("dim")) {
    axes.dims = dims_of(c, "dim", rank);
  } else {
    const auto count = two ? 2 : c.given("s") ? static_cast<int64_t>(sizes.size()) : rank;
    if (count > rank) c.fail("a tensor of {} dimensions has no {} to transform", rank, count);
    for (int64_t k = 0; k < count; ++k) axes.dims.push_back(rank - count + k);
  }
  if (axes.dims.empty() || (c.given("s") && sizes.size() != axes.dims.size()))
    c.fail("it has {} dimensions to transform, and {} sizes", axes.dims.size(), sizes.size());
  axes.sizes.resize(axes.dims.size());
  for (size_t k = 0; k < sizes.size(); ++k)
    if (!(sizes[k] == Dim(-1))) axes.sizes[k] = sizes[k];
  return axes;
}

Axes axes_of(Call& c) {
  const std::string_view op = c.op();
  if (op.find("2.") != op.npos) return some_axes(c, true);
  return op.find("n.") != op.npos ? some_axes(c, false) : one_axis(c);
}

// The first dimensions of a complex value, or of a real one, in the sizes that are wanted.
Value fitted(Value x, const Axes& axes, size_t count) {
  for (size_t k = 0; k < count; ++k)
    if (axes.sizes[k]) x = with_size(x, axes.dims[k], *axes.sizes[k]);
  return x;
}

// fft_fft, fft_ifft2, …
template <bool back>
void complex_transform(Call& c) {
  const Axes axes = axes_of(c);
  const Value x = fitted(whole_of(c), axes, axes.dims.size());
  c.give(transformed(x, axes.dims, back, scale_by_name(c, back)));
}

// The last dimension makes complex numbers of real ones.
void real_transform(Call& c) {
  const Axes axes = axes_of(c);
  const std::string scale = scale_by_name(c, false);
  const Value x = fitted(cast(c.x(), c.result().dtype), axes, axes.dims.size());
  const Ints others(axes.dims.begin(), axes.dims.end() - 1);
  c.give(transformed(of_real(x, axes.dims.back(), scale), others, false, scale));
}

// The transform back of the last dimension comes last, and gives real numbers.
void to_real_by(Call& c, const Value& whole, bool back) {
  const Axes axes = axes_of(c);
  const std::string scale = scale_by_name(c, back);
  Value x = fitted(whole, axes, axes.dims.size() - 1);
  const Ints others(axes.dims.begin(), axes.dims.end() - 1);
  x = transformed(x, others, true, scale);
  const int64_t last = axes.dims.back();
  const Dim n = axes.sizes.back().value_or(2 * (size_at(x.dims(), last) - 1));
  c.give(to_real(x, last, n, scale));
}
void real_transform_back(Call& c) { to_real_by(c, whole_of(c), true); }

// Real spectra: the other way round, of conjugates.
void hermitian_transform(Call& c) { to_real_by(c, conjugate_whole(c, whole_of(c)), false); }
void hermitian_transform_back(Call& c) {
  const Axes axes = one_axis(c);
  const Value x = fitted(cast(c.x(), c.result().dtype), axes, 1);
  c.give(conjugate_whole(c, of_real(x, axes.dims[0], scale_by_name(c, true))));
}

// What the others are made of.

void complex_to_complex(Call& c) {
  const Ints dims = dims_of(c, "dim", rank_of(c));
  c.give(transformed(whole_of(c), dims, !c.flag("forward", true), scale_by_number(c)));
}

void real_to_complex(Call& c) {
  Ints dims = dims_of(c, "dim", rank_of(c));
  const std::string scale = scale_by_number(c);
  if (!c.flag("onesided", true)) return c.give(transformed(whole_of(c), dims, false, scale));
  if (dims.empty()) c.fail("it names no dimension");
  const int64_t last = dims.back();
  dims.pop_back();
  c.give(transformed(of_real(cast(c.x(), c.result().dtype), last, scale), dims, false, scale));
}

void complex_to_real(Call& c) {
  Ints dims = dims_of(c, "dim", rank_of(c));
  if (dims.empty()) c.fail("it names no dimension");
  const std::string scale = scale_by_number(c);
  const int64_t last = dims.back();
  dims.pop_back();
  const Value x = transformed(whole_of(c), dims, true, scale);
  c.give(to_real(x, last, c.size("last_dim_size"), scale));
}

// Windows of a signal, each transformed: [.., frequencies, frames].
void short_time_transform(Call& c) {
  if (c.flag("center", false)) c.fail("center is not supported; pad the signal before");
  const Dim size = c.size("n_fft");
  if (!size.is_constant() || size.value() < 1) c.fail("n_fft is {}", size.to_string());
  const int64_t step = c.integer("hop_length", size.value() / 4);
  const Dim length = c.size("win_length", size);
  if (step < 1) c.fail("hop_length is {}", step);
  if (!c.flag("return_complex", false)) c.fail("return_complex is wanted");
  if (c.is_complex("self") || c.is_complex("window"))
    c.fail("a complex signal or window is not supported");
  const DType dtype = c.result().dtype;
  const Value x = cast(c.x(), dtype);
  if (x.rank() == 0) c.fail("its signal has no dimensions");
  Value frames = emit("unfold", {x}, {{"dim", int64_t{-1}}, {"size", size}, {"step", step}});
  // A shorter window lies in the middle.
  const Dim left = floor_div(size - length, 2);
  Value window =
      c.given("window") ? cast(c.x("window"), dtype) : full(c.world(), {length}, 1, dtype);
  if (window.rank() != 1) c.fail("its window has {} dimensions, and not one", window.rank());
  if (!(length == size)) window = pad_zeros(window, 0, left, size - length - left);
  if (c.given("window") || !(length == size)) frames = frames * window;
  const std::string scale = c.flag("normalized", false) ? "root" : "none";
  const int last = frames.rank() - 1;
  Value y =
      c.flag("onesided", true)
          ? of_real(frames, last, scale)
          : transformed(c.importer().joined({frames, zeros_like(frames)}), {last}, false, scale);
  c.give(transpose(y, last, last - 1));
}

// Frames of numbers along the last dimension, added up where they lie `step` apart.
Value overlapped(const Value& frames, const Dim& length, int64_t step) {
  const int64_t dim = frames.rank() - 2;
  return emit("unfold_sum", {frames}, {{"length", length}, {"dim", dim}, {"step", step}});
}

// Frames [.., frequencies, frames] back to their signal: what overlaps is added up and divided by
// the windows' squares.
void short_time_transform_back(Call& c) {
  const Dim size = c.size("n_fft");
  if (!size.is_constant() || size.value() < 1) c.fail("n_fft is {}", size.to_string());
  const int64_t step = c.integer("hop_length", size.value() / 4);
  const Dim length = c.size("win_length", size);
  if (step < 1) c.fail("hop_length is {}", step);
  if (c.flag("return_complex", false) || c.is_complex("window"))
    c.fail("a complex signal or window is not supported");
  Value whole = whole_of(c);
  const int last = whole.rank() - 2;
  if (last < 1) c.fail("it has no frequencies and frames");
  whole = transpose(whole, last, last - 1);
  const Dim frames = size_at(whole.dims(), last - 1);
  const DType dtype = whole.dtype();
  const std::string scale = c.flag("normalized", false) ? "root" : "size";
  // Of all frequencies the first half counts.
  Value y = to_real(whole, last, size, scale);
  Value window =
      c.given("window") ? cast(c.x("window"), dtype) : full(c.world(), {length}, 1, dtype);
  if (window.rank() != 1) c.fail("its window has {} dimensions, and not one", window.rank());
  if (!(length == size)) {  // a shorter window lies in the middle
    const Dim left = floor_div(size - length, 2);
    window = pad_zeros(window, 0, left, size - length - left);
  }
  const Dim all = (frames - 1) * Dim(step) + size;
  Value signal = overlapped(y * window, all, step);
  Value squares = overlapped(expand(window * window, {frames, size}), all, step);
  const Dim start = c.flag("center", true) ? floor_div(size, 2) : Dim(0);
  const Dim given = c.given("length") ? c.size("length") : all - 2 * start;
  const Dim end = min(start + given, all);
  const int at = signal.rank() - 1;
  y = slice(signal, at, start, end) / slice(squares, 0, start, end);
  c.give(with_sizes(pad_zeros(y, at, 0, given - (end - start)), c.result().sizes));
}

// Of real tensors, too

// Rolled by half of each size.
template <bool back>
void shifted(Call& c) {
  Value x = c.x();
  const Ints dims = c.given("dim") ? dims_of(c, "dim", x.rank()) : Ints();
  for (int64_t d = 0; d < (c.given("dim") ? static_cast<int64_t>(dims.size()) : x.rank()); ++d) {
    const int64_t dim = c.given("dim") ? dims[static_cast<size_t>(d)] : d;
    const Dim n = size_at(x.dims(), dim), half = back ? floor_div(n, 2) : floor_div(n + 1, 2);
    x = cat(std::array{slice(x, dim, half, n), slice(x, dim, 0, half)}, dim);
  }
  c.give(x);
}

// The frequencies of a transform's numbers, in units of 1 / d.
template <bool half>
void frequencies(Call& c) {
  const Dim n = c.size("n");
  const DType dtype = c.result().dtype;
  const Value i = arange(c.world(), half ? floor_div(n, 2) + 1 : n);
  const Value count = Value::number(n);
  Value k = half ? i : where(lt(i * num(int64_t{2}), count), i, i - count);
  Value one = full(c.world(), {}, 1 / c.number("d", 1), DType::f64);
  c.give(cast(cast(k, DType::f64) * (one / n), dtype));
}

constexpr RuleEntry fourier_table[] = {
    {"fft_fftshift", shifted<false>},    {"fft_ifftshift", shifted<true>},
    {"fft_irfft", real_transform_back},  {"fft_irfft2", real_transform_back},
    {"fft_irfftn", real_transform_back}, {"fft_hfft", hermitian_transform},
    {"fft_fftfreq", frequencies<false>}, {"fft_rfftfreq", frequencies<true>},
};

constexpr RuleEntry complex_fourier_table[] = {
    {"_fft_c2c", complex_to_complex},        {"_fft_r2c", real_to_complex},
    {"_fft_c2r", complex_to_real},           {"fft_fft", complex_transform<false>},
    {"fft_fft2", complex_transform<false>},  {"fft_fftn", complex_transform<false>},
    {"fft_ifft", complex_transform<true>},   {"fft_ifft2", complex_transform<true>},
    {"fft_ifftn", complex_transform<true>},  {"fft_rfft", real_transform},
    {"fft_rfft2", real_transform},           {"fft_rfftn", real_transform},
    {"fft_irfft", real_transform_back},      {"fft_irfft2", real_transform_back},
    {"fft_irfftn", real_transform_back},     {"fft_hfft", hermitian_transform},
    {"fft_ihfft", hermitian_transform_back}, {"stft", short_time_transform},
    {"istft", short_time_transform_back},
};

}  // namespace

constinit const Rules fourier_rules = fourier_table;
constinit const Rules complex_fourier_rules = complex_fourier_table;

}  // namespace gradus::pt2
