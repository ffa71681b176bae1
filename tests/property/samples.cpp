#include "tests/property/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gradus/registry.h"
#include "gradus/text.h"
#include "tests/property/recipes.h"

namespace gradus::property {

namespace {

Slot read_slot(std::string_view text) {
  constexpr std::string_view letters = "uslmidbn-";
  Slot slot;
  slot.kind = static_cast<Slot::Kind>(letters.find(text[0]));
  size_t open = std::min(text.find('['), text.size());
  if (open > 1) slot.limit = std::stoll(std::string(text.substr(1, open - 1)));
  for (size_t i = open + 1; i < text.size() && text[i] != ']';) {
    size_t end = text.find_first_of(",]", i);
    slot.shape.push_back(std::stoll(std::string(text.substr(i, end - i))));
    i = text[end] == ',' ? end + 1 : end;
  }
  return slot;
}

std::vector<Slot> read_slots(std::string_view text) {
  std::vector<Slot> slots;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    slots.push_back(read_slot(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return slots;
}

DType dtype_of(const Slot& slot, DType dtype) {
  if (slot.floating()) return dtype;
  return slot.kind == Slot::Kind::mask ? DType::boolean : DType::i64;
}

double element(const Slot& slot, DType dtype, int64_t i, std::mt19937_64& random) {
  const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
  if (slot.floating() && !is_floating(dtype))
    return slot.kind == Slot::Kind::large ? 2 + static_cast<double>(random() % 3)
                                          : 1 + static_cast<double>(random() % 3);
  switch (slot.kind) {
    case Slot::Kind::unit:
      return 0.12 + 0.76 * unit;
    case Slot::Kind::signs: {
      double v = 0.15 + 1.8 * unit;
      return random() % 2 ? v : -v;
    }
    case Slot::Kind::large:
      return 1.2 + unit;
    case Slot::Kind::matrix: {
      const int64_t n = slot.shape.back(), row = i / n % n, column = i % n;
      return row == column ? 2 + 0.3 * static_cast<double>(row)
                           : 0.2 + 0.1 * static_cast<double>(row + column);
    }
    case Slot::Kind::index:
      return static_cast<double>(random() % static_cast<uint64_t>(slot.limit));
    case Slot::Kind::mask:
      return static_cast<double>(random() % 2);
    default:
      return 0;
  }
}

Tensor values(const Slot& slot, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> list(static_cast<size_t>(numel(slot.shape)));
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = element(slot, dtype, static_cast<int64_t>(i), random);
  if (slot.kind == Slot::Kind::distinct) {
    std::vector<double> all(static_cast<size_t>(std::max<int64_t>(slot.limit, numel(slot.shape))));
    std::iota(all.begin(), all.end(), 0.0);
    std::shuffle(all.begin(), all.end(), random);
    std::copy_n(all.begin(), list.size(), list.begin());
  }
  return Tensor::from(dtype_of(slot, dtype), slot.shape, list);
}

}  // namespace

std::string Sample::text(DType dtype) const {
  std::string inputs, operands, names;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    operands += i ? ", " : "";
    if (!s.tensor()) {
      operands += s.kind == Slot::Kind::number ? "0.7" : "none";
      continue;
    }
    inputs += fmt::format("{}%a{}: {}{}", inputs.empty() ? "" : ", ", i,
                          name_of(dtype_of(s, dtype)), to_string(s.shape));
    operands += fmt::format("%a{}", i);
  }
  for (size_t r = 0; r < results; ++r) names += fmt::format("{}%y{}", r ? ", " : "", r);
  return fmt::format("graph p {{ stage 0 ({}) {{ {} = {}({}) {{{}}} return {} }} }}", inputs, names,
                     op->name, operands, attributes, names);
}

std::shared_ptr<const ir::Graph> Sample::program(DType dtype) const {
  try {
    return ir::parse(text(dtype), "sample").graphs[0];
  } catch (const Error&) {
    return nullptr;
  }
}

std::vector<Tensor> Sample::inputs(DType dtype, uint64_t seed) const {
  std::vector<Tensor> list;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].tensor()) list.push_back(values(slots[i], dtype, seed * 31 + i));
  return list;
}

