#include "ops/creation.h"

#include <algorithm>
#include <cmath>

#include "gradus/convert.h"
#include "gradus/error.h"
#include "ops/bind_work.h"
#include "ops/number_literal.h"

namespace gradus::ops {

namespace {

DType default_dtype(Category c) {
  return c == Category::floating   ? DType::f32
         : c == Category::integral ? DType::i64
                                   : DType::boolean;
}

void check_size(const BindCall& call, int64_t n, std::string_view attribute) {
  if (n < 0) call.fail("'{}' is {}; a size cannot be negative", attribute, n);
}

}  // namespace

void Full::infer(InferCall& call, const Attr& a) {
  Category c = number_of(a.value, nullptr, name, "value").category;
  call.out.emplace_back(a.dtype.value_or(default_dtype(c)), a.shape);
}
void Full::bind(BindCall& call, const Attr& a) {
  for (int64_t n : call.out[0].shape) check_size(call, n, "shape");
  ir::Number value = number_of(a.value, &call.sizes, name, "value");
  work::Move c;
  c.fill(call.out[0].shape, work::pattern_of(value, call.out[0].dtype), result_window(call));
  call.set_work(std::move(c));
}

void FullLike::compose(ComposeCall& c, const Attr& a) {
  if (!c.x().is_tensor()) c.fail("operand 'x' must be a tensor");
  c.give(emit_all<Full>(
      c.world, {},
      {.shape = c.x().dims(), .value = a.value, .dtype = a.dtype.value_or(c.x().dtype())})[0]);
}

namespace {

// Every one of start, end and step an integer: counted exactly, and perhaps in symbols.
bool all_integral(const Arange::Attr& a) {
  for (auto [name, l] : {std::pair("start", &a.start), {"end", &a.end}, {"step", &a.step}})
    if (number_of(*l, nullptr, "arange", name).category == Category::floating) return false;
  return true;
}

Dim dim_in(const Literal& l) {
  if (const Dim* d = std::get_if<Dim>(&l.value)) return *d;
  return static_cast<int64_t>(std::get<bool>(l.value));
}

}  // namespace

void Arange::infer(InferCall& call, const Attr& a) {
  if (a.dtype == DType::boolean) call.fail("a range of bool makes no sense; choose another dtype");
  if (!all_integral(a)) {
    ir::Number s = number_of(a.start, nullptr, name, "start"),
               e = number_of(a.end, nullptr, name, "end"),
               st = number_of(a.step, nullptr, name, "step");
    for (const Literal* l : {&a.start, &a.end, &a.step})
      if (const Dim* d = std::get_if<Dim>(&l->value); d && !d->is_constant())
        call.fail("a symbolic bound ({}) goes with integers only; cast the result", d->to_string());
    double start = s.as_double(), end = e.as_double(), step = st.as_double();
    if (a.dtype && is_integral(*a.dtype)) {
      start = std::trunc(start);
      end = std::trunc(end);
      step = std::trunc(step);
    }
    if (!std::isfinite(start) || !std::isfinite(end) || !std::isfinite(step))
      call.fail("start, end and step must be finite");
    if (step == 0) call.fail("'step' must not be zero");
    double count = std::ceil((end - start) / step);
    if (count < 0)
      call.fail("'step' is {}, which does not lead from 'start' {} to 'end' {}", step, start, end);
    if (!(count < 9e15)) call.fail("the range from {} to {} by {} is too long", start, end, step);
    call.out.emplace_back(a.dtype.value_or(DType::f32), Dims{static_cast<int64_t>(count)});
    return;
  }
  Dim start = dim_in(a.start), end = dim_in(a.end), step = dim_in(a.step);
  if (!step.is_constant())
    call.fail("'step' must be known when compiling, not {}", step.to_string());
  if (step.value() == 0) call.fail("'step' must not be zero");
  bool up = step.value() > 0;
  Dim span = up ? end - start : start - end, by = up ? step : Dim(0) - step;
  if (span.is_constant() && span.value() < 0)
    call.fail("'step' is {}, which does not lead from 'start' {} to 'end' {}", step.value(),
              start.to_string(), end.to_string());
  // The count in an order that cannot overflow: (span - 1) // by + 1.
  Dim count = by == Dim(1) ? span : floor_div(span - 1, by) + 1;
  call.out.emplace_back(a.dtype.value_or(DType::i64), Dims{max(count, 0)});
}
void Arange::bind(BindCall& call, const Attr& a) {
  work::Range p{call.out[0].dtype, call.out[0].numel(), all_integral(a)};
  ir::Number start = number_of(a.start, &call.sizes, name, "start");
  ir::Number step = number_of(a.step, &call.sizes, name, "step");
  if (!p.integral && is_integral(p.dtype)) {
    p.integral = true;
    p.start = convert<int64_t>(start.as_double());
    p.step = convert<int64_t>(step.as_double());
  } else {
    p.start = start.integer;
    p.step = step.integer;
  }
  p.first = start.as_double();
  p.by = step.as_double();
  if (p.integral && is_floating(p.dtype)) p.integral = false;
  call.set_work(p);
}

void Linspace::infer(InferCall& call, const Attr& a) {
  if (a.steps.is_constant() && a.steps.value() < 0)
    call.fail("'steps' is {}; it must not be negative", a.steps.value());
  call.out.emplace_back(a.dtype, Dims{a.steps});
}
void Linspace::bind(BindCall& call, const Attr& a) {
  check_size(call, call.out[0].shape[0], "steps");
  call.set_work(work::Spacing{a.dtype, call.out[0].numel(), a.start, a.end});
}

void Eye::infer(InferCall& call, const Attr& a) {
  Dim m = a.m.value_or(a.n);
  for (auto [name, d] : {std::pair("n", a.n), {"m", m}})
    if (d.is_constant() && d.value() < 0)
      call.fail("'{}' is {}; a size is not negative", name, d.value());
  call.out.emplace_back(a.dtype, Dims{a.n, m});
}
void Eye::bind(BindCall& call) {
  int64_t n = call.out[0].shape[0], m = call.out[0].shape[1];
  check_size(call, n, "n");
  check_size(call, m, "m");
  DType dtype = call.out[0].dtype;
  work::Move c;
  c.fill(call.out[0].shape, work::pattern_of(ir::Number::of(int64_t{0}), dtype),
         result_window(call));
  work::Window diagonal = result_window(call);
  diagonal.strides = {m + 1};
  int64_t length = std::min(n, m);
  c.fill({&length, 1}, work::pattern_of(ir::Number::of(int64_t{1}), dtype), std::move(diagonal));
  call.set_work(std::move(c));
}

void OneHot::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (!is_integral(x.dtype)) call.fail("operand 'x' is {}; classes are integers", to_string(x));
  if (a.classes.is_constant() && a.classes.value() < 1)
    call.fail("'classes' is {}; write how many there are", a.classes.value());
  Dims dims = x.dims;
  dims.push_back(a.classes);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}
void OneHot::bind(BindCall& call) {
  check_size(call, call.out[0].shape.back(), "classes");
  call.set_work(work::OneHot{call.in[0], call.out[0].shape.back()});
}

void Cast::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(a.dtype, x.dims, x.device);
}
void Cast::bind(BindCall& call) {
  if (call.in[0].dtype == call.out[0].dtype)
    call.set_view(0, 0, call.in[0], 0);
  else
    bind_copy(call);
}

void Contiguous::bind(BindCall& call) {
  if (call.in[0].contiguous())
    call.set_view(0, 0, call.in[0], 0);
  else
    bind_copy(call);
}

std::span<const ir::Operator* const> creation_family() { return fold<CreationOperators>(); }

}  // namespace gradus::ops
