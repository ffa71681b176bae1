// Quantised numbers: y = (q - zero point) * scale, q of few bits. Products of them are exact.
#include "io/onnx/narrow.h"
#include "io/onnx/windows.h"

namespace gradus::onnx {

using namespace ops;

namespace {

struct QuantizedRange {
  double low, high;
};
QuantizedRange range_of_quantized(Call& c, DType dtype) {
  if (dtype == DType::u8) return {0, 255};
  if (dtype == DType::i8) return {-128, 127};
  if (dtype == DType::u16) return {0, 65535};
  if (dtype == DType::i16) return {-32768, 32767};
  c.unsupported("{} to {}", c.op(), name_of(dtype));
}

bool is_single(const Value& v) { return v.rank() == 0 || (v.rank() == 1 && v.dims()[0] == Dim(1)); }

// A scale or a zero point as it lies under x: one for all, one for each place along the axis, or
// one for each block of places along it.
Value spread_over(Call& c, const Value& v, const Dims& x) {
  const int rank = static_cast<int>(x.size());
  if (is_single(v)) return reshape(v, {});
  const int axis = c.axis(c.attribute("axis", int64_t{1}), rank);
  if (v.rank() == 1) return under(v, axis, rank);
  const int64_t block = c.attribute("block_size", int64_t{0});
  if (v.rank() != rank || block < 1)
    c.fail("its scales are of rank {}, x is of {}", v.rank(), rank);
  Value each = emit("repeat_interleave", {v}, {{"repeats", block}, {"dim", axis}});
  return slice(each, axis, 0, x[static_cast<size_t>(axis)]);
}

// round(x / scale) + zero point, kept within the range. `wide` is of values that are rounded.
Value quantized(const Value& ratio, const Value& zero_point, DType dtype, QuantizedRange range) {
  // Integers of 16-bit floats have gaps.
  Value wide = unary("round", size_of(ratio.dtype()) < 4 ? cast(ratio, DType::f32) : ratio);
  if (zero_point.defined()) wide = wide + cast(zero_point, wide.dtype());
  return cast(between(wide, num(range.low), num(range.high)), dtype);
}

Value quantized(Call& c, const Value& ratio, const Value& zero_point, DType dtype) {
  return quantized(ratio, zero_point, dtype, range_of_quantized(c, dtype));
}

// What numbers are quantised to: a dtype, which holds those of the narrow type if there is one.
struct QuantizedType {
  DType dtype = DType::u8;
  const NarrowType* narrow = nullptr;
  bool operator==(const QuantizedType&) const = default;
};

QuantizedType quantized_type(Call& c) {
  QuantizedType of_zero_point;
  if (c.given(2)) of_zero_point = {c.dtype(2), c.item(2)->narrow};
  const auto number = static_cast<int>(c.attribute("output_dtype", int64_t{0}));
  if (number == 0) return of_zero_point;
  const NarrowType* narrow = narrow_type(number);
  const QuantizedType said{narrow ? narrow->held : c.dtype("output_dtype", 0), narrow};
  if (c.given(2) && said != of_zero_point) c.fail("output_dtype is not that of its zero point");
  return said;
}

void quantize(Call& c) {
  Value x = c.x(), scale = c.x(1);
  Value zero_point = c.given(2) ? spread_over(c, c.x(2), x.dims()) : Value();
  const auto [dtype, narrow] = quantized_type(c);
  DType precision = scale.dtype();
  if (c.attribute("precision", int64_t{0}) != 0) precision = c.dtype("precision", 0);
  if (!is_floating(precision)) precision = DType::f32;
  scale = spread_over(c, cast(scale, precision), x.dims());
  Value ratio = cast(cast(x, precision) / scale, precision);
  if (!narrow) return c.give(quantized(c, ratio, zero_point, dtype));
  if (narrow->integral()) {
    Value y = quantized(ratio, zero_point, dtype, {narrow->least, narrow->most});
    return give_narrow(c, std::move(y), *narrow);
  }
  if (zero_point.defined()) ratio = ratio + cast(zero_point, precision);
  give_narrow(c, narrowed(ratio, *narrow, c.flag("saturate", true)), *narrow);
}

// What is subtracted and multiplied is exact in f32; the product is rounded to the result's dtype.
void dequantize(Call& c) {
  Value x = c.x(), scale = c.x(1);
  const bool says = c.attribute("output_dtype", int64_t{0}) != 0;
  const DType dtype = says ? c.dtype("output_dtype", 0) : scale.dtype();
  const DType wide = dtype == DType::f64 ? dtype : DType::f32;
  Value difference = cast(x, wide);
  if (c.given(2)) {
    if (c.dtype(2) != x.dtype() || c.item(2)->narrow != c.item(0)->narrow)
      c.fail("x and its zero point have different dtypes");
    difference = difference - cast(spread_over(c, c.x(2), x.dims()), wide);
  }
  c.give(cast(difference * spread_over(c, cast(scale, wide), x.dims()), dtype));
}

// The scale and the zero point for which 0 and all of x have a place in 0 .. 255.
void dynamic_quantize(Call& c) {
  Value x = c.x();
  auto extreme = [&](const char* reduce, const char* pick) {
    Ints all;
    for (int d = 0; d < x.rank(); ++d) all.push_back(d);
    Value y = all.empty() ? x : emit(reduce, {x}, {{"dim", Literal::list(all)}});
    return binary(pick, y, num(0.0));
  };
  Value low = extreme("amin", "minimum"), high = extreme("amax", "maximum");
  Value scale = (high - low) / 255.0;
  Value zero = cast(unary("round", between(0.0 - low / scale, num(0.0), num(255.0))), DType::u8);
  c.give(quantized(c, x / scale, zero, DType::u8));
  c.give(scale);
  c.give(zero);
}

// Input i less its zero point, as `dtype`. A list of zero points is of the rows or columns that
// dimension `axis` counts.
Value centred(Call& c, size_t i, size_t zero_point, int axis, DType dtype) {
  Value x = cast(c.x(i), dtype);
  if (!c.given(zero_point)) return x;
  Value z = cast(c.x(zero_point), dtype);
  if (is_single(z)) return x - reshape(z, {});
  return x - (z.rank() == 1 ? under(z, axis, x.rank()) : z);
}

// a and b less their zero points: a row of a has one, and a column of b.
Value product_of_integers(Call& c, size_t b, size_t a_zero, size_t b_zero) {
  // Sums of products of 9 bits are exact.
  Value x = centred(c, 0, a_zero, c.rank(0) - 2, DType::f64);
  Value y = centred(c, b, b_zero, c.rank(b) - 1, DType::f64);
  return matmul(x, y);
}

void matmul_integer(Call& c) {
  c.give(cast(cast(product_of_integers(c, 1, 2, 3), DType::i64), DType::i32));
}

// Scales of rows or columns, as they lie under a product of that rank.
Value scale_under(const Value& scale, int axis, int rank) {
  if (is_single(scale)) return reshape(scale, {});
  return scale.rank() == 1 ? under(scale, axis, rank) : scale;
}

// An exact product, of quantised numbers with these scales, as one with the scale and zero point of
// inputs `to` and the next.
void give_rescaled(Call& c, const Value& y, const Value& scale, size_t to) {
  const DType wide = DType::f32;
  Value ratio = cast(y, wide) * (scale / cast(scale_under(c.x(to), 1, y.rank()), wide));
  Value zero = c.given(to + 1) ? c.x(to + 1) : Value();
  const DType dtype = zero.defined() ? zero.dtype() : c.dtype(0);
  if (zero.defined() && is_single(zero)) zero = reshape(zero, {});
  c.give(quantized(c, ratio, zero, dtype));
}

void qlinear_matmul(Call& c) {
  Value y = product_of_integers(c, 3, 2, 5);
  Value a = cast(scale_under(c.x(1), y.rank() - 2, y.rank()), DType::f32);
  Value b = cast(scale_under(c.x(4), y.rank() - 1, y.rank()), DType::f32);
  give_rescaled(c, y, a * b, 6);
}

// Of x and w less their zero points. What lies around the image is the zero point.
Value convolution_of_integers(Call& c, size_t w_input, size_t x_zero, size_t w_zero) {
  Value x = centred(c, 0, x_zero, 0, DType::f64), w = centred(c, w_input, w_zero, 0, DType::f64);
  Window window = kernel_window_of(c, x.dims(), w.dims());
  return emit("convolution", {padded(x, window, 0), w},
              {{"stride", Literal::list(window.stride)},
               {"padding", Literal::list(Ints(window.kernel.size(), 0))},
               {"dilation", Literal::list(window.dilation)},
               {"groups", c.attribute("group", int64_t{1})}});
}

void conv_integer(Call& c) {
  c.give(cast(cast(convolution_of_integers(c, 1, 2, 3), DType::i64), DType::i32));
}

void qlinear_conv(Call& c) {
  Value y = convolution_of_integers(c, 3, 2, 5);
  // Its bias has the scale of the products.
  if (c.given(8)) y = y + under(cast(c.x(8), y.dtype()), 1, y.rank());
  Value w_scale = cast(scale_under(c.x(4), 1, y.rank()), DType::f32);
  give_rescaled(c, y, cast(reshape(c.x(1), {}), DType::f32) * w_scale, 6);
}

constexpr RuleEntry quantization_table[] = {
    {"QuantizeLinear", 10, quantize},
    {"DequantizeLinear", 10, dequantize},
    {"MatMulInteger", 10, matmul_integer},
    {"ConvInteger", 10, conv_integer},
    {"QLinearMatMul", 10, qlinear_matmul},
    {"QLinearConv", 10, qlinear_conv},
    {"DynamicQuantizeLinear", 11, dynamic_quantize},
};

}  // namespace

constinit const Rules quantization_rules = quantization_table;

}  // namespace gradus::onnx
