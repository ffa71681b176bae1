#include "ops/scan.h"

#include <cmath>

#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

namespace {

void infer_scan(InferCall& call) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(is_floating(x.dtype) ? x.dtype : DType::i64, x.dims, x.device);
}

Value recurrence(const Value& a, const Value& b, int64_t dim, bool reverse) {
  return emit<LinearRecurrence>({a, b}, {.dim = dim, .reverse = reverse});
}
Value recurrence(const Value& a, const Value& b, const Value& cut, int64_t dim, bool reverse) {
  return emit<LinearRecurrence>({a, b, cut}, {.dim = dim, .reverse = reverse});
}

void bind_scan(BindCall& call, work::ScanStep next, int64_t dim, bool exclusive, bool reverse) {
  call.set_work(work::Scan{next, exclusive, reverse, static_cast<int>(dim),
                           SmallVector<Layout, 2>(call.in), call.out[0].dtype});
}

}  // namespace

void CumSum::infer(InferCall& call) { infer_scan(call); }
void CumSum::bind(BindCall& call, const Attr& a) {
  bind_scan(call, work::ScanStep::sum, a.dim, a.exclusive, a.reverse);
}
Value CumSum::dx(VjpCall& d, const Attr& a) {
  return emit<CumSum>({d.dy()}, {.dim = a.dim, .exclusive = a.exclusive, .reverse = !a.reverse});
}

void CumProd::infer(InferCall& call) { infer_scan(call); }
void CumProd::bind(BindCall& call, const Attr& a) {
  bind_scan(call, work::ScanStep::prod, a.dim, a.exclusive, a.reverse);
}
// With l[j] the product of all before j: y[i] = l[j] * x[j] * (the product between j and i) for
// i > j, so dx[j] = l[j] * (dy[j] + s[j]), s[j] = sum over i > j of dy[i] times x[i] times the
// product between, which is the recurrence of x and x * dy run the other way round.
Value CumProd::dx(VjpCall& d, const Attr& a) {
  Value x = d.x(), dy = d.dy();
  if (a.exclusive) {
    Value s = recurrence(x, dy, a.dim, !a.reverse);
    return d.y() * s;
  }
  Value before = emit<CumProd>({x}, {.dim = a.dim, .exclusive = true, .reverse = a.reverse});
  Value weighted = x * dy;
  Value s = recurrence(x, weighted, a.dim, !a.reverse);
  Value sum = dy + s;
  return before * sum;
}

void LinearRecurrence::infer(InferCall& call) {
  const Type &a = call.tensor(0), &b = call.tensor(1);
  const bool counts = is_floating(a.dtype) || a.dtype == DType::i64;
  if (a.dtype != b.dtype || !counts || a.rank() != b.rank() || a.device != b.device)
    call.fail("'a' is {} and 'b' is {}; both must be floating and of one type", to_string(a),
              to_string(b));
  for (size_t d = 0; d < a.dims.size(); ++d)
    call.require_equal(a.dims[d], b.dims[d], fmt::format("dimension {} of 'a' and 'b'", d));
  if (call.given(2)) {
    const Type& cut = call.tensor(2);
    if (cut.dtype != DType::boolean || cut.rank() != a.rank() || cut.device != a.device)
      call.fail("'cut' is {}; it must be bool, of the shape of 'a', which is {}", to_string(cut),
                to_string(a));
    for (size_t d = 0; d < a.dims.size(); ++d)
      call.require_equal(a.dims[d], cut.dims[d], fmt::format("dimension {} of 'a' and 'cut'", d));
  }
  infer_scan(call);
}
void LinearRecurrence::bind(BindCall& call, const Attr& a) {
  const bool cut = call.in.size() > 2 && call.present[2];
  const size_t operands = cut ? 3 : 2;
  call.set_work(work::Scan{cut ? work::ScanStep::cut_recurrence : work::ScanStep::recurrence, true,
                           a.reverse, static_cast<int>(a.dim),
                           SmallVector<Layout, 2>(call.in.begin(), call.in.begin() + operands),
                           call.out[0].dtype});
}
void LinearRecurrence::vjp(VjpCall& d, const Attr& a) {
  if (!d.wants(0) && !d.wants(1)) return;
  const bool cut = d.given(2);
  Value u = cut ? recurrence(d.x(0), d.dy(), d.x(2), a.dim, !a.reverse)
                : recurrence(d.x(0), d.dy(), a.dim, !a.reverse);
  d.give(0, [&] {
    if (!cut) return u * d.y();
    Value carried = where(d.x(2), num(0.0), d.y());  // NaN that is not carried on has no say
    return u * carried;
  });
  d.give(1, [&] { return u; });
}

void LogCumSumExp::infer(InferCall& call) {
  if (!call.tensor(0).is_floating())
    call.fail("'x' is {}; it must be floating, cast it", to_string(call.tensor(0)));
  infer_scan(call);
}
void LogCumSumExp::bind(BindCall& call, const Attr& a) {
  bind_scan(call, work::ScanStep::log_sum_exp, a.dim, false, false);
}
// dx[j] = sum over i >= j of dy[i] exp(x[j] - y[i]). The ratios exp(y[i-1] - y[i]), which lie in
// [0, 1], carry the sum from one element to the next.
Value LogCumSumExp::dx(VjpCall& d, const Attr& a) {
  Value nothing_yet = eq(d.y(), num(-INFINITY));
  Value y = where(nothing_yet, num(0.0), d.y());
  Value rise = d.x() - y;
  Value share = emit<Exp>(rise);
  // What comes before an infinite x has no part in what comes after.
  Value infinite = eq(d.x(), num(INFINITY));
  Value ratio = where(infinite, num(0.0), -emit<Expm1>(rise));
  Value weighted = ratio * d.dy();
  Value later = recurrence(ratio, weighted, a.dim, true);
  Value sum = d.dy() + later;
  return share * sum;
}

void CumMax::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(x.dtype, x.dims, x.device);
  call.out.emplace_back(DType::i64, x.dims, x.device);
}
void CumMax::bind(BindCall& call, const Attr& a) {
  call.set_work(work::RunningMax{call.in[0], static_cast<int>(a.dim)});
}
Value CumMax::dx(VjpCall& d, const Attr& a) { return given_back(d, a.dim); }

Family scan_family() { return fold<ScanOperators>(); }

}  // namespace gradus::ops
