// Constants and other tensors out of nothing.
#include <cmath>

#include <onnx/onnx_pb.h>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"
#include "io/onnx/model.h"
#include "io/onnx/narrow.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// The narrow type of an attribute that is a tensor; null if it is of none.
const NarrowType* narrow_type_of(Call& c, std::string_view attribute) {
  return c.has(attribute) ? narrow_type(c.find(attribute)->t().data_type()) : nullptr;
}

// Of many elements it is a weight as an initializer is.
void constant(Call& c) {
  Tensor value;
  if (c.has("value"))
    value = c.tensor("value");
  else if (c.has("value_float"))
    value = Tensor::scalar(DType::f32, c.attribute("value_float", 0.0));
  else if (c.has("value_floats"))
    value = tensor_with(DType::f32, c.numbers("value_floats"));
  else if (auto list = c.integers("value_ints"))
    value = tensor_with(*list);
  else if (c.has("value_int"))
    value = tensor_with(c.attribute("value_int", int64_t{0}));
  else if (c.has("sparse_value"))
    c.unsupported("Constant of a sparse tensor");
  else if (c.has("value_string") || c.has("value_strings"))
    c.unsupported("dtype string");
  else
    c.fail("it has no value");
  ItemPtr item = Item::of(std::move(value));
  item->weight = is_floating(item->type.dtype) && item->known.numel() > 64;
  item->follows_weights = item->weight;
  item->narrow = narrow_type_of(c, "value");
  c.give(std::move(item));
}

// The first element, as a literal of its category.
Literal literal_of(const Tensor& t) {
  if (t.numel() != 1) throw Error("its value is {}; one element is wanted", describe(t));
  if (t.dtype() == DType::boolean) return t.item() != 0;
  return is_floating(t.dtype()) ? Literal(t.item()) : Literal(t.to_int64s()[0]);
}

void constant_of_shape(Call& c) {
  Tensor value = c.has("value") ? c.tensor("value") : Tensor::scalar(DType::f32, 0);
  Dims shape = c.sizes(0, "shape");
  c.give(emit_all(c.world(), "full", {},
                  {{"shape", Literal::list(shape)},
                   {"value", literal_of(value)},
                   {"dtype", value.dtype()}})[0]);
  c.results().back()->narrow = narrow_type_of(c, "value");
}

// Places beyond 2048 are no 16-bit floats: those are made of wider ones.
DType dtype_of_places(Call& c) {
  const DType dtype = c.dtype();
  return is_floating(dtype) && size_of(dtype) == 2 ? c.dtype("stash_type", 1) : dtype;
}

// As many as data say: (limit - start) / delta, rounded up.
void range_by_data(Call& c) {
  const DType dtype = c.dtype();
  const DType wide = is_floating(dtype) ? dtype_of_places(c) : DType::i64;
  auto number = [&](size_t i) { return cast(ops::reshape(c.x(i), {}), wide); };
  const Value start = number(0), limit = number(1), delta = number(2);
  Value n;
  if (is_floating(dtype)) {
    n = cast(ops::unary("ceil", (limit - start) / delta), DType::i64);
  } else {
    n = -ops::binary("floor_divide", start - limit, delta);
  }
  n = ops::binary("maximum", n, num(int64_t{0}));
  const Value i = emit_all(c.world(), "range", {&n, 1}, count_of(c))[0];
  c.give(cast(cast(i, wide) * delta + start, dtype));
}

void range(Call& c) {
  DType dtype = c.dtype();
  bool by_data = false;
  for (size_t i = 0; i < 3; ++i)
    by_data |= !c.importer().known(*c.item(i)).defined() && !c.item(i)->as_sizes();
  if (by_data) return range_by_data(c);
  if (!is_floating(dtype) && c.item(2)->as_sizes()) {
    Dims start = c.sizes(0, "start"), limit = c.sizes(1, "limit");
    int64_t delta = c.integer(2, "delta");
    if (delta == 0 || delta == INT64_MIN) c.fail("its delta is {}", delta);
    if (start.size() != 1 || limit.size() != 1) c.fail("its start or limit is no number");
    Dim span = delta > 0 ? limit[0] - start[0] : start[0] - limit[0];
    int64_t step = delta > 0 ? delta : -delta;
    Dim n = max(floor_div(span + Dim(step - 1), step), 0);
    Value y = arange(c.world(), n) * Value::number(delta) + Value::number(start[0]);
    return c.give(cast(y, dtype));
  }
  double start = c.number(0, "start"), limit = c.number(1, "limit"), delta = c.number(2, "delta");
  double n = std::ceil((limit - start) / delta);
  if (!(std::abs(n) < 1e15)) c.fail("it would have {} elements", n);
  const DType wide = dtype_of_places(c);
  Value i = cast(arange(c.world(), static_cast<int64_t>(std::max(n, 0.0))), wide);
  c.give(cast(i * delta + start, dtype));
}

void eye_like(Call& c) {
  if (c.rank() != 2) c.fail("it wants a matrix");
  DType dtype = c.has("dtype") ? c.dtype("dtype", 1) : c.dtype();
  const Dims& dims = c.type().dims;
  Value row =
      unsqueeze(arange(c.world(), dims[0]), 1) + Value::number(c.attribute("k", int64_t{0}));
  c.give(cast(eq(row, unsqueeze(arange(c.world(), dims[1]), 0)), dtype));
}

void random(Call& c) { c.unsupported("random numbers ({})", c.op()); }

constexpr RuleEntry creation_table[] = {
    {"Constant", 1, constant, {}, false},
    {"ConstantOfShape", 9, constant_of_shape},
    {"Range", 11, range},
    {"EyeLike", 9, eye_like},
    {"RandomNormal", 1, random, {}, false},
    {"RandomNormalLike", 1, random, {}, false},
    {"RandomUniform", 1, random, {}, false},
    {"RandomUniformLike", 1, random, {}, false},
    {"Bernoulli", 15, random, {}, false},
    {"Multinomial", 7, random, {}, false},
};

}  // namespace

constinit const Rules creation_rules = creation_table;

}  // namespace gradus::onnx
