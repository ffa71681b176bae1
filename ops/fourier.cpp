#include "ops/fourier.h"

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/families.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

std::optional<double> scale_of(std::string_view norm, int64_t n) {
  const auto size = static_cast<double>(n);
  if (norm == "none") return 1;
  if (norm == "root") return 1 / std::sqrt(size);
  if (norm == "size") return 1 / size;
  return std::nullopt;
}

const Type& transformed(InferCall& call, std::string_view norm) {
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("'x' is {}; it must have a floating dtype, cast it first", to_string(x));
  if (!scale_of(norm, 1))
    call.fail("'norm' is \"{}\"; it must be \"none\", \"root\" or \"size\"", norm);
  return x;
}
const Type& transformed_parts(InferCall& call, std::string_view norm, int64_t dim) {
  const Type& x = transformed(call, norm);
  if (dim == x.rank() - 1)
    call.fail("'dim' is {}, the last dimension of 'x' {}, which has real and imaginary parts", dim,
              to_string(x));
  call.require_equal(
      x.dims.back(), 2,
      fmt::format("the last dimension of 'x' {}, which has real and imaginary parts,",
                  to_string(x.dims)));
  return x;
}

Dim half_of(const Dim& n) { return floor_div(n, 2) + 1; }

}  // namespace

void Fft::infer(InferCall& call, const Attr& a) {
  call.out.push_back(transformed_parts(call, a.norm, a.dim));
}
void Fft::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  const int64_t n = x.shape[static_cast<size_t>(a.dim)];
  const double scale = n == 0 ? 1 : *scale_of(a.norm, n);
  call.set_work(work::Fourier{x, static_cast<int>(a.dim), a.inverse, scale});
}
// The matrix of the transform is symmetric, so that its adjoint is its conjugate.
Value Fft::dx(VjpCall& d, const Attr& a) {
  return emit<Fft>({d.dy()}, {.dim = a.dim, .inverse = !a.inverse, .norm = a.norm});
}

void RealFft::infer(InferCall& call, const Attr& a) {
  const Type& x = transformed(call, a.norm);
  if (x.rank() == 0) call.fail("'x' is {}; it must have a dimension", to_string(x));
  Dims dims = x.dims;
  Dim& n = dims[static_cast<size_t>(a.dim)];
  if (n == Dim(0)) call.fail("'x' is {}; there are no numbers along 'dim'", to_string(x));
  n = half_of(n);
  dims.push_back(2);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void RealFft::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  const int64_t n = x.shape[static_cast<size_t>(a.dim)];
  if (n == 0) call.fail("'x' is {}; there are no numbers along 'dim'", to_string(x.shape));
  work::Fourier w{x, static_cast<int>(a.dim), false, *scale_of(a.norm, n)};
  w.of_real = true;
  call.set_work(std::move(w));
}
Value RealFft::dx(VjpCall& d, const Attr& a) {
  const Dim n = d.x_type().dims[static_cast<size_t>(a.dim)];
  return emit<RealIfft>({d.dy()}, {.n = n, .dim = a.dim, .norm = a.norm});
}

void RealIfft::infer(InferCall& call, const Attr& a) {
  const Type& x = transformed_parts(call, a.norm, a.dim);
  if (a.n.is_constant() && a.n.value() < 1)
    call.fail("'n' is {}; it must be at least 1", a.n.value());
  Dims dims = x.dims;
  dims.pop_back();
  Dim& numbers = dims[static_cast<size_t>(a.dim)];
  call.require_equal(
      numbers, half_of(a.n),
      fmt::format("the size of 'x' {} along 'dim', which is n // 2 + 1,", to_string(x.dims)));
  numbers = a.n;
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void RealIfft::bind(BindCall& call, const Attr& a) {
  const int64_t n = call.out[0].shape[static_cast<size_t>(a.dim)];
  if (n < 1) call.fail("'n' is {}; it must be at least 1", n);
  work::Fourier w{call.in[0], static_cast<int>(a.dim), true, *scale_of(a.norm, n)};
  w.real_size = n;
  call.set_work(std::move(w));
}
Value RealIfft::dx(VjpCall& d, const Attr& a) {
  return emit<RealFft>({d.dy()}, {.dim = a.dim, .norm = a.norm});
}

void Rfft::compose(ComposeCall& c, const Attr& a) {
  c.give(emit<RealFft>({floating_operand(c, 0)}, {.dim = a.dim, .norm = a.norm}));
}

// y[m] = scale * the real part of sum of w[k] x[k] exp(2 pi i k m / n), where w counts the numbers
// that have a mirror image twice.
void Irfft::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  const Dim given = x.dims()[static_cast<size_t>(a.dim)], n = a.n ? *a.n : 2 * (given - 1);
  if (n.is_constant() && n.value() < 1) c.fail("'n' is {}; it must be at least 1", n.value());
  const Dim used = half_of(n);
  Value first = given == used ? x : pad_zeros(x, a.dim, 0, used - given);
  Value number = arange(c.world, used);
  Value alone =
      logical_or(eq(number, num(int64_t{0})), eq(number * num(int64_t{2}), Value::number(n)));
  Value weights = where(alone, num(1.0), full(c.world, {used}, 2, x.dtype()));
  Dims across(static_cast<size_t>(x.rank() - a.dim), Dim(1));
  across[0] = used;
  c.give(
      emit<RealIfft>({first * reshape(weights, across)}, {.n = n, .dim = a.dim, .norm = a.norm}));
}

Family fourier_family() { return fold<FourierOperators>(); }

}  // namespace gradus::ops
