// New tensors: constants, ranges, and what is made like another tensor.
#include <algorithm>

#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// The type of the result is the archive's: the default dtype was that of when it was traced.
const TensorMeta& made(Call& c) { return c.result(); }

// All elements one number, which may be a size, or a tensor without dimensions.
Value filled(Call& c, const Dims& sizes, const Value& value, DType dtype) {
  const ir::Number* n = std::get_if<ir::Number>(&value.operand);
  if (value.is_tensor()) return expand(cast(value, dtype), sizes);
  if (!n) return cast(full(c.world(), sizes, 0, DType::i64) + value, dtype);
  Literal literal = n->category == Category::floating ? Literal(n->floating) : Literal(n->integer);
  if (dtype == DType::boolean) literal = n->as_double() != 0;
  return emit_all(c.world(), "full", {},
                  {{"shape", Literal::list(sizes)}, {"value", literal}, {"dtype", dtype}})[0];
}

template <int value>
void all_of(Call& c) {
  c.give(filled(c, made(c).sizes, num(int64_t{value}), made(c).dtype));
}

void full_of(Call& c) { c.give(filled(c, made(c).sizes, c.x("fill_value"), made(c).dtype)); }
void scalar(Call& c) { c.give(filled(c, {}, c.x("s"), made(c).dtype)); }

// What is written to an operand whose old values do not matter.
void fill(Call& c) {
  const ir::Type type = c.x().type;
  c.give(filled(c, type.dims, c.x("value"), type.dtype));
}
void zero(Call& c) {
  const ir::Type type = c.x().type;
  c.give(filled(c, type.dims, num(int64_t{0}), type.dtype));
}

bool is_whole(const Value& v) {
  const ir::Number* n = std::get_if<ir::Number>(&v.operand);
  return !n || n->category != Category::floating;
}

// start + i * step. Bounds that have names are integers to the operator; next to a step with a
// fraction, the archive says how many there are.
void arange_of(Call& c) {
  Value start = c.given("start") ? c.x("start") : num(int64_t{0});
  Value end = c.x("end"), step = c.given("step") ? c.x("step") : num(int64_t{1});
  const DType dtype = made(c).dtype;
  const bool named =
      std::holds_alternative<Dim>(start.operand) || std::holds_alternative<Dim>(end.operand);
  if (!named || (is_whole(start) && is_whole(end) && is_whole(step))) {
    Value y = emit_all(c.world(), "arange", {},
                       {{"start", as_literal(start)},
                        {"end", as_literal(end)},
                        {"step", as_literal(step)},
                        {"dtype", dtype}})[0];
    return c.give(with_sizes(y, made(c).sizes));
  }
  if (made(c).sizes.size() != 1) c.fail("a range has one dimension");
  Value i = cast(arange(c.world(), made(c).sizes[0]), DType::f64);
  c.give(cast(i * step + start, dtype));
}

// Between numbers, or tensors, through which no derivative passes in ATen.
Value spaced(Call& c, DType dtype) {
  if (!c.is_tensor("start") && !c.is_tensor("end"))
    return emit_all(c.world(), "linspace", {},
                    {{"start", c.number("start")},
                     {"end", c.number("end")},
                     {"steps", c.size("steps")},
                     {"dtype", dtype}})[0];
  auto bound = [&](std::string_view name) {
    Value v = c.x(name);
    if (v.is_number()) return number_tensor(c, v, DType::f64);
    return detach(cast(reshape(v, {}), DType::f64));
  };
  Value start = bound("start"), end = bound("end");
  return cast(evenly_spaced(start, end, c.integer("steps")), dtype);
}
void linspace(Call& c) { c.give(spaced(c, made(c).dtype)); }
void logspace(Call& c) {
  Value exponents = spaced(c, DType::f64);
  c.give(cast(binary("pow", num(c.number("base", 10)), exponents), made(c).dtype));
}

void identity_matrix(Call& c) {
  LiteralList attributes{{"n", c.size("n")}, {"dtype", made(c).dtype}};
  if (c.given("m")) attributes.push_back({"m", c.size("m")});
  c.give(emit_all(c.world(), "eye", {}, attributes)[0]);
}

// The places of a matrix on one side of a diagonal, row by row.
void triangle_places(Call& c) {
  const int64_t rows = c.integer("row"), columns = c.integer("col"), given = c.integer("offset", 0);
  constexpr int64_t most = 1 << 20;
  const int64_t offset = std::clamp(given, -most, most);  // all or nothing beyond
  if (rows < 0 || columns < 0 || rows > most || columns > most || rows * columns > most)
    c.fail("a matrix of {} by {} is not supported", rows, columns);
  std::vector<int64_t> i, j;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < columns; ++k)
      if (c.ours() == "tril" ? k <= r + offset : k >= r + offset) {
        i.push_back(r);
        j.push_back(k);
      }
  Tensor places = Tensor::empty(DType::i64, Sizes{2, static_cast<int64_t>(i.size())});
  auto* out = places.mutable_data_as<int64_t>();
  std::ranges::copy(i, out);
  std::ranges::copy(j, out + i.size());
  Value y = emit_all(c.world(), "constant", {}, {{"value", places}})[0];
  c.give(cast(y, made(c).dtype));
}

void one_hot(Call& c) {
  const int64_t classes = c.integer("num_classes", -1);
  if (classes < 0) c.fail("the number of classes (num_classes) has to be given");
  c.give(emit("one_hot", {c.x()}, {{"classes", classes}}));
}

void lifted(Call& c) { c.give(c.x()); }

constexpr RuleEntry creation_table[] = {
    {"zeros", all_of<0>},
    {"zeros_like", all_of<0>},
    {"new_zeros", all_of<0>},
    {"ones", all_of<1>},
    {"ones_like", all_of<1>},
    {"new_ones", all_of<1>},
    {"isreal", all_of<1>},
    {"empty", all_of<0>},
    {"empty_like", all_of<0>},
    {"empty_strided", all_of<0>},
    {"empty_permuted", all_of<0>},
    {"new_empty", all_of<0>},
    {"new_empty_strided", all_of<0>},
    {"full", full_of},
    {"full_like", full_of},
    {"new_full", full_of},
    {"scalar_tensor", scalar},
    {"fill", fill},
    {"zero", zero},
    {"arange", arange_of},
    {"linspace", linspace},
    {"logspace", logspace},
    {"eye", identity_matrix},
    {"tril_indices", triangle_places, "tril"},
    {"triu_indices", triangle_places, "triu"},
    {"one_hot", one_hot},
    {"lift", lifted},
    {"lift_fresh", lifted},
    {"lift_fresh_copy", lifted},
};

}  // namespace

constinit const Rules creation_rules = creation_table;

}  // namespace gradus::pt2
