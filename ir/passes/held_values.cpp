#include "ir/passes/held_values.h"

#include <algorithm>

#include "gradus/bind.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

struct KnownSizes final : DimEnvironment {
  explicit KnownSizes(const MemoryBudget& b) : budget(b) {}
  std::optional<int64_t> find(std::string_view name) const override {
    const auto found = budget.sizes.find(name);
    return found == budget.sizes.end() ? std::nullopt : std::optional(found->second);
  }
  const MemoryBudget& budget;
};

// None where data decides a size.
std::optional<Layout> layout_of(const Type& type, const DimEnvironment& sizes) {
  if (!type.is_tensor()) return std::nullopt;
  Sizes shape;
  for (const Dim& d : type.dims) {
    bool known = true;
    d.for_each_symbol([&](std::string_view name) { known &= sizes.find(name).has_value(); });
    if (!known) return std::nullopt;
    shape.push_back(d.evaluate(sizes));
    if (shape.back() < 0)
      throw Error("the size {} is {}, which is negative", d.to_string(), shape.back());
  }
  if (!checked_numel(shape)) throw Error("{} has too many elements", to_string(type));
  return Layout(type.dtype, std::move(shape));
}

}  // namespace

HeldValues::HeldValues(const Graph& graph, const MemoryBudget& budget)
    : graph_(graph), of_(graph.values.size()) {
  const KnownSizes sizes(budget);
  for (uint32_t s = 0; s < graph.stages.size(); ++s) {
    const Stage& stage = graph.stages[s];
    for (ValueId v : stage.inputs) {
      for (const Dim& d : graph[v].type.dims)
        d.for_each_symbol([&](std::string_view name) {
          if (!sizes.find(name))
            throw Error(
                "a memory budget needs the size of '{0}'; give it in `sizes` (gradus: --set "
                "{0}=SIZE)",
                name);
        });
      define(v, sizes);
    }
    for (uint32_t n = 0; n < stage.nodes.size(); ++n) {
      const Node& node = stage.nodes[n];
      for (ValueId v : node.results) {
        define(v, sizes);
        of_[index_of(v)].maker = {s, n};
        of_[index_of(v)].constant = ops::constant_in(node) || ops::is_undefined(node);
      }
      if (node.op->traits.may_be_view) find_views(node, sizes);
    }
    for (const Result& r : stage.results)
      if (r.value != no_value)
        if (Of& of = of_[index_of(root(r.value))]; of.returned == UINT32_MAX) of.returned = s;
  }
}

void HeldValues::define(ValueId v, const DimEnvironment& sizes) {
  of_[index_of(v)].root = v;
  of_[index_of(v)].layout = layout_of(graph_[v].type, sizes);
}

// Binds the node to the layouts of its operands, as plans do.
void HeldValues::find_views(const Node& node, const DimEnvironment& sizes) {
  SmallVector<Layout, 4> in;
  SmallVector<bool, 4> present, number;
  for (const Operand& o : node.operands) {
    Layout layout;
    if (const ValueId v = value_in(o); v != no_value) {
      if (!of_[index_of(v)].layout) return;
      layout = *of_[index_of(v)].layout;
    } else if (const auto* n = std::get_if<Number>(&o)) {
      layout = ops::number_layout(*n);
    } else if (const auto* d = std::get_if<Dim>(&o)) {
      layout = ops::number_layout(Number::of(d->evaluate(sizes)));
    }
    in.push_back(std::move(layout));
    present.push_back(!is_none(o));
    number.push_back(present.back() && value_in(o) == no_value);
  }
  ops::BindCall call{*node.op, in, present, number, node.attributes, sizes, {}, {}, {}};
  for (ValueId y : node.results) {
    if (!of_[index_of(y)].layout) return;
    call.out.push_back(*of_[index_of(y)].layout);
  }
  call.views.resize(node.results.size());
  try {
    node.op->bind(call);
  } catch (const Error& e) {
    if (e.where().known()) throw;
    throw graph_.error_at(node.where, e.bare());
  }
  for (size_t k = 0; k < node.results.size(); ++k) {
    Of& of = of_[index_of(node.results[k])];
    of.layout = call.out[k];
    if (call.views[k].operand < 0) continue;
    const ValueId base = value_in(node.operands[static_cast<size_t>(call.views[k].operand)]);
    if (base != no_value) of.root = root(base);
  }
}

int64_t HeldValues::bytes(ValueId v) const {
  const Of& of = of_[index_of(v)];
  if (!of.layout)
    throw graph_.error_at(
        of.maker ? graph_.stages[of.maker->stage].nodes[of.maker->node].where : SourceLocation(),
        "data decides how large this is, and a later stage reads it, so that a "
        "memory budget cannot count it; compile without");
  constexpr int64_t unit = 64;
  const int64_t all = of.layout->numel() * static_cast<int64_t>(size_of(of.layout->dtype));
  return std::max(unit, (all + unit - 1) / unit * unit);
}

bool HeldValues::is_free(ValueId v, size_t stage) const {
  const Of& of = of_[index_of(root(v))];
  return !of.maker || of.constant || of.returned <= stage || !graph_[v].type.is_tensor();
}

std::vector<bool> HeldValues::held_after(size_t stage) const {
  std::vector<bool> held(of_.size(), false);
  auto read = [&](ValueId v) {
    if (v == no_value || graph_[root(v)].stage > stage || is_free(v, stage)) return;
    // A view may be made in the stage that reads it, of what is held.
    held[index_of(root(v))] = true;
  };
  for (size_t s = stage + 1; s < graph_.stages.size(); ++s) {
    for (const Node& node : graph_.stages[s].nodes)
      for (const Operand& o : node.operands) read(value_in(o));
    for (const Result& r : graph_.stages[s].results) read(r.value);
  }
  return held;
}

int64_t HeldValues::sum(const std::vector<bool>& roots) const {
  int64_t all = 0;
  for (size_t v = 0; v < roots.size(); ++v)
    if (roots[v]) all += bytes(static_cast<ValueId>(v));
  return all;
}

std::vector<int64_t> held_bytes(const Graph& graph, const MemoryBudget& sizes) {
  const HeldValues values(graph, sizes);
  std::vector<int64_t> bytes;
  for (size_t s = 0; s < graph.stages.size(); ++s)
    bytes.push_back(values.sum(values.held_after(s)));
  return bytes;
}

}  // namespace gradus::ir
