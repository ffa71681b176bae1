// Arithmetic on sizes that have names.
#include <algorithm>

#include <onnx/onnx_pb.h>

#include "io/onnx/call.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

// Apart from the rules of the same operators over values.
namespace size_rules {

namespace {

bool scalar(Call& c, size_t i) { return c.rank(i) == 0; }

// Both operands' elements, one that has a single element as often as the other has.
struct Pair {
  Dims a, b;
  bool scalar;
};
std::optional<Pair> pair_of(Call& c, size_t first = 0) {
  auto a = c.item(first)->as_sizes(), b = c.item(first + 1)->as_sizes();
  if (!a || !b) return std::nullopt;
  size_t n = a->size() == 1 ? b->size() : a->size();
  if ((a->size() != n && a->size() != 1) || (b->size() != n && b->size() != 1)) return std::nullopt;
  Pair p{{}, {}, scalar(c, first) && scalar(c, first + 1)};
  for (size_t i = 0; i < n; ++i) {
    p.a.push_back((*a)[a->size() == 1 ? 0 : i]);
    p.b.push_back((*b)[b->size() == 1 ? 0 : i]);
  }
  return p;
}

// `cuts`: whether Mod has the sign of the dividend, as Div, which cuts off.
std::optional<Dim> combined(std::string_view op, bool cuts, const Dim& a, const Dim& b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Max") return max(a, b);
  if (op == "Min") return min(a, b);
  if (!b.known_nonnegative() || b == Dim(0)) return std::nullopt;
  // Sizes round down: the same as cutting off where nothing is negative, or nothing is left over.
  Dim quotient = floor_div(a, b);
  if (op == "Div" && (a.known_nonnegative() || quotient * b == a)) return quotient;
  if (op == "Mod" && (a.known_nonnegative() || !cuts)) return a - quotient * b;
  return std::nullopt;
}

ItemPtr arithmetic(Call& c) {
  if (c.inputs() != 2) return nullptr;
  auto p = pair_of(c);
  if (!p) return nullptr;
  Dims out;
  bool cuts = c.flag("fmod");
  for (size_t i = 0; i < p->a.size(); ++i) {
    auto d = combined(c.op(), cuts, p->a[i], p->b[i]);
    if (!d) return nullptr;
    out.push_back(std::move(*d));
  }
  return Item::of_sizes(std::move(out), p->scalar);
}

// Whether two sizes are equal, where that can be said: a size is not negative.
std::optional<bool> equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (a.constant() && b.constant()) return false;
  auto negative = [](const Dim& d) { return d.constant() && *d.constant() < 0; };
  if ((negative(a) && b.known_nonnegative()) || (negative(b) && a.known_nonnegative()))
    return false;
  return std::nullopt;
}

ItemPtr equality(Call& c) {
  auto p = pair_of(c);
  if (!p) return nullptr;
  Sizes shape;
  if (!p->scalar) shape.push_back(static_cast<int64_t>(p->a.size()));
  Tensor t = Tensor::empty(DType::boolean, shape);
  bool* out = t.mutable_data_as<bool>();
  for (size_t i = 0; i < p->a.size(); ++i) {
    auto same = equal(p->a[i], p->b[i]);
    if (!same) return nullptr;
    out[i] = *same;
  }
  return Item::of(std::move(t));
}

ItemPtr choice(Call& c) {
  if (!c.is_known(0)) return nullptr;
  std::vector<double> cond = c.known(0, "condition").to_doubles();
  auto p = pair_of(c, 1);
  if (!p) return nullptr;
  size_t n = std::max(cond.size(), p->a.size());
  if ((cond.size() != n && cond.size() != 1) || (p->a.size() != n && p->a.size() != 1))
    return nullptr;
  Dims out;
  for (size_t i = 0; i < n; ++i) {
    size_t at = p->a.size() == 1 ? 0 : i;
    out.push_back(cond[cond.size() == 1 ? 0 : i] != 0 ? p->a[at] : p->b[at]);
  }
  return Item::of_sizes(std::move(out), p->scalar && scalar(c, 0));
}

ItemPtr gathered(Call& c) {
  auto from = c.item(0)->as_sizes();
  if (!from || scalar(c, 0) || !c.is_known(1) || c.rank(1) > 1) return nullptr;
  Dims out;
  auto n = static_cast<int64_t>(from->size());
  for (int64_t i : c.known(1, "indices").to_int64s()) {
    if (i < -n || i >= n) c.fail("index {} is out of range for {} elements", i, n);
    out.push_back((*from)[static_cast<size_t>(i < 0 ? i + n : i)]);
  }
  return Item::of_sizes(std::move(out), scalar(c, 1));
}

ItemPtr joined(Call& c) {
  Dims out;
  for (size_t i = 0; i < c.inputs(); ++i) {
    auto part = c.item(i)->as_sizes();
    if (!part || scalar(c, i)) return nullptr;
    for (const Dim& d : *part) out.push_back(d);
    constexpr size_t most = 1024;
    if (out.size() > most) return nullptr;  // the program puts them together
  }
  return Item::of_sizes(std::move(out), false);
}

ItemPtr sliced(Call& c) {
  auto from = c.item(0)->as_sizes();
  if (!from || scalar(c, 0)) return nullptr;
  bool attributes = c.opset() < 10;
  Ints starts = attributes ? c.integers("starts").value_or(Ints{}) : c.integers(1, "starts");
  Ints ends = attributes ? c.integers("ends").value_or(Ints{}) : c.integers(2, "ends");
  Ints steps = !attributes && c.given(4) ? c.integers(4, "steps") : Ints{1};
  if (starts.size() != 1 || ends.size() != 1 || steps.size() != 1 || steps[0] == 0) return nullptr;
  auto n = static_cast<int64_t>(from->size());
  const int64_t step = std::clamp<int64_t>(steps[0], -n - 1, n + 1);
  auto bound = [&](int64_t b) {
    if (b < 0) b += n;
    return step > 0 ? std::clamp<int64_t>(b, 0, n) : std::clamp<int64_t>(b, -1, n - 1);
  };
  Dims out;
  int64_t end = ends[0] < -n ? -1 : bound(ends[0]);
  for (int64_t i = bound(starts[0]); step > 0 ? i < end : i > end; i += step)
    out.push_back((*from)[static_cast<size_t>(i)]);
  return Item::of_sizes(std::move(out), false);
}

// Unsqueeze, Squeeze and Reshape between a number and a list of one.
ItemPtr reshaped(Call& c) {
  auto from = c.item(0)->as_sizes();
  if (!from) return nullptr;
  if (c.op() == "Unsqueeze")
    return scalar(c, 0) ? Item::of_sizes(std::move(*from), false) : nullptr;
  if (c.op() == "Squeeze")
    return from->size() == 1 ? Item::of_sizes(std::move(*from), true) : nullptr;
  if (!c.is_known(1) || c.rank(1) != 1) return nullptr;
  Ints shape = c.integers(1, "shape");
  auto n = static_cast<int64_t>(from->size());
  if (shape.empty() && n == 1) return Item::of_sizes(std::move(*from), true);
  if (shape.size() == 1 && (shape[0] == -1 || shape[0] == n))
    return Item::of_sizes(std::move(*from), false);
  return nullptr;
}

ItemPtr cast(Call& c) {
  auto from = c.item(0)->as_sizes();
  int to = static_cast<int>(c.attribute("to", int64_t{0}));
  if (!from || (to != ::onnx::TensorProto::INT64 && to != ::onnx::TensorProto::INT32))
    return nullptr;
  ItemPtr out = Item::of_sizes(std::move(*from), scalar(c, 0));
  out->type.dtype = dtype_of(to, "Cast");
  return out;
}

ItemPtr product(Call& c) {
  auto from = c.item(0)->as_sizes();
  if (!from || scalar(c, 0)) return nullptr;
  bool keep = c.flag("keepdims", true);
  return Item::of_sizes({ir::numel(*from)}, !keep);
}

constexpr std::pair<std::string_view, ItemPtr (*)(Call&)> table[] = {
    {"Add", arithmetic},     {"Sub", arithmetic},   {"Mul", arithmetic},   {"Div", arithmetic},
    {"Mod", arithmetic},     {"Max", arithmetic},   {"Min", arithmetic},   {"Equal", equality},
    {"Where", choice},       {"Gather", gathered},  {"Concat", joined},    {"Slice", sliced},
    {"Unsqueeze", reshaped}, {"Squeeze", reshaped}, {"Reshape", reshaped}, {"Cast", cast},
    {"ReduceProd", product}};

}  // namespace

}  // namespace size_rules

ItemPtr fold_sizes(Call& c) {
  for (const auto& [name, rule] : size_rules::table)
    if (name == c.op()) return rule(c);
  return nullptr;
}

}  // namespace gradus::onnx