// What runs graphs is held by the corpus: no call of it stands without those. What speaks to other
// ranks is held by tests/ranks.
bool runs_alone(const ir::Operator& op) {
  return !op.traits.structural && !op.traits.opaque && !op.traits.loop && !op.traits.collective;
}

std::vector<Sample> samples_of(const ir::Operator& op) {
  std::vector<Sample> samples;
  auto try_recipe = [&](const Recipe& r) {
    Sample s{&op, read_slots(r.operands), std::string(r.attributes), r.no_slope};
    for (s.results = 1; s.results <= 4; ++s.results)
      if (s.program(DType::f64)) return samples.push_back(s);
  };
  size_t own = 0;
  for (const Recipe& r : recipes)
    if (r.op == op.name) {
      try_recipe(r);
      ++own;
    }
  // A recipe that names the operator and does not fit it is a mistake: nothing is returned then.
  if (own) return samples.size() == own ? samples : std::vector<Sample>();
  for (const Recipe& r : recipes)
    if (r.op.empty()) try_recipe(r);
  return samples;
}

const std::vector<Sample>& all_samples() {
  static const std::vector<Sample> all = [] {
    std::vector<Sample> list;
    for (const ir::Operator* op : ops::all())
      if (runs_alone(*op))
        for (Sample& s : samples_of(*op)) list.push_back(std::move(s));
    return list;
  }();
  return all;
}

Sizes sizes_of(const ir::Type& type, const State& state) {
  struct Known final : ir::DimEnvironment {
    explicit Known(const State& s) : state(s) {}
    std::optional<int64_t> find(std::string_view name) const override {
      return state.dimension(name);
    }
    const State& state;
  };
  Sizes sizes;
  for (const ir::Dim& d : type.dims) sizes.push_back(d.evaluate(Known(state)));
  return sizes;
}

bool data_decides_a_size(const ir::Graph& program) {
  for (const ir::Value& v : program.values)
    if (!ir::all_constant(v.type.dims)) return true;
  return false;
}

bool has_slopes(const Sample& s, const ir::Graph& program) {
  bool in = false, out = false;
  for (ir::ValueId v : program.stages[0].inputs) in |= program[v].type.is_floating();
  for (const ir::Result& r : program.stages[0].results) out |= program[r.value].type.is_floating();
  return s.op->traits.differentiable && in && out;
}

std::string squared(const Sample& s, const ir::Graph& program) {
  std::string text = s.text(DType::f64);
  size_t r = 0;
  while (!program[program.stages[0].results[r].value].type.is_floating()) ++r;
  text.resize(text.rfind(" return "));
  return fmt::format("{} %q = mul(%y{}, %y{}) %e = sum(%q) return %e }} }}", text, r, r);
}

Tensor lay(const Tensor& t, Lie lie) {
  if (lie == Lie::contiguous) return t;
  // Dimensions inside out, or each taken in steps of two from a place inside of the memory.
  Sizes strides(t.shape().size());
  int64_t step = lie == Lie::sliced ? 2 : 1;
  for (size_t k = 0; k < strides.size(); ++k) {
    size_t d = lie == Lie::sliced ? strides.size() - 1 - k : k;
    strides[d] = step;
    step *= std::max<int64_t>(t.shape()[d], 1) + (lie == Lie::sliced ? 1 : 0);
  }
  Layout layout(t.dtype(), Sizes(t.shape()), strides);
  const int64_t offset = lie == Lie::sliced ? 3 : 0;
  const Sizes size{layout.extent() + offset + 2};
  Tensor memory = Tensor::from(
      t.dtype(), size,
      std::vector<double>(static_cast<size_t>(size[0]), is_floating(t.dtype()) ? NAN : 1.0));
  Tensor view = memory.view(layout, offset);
  copy_elements(t.layout(), t.data(), layout, const_cast<std::byte*>(view.data()));
  return view;
}

}  // namespace gradus::property
