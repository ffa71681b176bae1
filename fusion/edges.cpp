#include "fusion/edges.h"

#include "fusion/nest.h"
#include "ops/assemble.h"
#include "ops/attributes.h"
#include "ops/indexing.h"
#include "ops/registry.h"
#include "work/move.h"

namespace gradus::fusion {

namespace {

using Layouts = std::span<const std::optional<Layout>>;

template <class Op>
bool is(const ir::Node& node) {
  return node.op == &ops::operator_record<Op>;
}

size_t dimension(int64_t dim, const Layout& of) {
  return static_cast<size_t>(dim < 0 ? dim + of.rank() : dim);
}

bool join(Edge& edge, Layouts in) {
  const Layout& out = edge.layout;
  const size_t dim = dimension(ops::attributes_as<ops::Cat::Attr>(edge.node->attributes).dim, out);
  int64_t at = 0;
  for (uint32_t i = 0; i < in.size(); ++i) {
    if (!in[i]) return false;  // its size is not known here
    const Layout& x = *in[i];
    if (x.dtype != out.dtype) return false;
    if (x.numel() == 0) continue;
    Edge::Source s{i, Sizes(out.shape.size(), 0), x.shape, x.strides};
    s.first[dim] = at;
    at += x.shape[dim];
    edge.sources.push_back(std::move(s));
  }
  return at == out.shape[dim];
}

// The operand in the middle, and slabs before and after along each dimension, within the box that
// those before it leave.
bool pad(Edge& edge, Layouts in, const ir::DimEnvironment& sizes) {
  const auto& a = ops::attributes_as<ops::ConstantPadNd::Attr>(edge.node->attributes);
  if (!in[0]) return false;
  const Layout &x = *in[0], &out = edge.layout;
  edge.fill = ir::Number::of(a.value);
  Sizes first(out.shape.size(), 0), box = out.shape;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    auto [before, after] = a.amounts(static_cast<int>(d), x.rank());
    const int64_t b = before.evaluate(sizes), f = after.evaluate(sizes);
    if (b < 0 || f < 0 || x.shape[d] == 0) return false;
    for (const auto& [start, n] : {std::pair(int64_t{0}, b), std::pair(b + x.shape[d], f)}) {
      if (n == 0) continue;
      Edge::Source s{std::nullopt, first, box, Sizes(out.shape.size(), 0)};
      s.first[d] = start;
      s.sizes[d] = n;
      edge.sources.push_back(std::move(s));
    }
    first[d] = b;
    box[d] = x.shape[d];
  }
  edge.sources.push_back({0, first, box, x.strides});
  return true;
}

bool pick(Edge& edge, Layouts in, bool each) {
  if (!in[0] || !in[1] || in[0]->rank() == 0 || in[1]->rank() == 0) return false;
  const Layout &x = *in[0], &index = *in[1], &out = edge.layout;
  const size_t dim = dimension(ops::attributes_as<ops::DimAttr>(edge.node->attributes).dim, x);
  Edge::Source s{0, Sizes(out.shape.size(), 0), out.shape, x.strides};
  s.strides[dim] = 0;
  edge.sources.push_back(std::move(s));
  Edge::Index i;
  i.step = x.strides[dim];
  i.shape = index.shape;
  i.check = {0, index.dtype, index.strides, x.shape[dim], 0, false, static_cast<int>(dim)};
  if (each) {
    i.strides = index.strides;
  } else {
    i.strides.assign(out.shape.size(), 0);
    i.strides[dim] = index.strides[0];
  }
  edge.index = std::move(i);
  return true;
}

}  // namespace

std::optional<Edge> edge_of(const ir::Node& node, Layouts in, const Layout& out,
                            const ir::DimEnvironment& sizes) {
  Edge edge;
  edge.node = &node;
  edge.layout = out;
  if (out.numel() == 0) return std::nullopt;
  bool found = false;
  if (is<ops::Cat>(node))
    found = join(edge, in);
  else if (is<ops::ConstantPadNd>(node))
    found = pad(edge, in, sizes);
  else if (is<ops::Gather>(node) || is<ops::IndexSelect>(node))
    found = pick(edge, in, is<ops::Gather>(node));
  if (!found || edge.sources.size() > most_operands) return std::nullopt;
  edge.result = node.results[0];
  return edge;
}

bool reshape(Edge& edge, const Sizes& shape) {
  if (edge.sources.size() != 1) return false;
  auto seen = [&](const Sizes& strides) {
    return view_strides(Layout(edge.layout.dtype, edge.layout.shape, strides), shape);
  };
  auto strides = seen(edge.sources[0].strides);
  if (!strides) return false;
  if (edge.index) {
    auto of_index = seen(edge.index->strides);
    if (!of_index) return false;
    edge.index->strides = std::move(*of_index);
  }
  edge.sources[0] = {edge.sources[0].operand, Sizes(shape.size(), 0), shape, std::move(*strides)};
  edge.layout = Layout(edge.layout.dtype, shape);
  return true;
}

}  // namespace gradus::fusion
