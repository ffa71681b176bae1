#include "ops/padded.h"

#include <algorithm>
#include <cmath>

#include "gradus/rules.h"
#include "ops/arithmetic.h"
#include "ops/assemble.h"
#include "ops/shape.h"

namespace gradus::ops {

std::optional<PaddedPart> padded_part(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != &record<ConstantPadNd>()) return {};
  const auto& a = attributes_as<ConstantPadNd::Attr>(node.attributes);
  const ir::ValueId x = value_in(node.operands[0]);
  if (x == ir::no_value || !graph[x].type.is_floating() || a.value != 0 || std::signbit(a.value))
    return {};
  const ir::Type& type = graph[x].type;
  std::optional<PaddedPart> found;
  for (int d = 0; d < type.rank(); ++d) {
    auto [before, after] = a.amounts(d, type.rank());
    if (before == Dim(0) && after == Dim(0)) continue;
    const Dim& own = type.dims[d];
    if (found || !before.is_constant() || !after.is_constant() || !own.is_constant()) return {};
    const int64_t b = before.value(), n = own.value(), f = after.value();
    if (b < 0 || f < 0) return {};
    found = PaddedPart{x, d, b, b + n, b + n + f};
  }
  return found;
}

bool adds_up(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != &record<Add>() || !attributes_as<AlphaAttr>(node.attributes).alpha.is_one())
    return false;
  for (const ir::Operand& o : node.operands) {
    const ir::ValueId x = value_in(o);
    if (x == ir::no_value || !(graph[x].type == graph[node.results[0]].type)) return false;
  }
  return true;
}

Value without_minus_zero(const Value& x, const Value* reshaped) {
  return reshaped ? reshape(*reshaped + num(0.0), Dims(x.dims())) : x + num(0.0);
}

bool is_reshape(const ir::Node& node) { return node.op == &record<Reshape>(); }

Value joined(World& world, std::span<const Value> parts, std::span<const PaddedPart> places,
             const Ints* order) {
  int64_t dim = places[0].dim;
  std::vector<Value> pieces;
  for (const Value& part : parts) {
    pieces.push_back(order ? permute(part, *order) : part);
  }
  if (order) dim = std::ranges::find(*order, dim) - order->begin();
  const ir::Type type(pieces[0].dtype(), Dims(pieces[0].dims()));
  std::vector<Value> all;
  auto zeros = [&](int64_t n) {
    if (n == 0) return;
    Dims dims = type.dims;
    dims[dim] = n;
    all.push_back(full(world, dims, 0, type.dtype));
  };
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    zeros(places[i].begin - end);
    all.push_back(pieces[i]);
    end = places[i].end;
  }
  zeros(places[0].size - end);
  return cat(all, dim);
}

std::optional<Ints> permuted_order(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != &record<Permute>()) return {};
  Ints order = attributes_as<Permute::Attr>(node.attributes).dims;
  const int rank = graph[node.results[0]].type.rank();
  for (int64_t& d : order) d = d < 0 ? d + rank : d;
  return order;
}

}  // namespace gradus::ops
