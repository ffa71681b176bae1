#include "ops/creation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/copies.h"
#include "ops/device_form.h"
#include "ops/tiles.h"
#include "tensor/convert.h"

namespace gradus::ops {

namespace {

void same_type(InferCall& call) { call.out.push_back(call.tensor(0)); }

DType default_dtype(Category c) {
  return c == Category::floating   ? DType::f32
         : c == Category::integral ? DType::i64
                                   : DType::boolean;
}

void check_size(const BindCall& call, int64_t n, std::string_view attribute) {
  if (n < 0) call.fail("'{}' is {}; a size cannot be negative", attribute, n);
}

}  // namespace

void Full::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  Category c = number_of(a.value, nullptr, name, "value").category;
  call.out.emplace_back(a.dtype.value_or(default_dtype(c)), a.shape);
}
void Full::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  for (int64_t n : call.out[0].shape) check_size(call, n, "shape");
  ir::Number value = number_of(a.value, &call.sizes, name, "value");
  Copies c;
  c.fill(call.out[0].shape, pattern_of(value, call.out[0].dtype), result_window(call));
  Copies::bind(call, std::move(c));
}

void FullLike::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  if (!c.x().is_tensor()) c.fail("operand 'x' must be a tensor");
  c.give(emit_all(c.world, "full", {},
                  {{"shape", Literal::list(c.x().dims()), {}},
                   {"value", a.value, {}},
                   {"dtype", a.dtype.value_or(c.x().dtype()), {}}})[0]);
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

struct ArangePlan {
  DType dtype;
  int64_t count;
  bool integral;
  int64_t start, step;
  double first, by;
};

void run_arange(const void* parameters, std::byte* const* args, KernelScope&) {
  const ArangePlan& p = *static_cast<const ArangePlan*>(parameters);
  visit_dtype(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(args[0]);
    for (int64_t i = 0; i < p.count; ++i) {
      if (p.integral)  // the caller's own numbers may wrap only past the last element
        out[i] = convert<T>(
            static_cast<int64_t>(static_cast<uint64_t>(p.start) +
                                 static_cast<uint64_t>(i) * static_cast<uint64_t>(p.step)));
      else
        out[i] = convert<T>(p.first + static_cast<double>(i) * p.by);
    }
  });
}

}  // namespace

std::optional<DeviceForm> form_of_range(ir::KernelFunction run, const void* parameters) {
  if (run != run_arange) return std::nullopt;
  const auto& p = *static_cast<const ArangePlan*>(parameters);
  return DeviceForm{DeviceRange{p.dtype, p.count, p.integral, p.start, p.step, p.first, p.by}};
}

void Arange::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
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
void Arange::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  ArangePlan p{call.out[0].dtype, call.out[0].numel(), all_integral(a), 0, 0, 0, 0};
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
  call.set_kernel(run_arange, p);
}

namespace {

struct LinspacePlan {
  DType dtype;
  int64_t count;
  double start, end;
};

// From both ends towards the middle, as ATen does; f64 in f64, 32- and 16-bit floats in f32,
// integers by an f64 step.
void run_linspace(const void* parameters, std::byte* const* args, KernelScope&) {
  const LinspacePlan& p = *static_cast<const LinspacePlan*>(parameters);
  visit_dtype(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<T, double> || std::is_integral_v<T>, double, float>;
    T* out = reinterpret_cast<T*>(args[0]);
    C start = static_cast<C>(p.start), end = static_cast<C>(p.end);
    C step = p.count > 1 ? (end - start) / static_cast<C>(p.count - 1) : C(0);
    for (int64_t i = 0; i < p.count; ++i)
      out[i] = convert<T>(i < p.count / 2 || p.count == 1
                              ? start + step * static_cast<C>(i)
                              : end - step * static_cast<C>(p.count - 1 - i));
  });
}

}  // namespace

void Linspace::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  if (a.steps.is_constant() && a.steps.value() < 0)
    call.fail("'steps' is {}; it must not be negative", a.steps.value());
  call.out.emplace_back(a.dtype, Dims{a.steps});
}
void Linspace::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  check_size(call, call.out[0].shape[0], "steps");
  call.set_kernel(run_linspace, LinspacePlan{a.dtype, call.out[0].numel(), a.start, a.end});
}

void Eye::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
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
  Copies c;
  c.fill(call.out[0].shape, pattern_of(ir::Number::of(int64_t{0}), dtype), result_window(call));
  Window diagonal = result_window(call);
  diagonal.strides = {m + 1};
  int64_t length = std::min(n, m);
  c.fill({&length, 1}, pattern_of(ir::Number::of(int64_t{1}), dtype), std::move(diagonal));
  Copies::bind(call, std::move(c));
}

namespace {

struct OneHotPlan {
  Layout index;
  int64_t classes;
};

void run_one_hot(const void* parameters, std::byte* const* args, KernelScope&) {
  const OneHotPlan& p = *static_cast<const OneHotPlan*>(parameters);
  int64_t* out = reinterpret_cast<int64_t*>(args[1]);
  int64_t n = p.index.numel();
  std::memset(out, 0, static_cast<size_t>(n * p.classes) * sizeof(int64_t));
  Walk<1> walk(p.index.shape, {p.index.strides}, 0);
  for (int64_t i = 0; i < n; ++i, walk.next()) {
    int64_t c = 0;
    convert_row(p.index.dtype,
                args[0] + walk.offset(0) * static_cast<int64_t>(size_of(p.index.dtype)), 0,
                DType::i64, reinterpret_cast<std::byte*>(&c), 1, 1);
    if (c < 0 || c >= p.classes)
      throw Error("one_hot: operand 'x' holds the class {}, outside of 0 .. {}", c, p.classes - 1);
    out[i * p.classes + c] = 1;
  }
}

}  // namespace

void OneHot::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  const Attr& a = attributes_as<Attr>(call.attributes);
  if (!is_integral(x.dtype)) call.fail("operand 'x' is {}; classes are integers", to_string(x));
  if (a.classes.is_constant() && a.classes.value() < 1)
    call.fail("'classes' is {}; write how many there are", a.classes.value());
  Dims dims = x.dims;
  dims.push_back(a.classes);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}
void OneHot::bind(BindCall& call) {
  check_size(call, call.out[0].shape.back(), "classes");
  call.set_kernel(run_one_hot, OneHotPlan{call.in[0], call.out[0].shape.back()});
}

void Cast::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(attributes_as<Attr>(call.attributes).dtype, x.dims, x.device);
}
void Cast::bind(BindCall& call) {
  if (call.in[0].dtype == call.out[0].dtype)
    call.set_view(0, 0, call.in[0], 0);
  else
    bind_copy(call);
}

void Clone::infer(InferCall& call) { same_type(call); }
void Clone::bind(BindCall& call) { bind_copy(call); }

void Contiguous::infer(InferCall& call) { same_type(call); }
void Contiguous::bind(BindCall& call) {
  if (call.in[0].contiguous())
    call.set_view(0, 0, call.in[0], 0);
  else
    bind_copy(call);
}

void Detach::infer(InferCall& call) { same_type(call); }
void Detach::bind(BindCall& call) { call.set_view(0, 0, call.in[0], 0); }

std::span<const ir::Operator* const> creation_family() { return fold<CreationOperators>(); }

}  // namespace gradus::ops
