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

}  // namespace

void Fft::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("'x' is {}; it must have a floating dtype, cast it first", to_string(x));
  if (!scale_of(a.norm, 1))
    call.fail("'norm' is \"{}\"; it must be \"none\", \"root\" or \"size\"", a.norm);
  if (a.dim == x.rank() - 1)
    call.fail("'dim' is {}, the last dimension of 'x' {}, which has real and imaginary parts",
              a.dim, to_string(x));
  call.require_equal(
      x.dims.back(), 2,
      fmt::format("the last dimension of 'x' {}, which has real and imaginary parts,",
                  to_string(x.dims)));
  call.out.push_back(x);
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

void Rfft::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  Value parts = pad_zeros(unsqueeze(x, x.rank()), x.rank(), 0, 1);
  Value y = emit<Fft>({parts}, {.dim = a.dim, .norm = a.norm});
  c.give(slice(y, a.dim, 0, floor_div(x.dims()[static_cast<size_t>(a.dim)], 2) + 1));
}

// y[m] = scale * the real part of sum of w[k] x[k] exp(2 pi i k m / n), where w counts the numbers
// that have a mirror image twice.
void Irfft::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  const Dim given = x.dims()[static_cast<size_t>(a.dim)], n = a.n ? *a.n : 2 * (given - 1);
  if (n.is_constant() && n.value() < 1) c.fail("'n' is {}; it must be at least 1", n.value());
  const Dim used = floor_div(n, 2) + 1;
  Value first = given == used ? x : pad_zeros(x, a.dim, 0, used - given);
  Value number = arange(c.world, used);
  Value alone =
      logical_or(eq(number, num(int64_t{0})), eq(number * num(int64_t{2}), Value::number(n)));
  Value weights = where(alone, num(1.0), full(c.world, {used}, 2, x.dtype()));
  Dims across(static_cast<size_t>(x.rank() - a.dim), Dim(1));
  across[0] = used;
  Value all = pad_zeros(first * reshape(weights, across), a.dim, 0, n - used);
  c.give(select(emit<Fft>({all}, {.dim = a.dim, .inverse = true, .norm = a.norm}), -1, 0));
}

Family fourier_family() { return fold<FourierOperators>(); }

}  // namespace gradus::ops
