#include "tools/view/layering.h"

#include <algorithm>
#include <numeric>

namespace gradus::view {

namespace {

constexpr double gap = 26;         // between two boxes of a layer
constexpr double narrow_gap = 12;  // where a mere edge is one of the two
constexpr int order_rounds = 12, place_rounds = 16;

using Lists = std::vector<std::vector<uint32_t>>;

// The graph with a point for each layer that an edge passes: edges lead to the next layer only.
struct Proper {
  uint32_t boxes = 0;  // the others are points of edges
  std::vector<double> width;
  std::vector<uint32_t> layer;
  Lists above, below;              // neighbours
  Lists order;                     // by layer, from left to right
  std::vector<uint32_t> position;  // in that order
  std::vector<double> x;

  bool is_point(uint32_t n) const { return n >= boxes; }
  // Where nothing comes from, or nothing goes: others do not follow it to where there is room.
  bool is_end(uint32_t n) const { return above[n].empty() || below[n].empty(); }
  uint32_t add_point(uint32_t in_layer) {
    width.push_back(0);
    layer.push_back(in_layer);
    above.emplace_back();
    below.emplace_back();
    return static_cast<uint32_t>(layer.size()) - 1;
  }
  void connect(uint32_t from, uint32_t to) {
    below[from].push_back(to);
    above[to].push_back(from);
  }
  void number(uint32_t l) {
    for (uint32_t i = 0; i < order[l].size(); ++i) position[order[l][i]] = i;
  }
};

std::optional<std::vector<uint32_t>> longest_paths(const LayeredGraph& graph) {
  const size_t n = graph.widths.size();
  Lists below(n);
  std::vector<uint32_t> waits(n, 0), layer(n, 0), ready;
  std::vector<bool> has_above(n, false);
  for (auto [from, to] : graph.edges) {
    below[from].push_back(to);
    ++waits[to];
    has_above[to] = true;
  }
  for (uint32_t v = 0; v < n; ++v)
    if (!waits[v]) ready.push_back(v);
  for (size_t k = 0; k < ready.size(); ++k)
    for (uint32_t to : below[ready[k]]) {
      layer[to] = std::max(layer[to], layer[ready[k]] + 1);
      if (!--waits[to]) ready.push_back(to);
    }
  if (ready.size() < n) return std::nullopt;
  for (uint32_t v = 0; v < n; ++v) {
    if (has_above[v] || below[v].empty()) continue;
    uint32_t first = UINT32_MAX;
    for (uint32_t to : below[v]) first = std::min(first, layer[to]);
    layer[v] = first - 1;
  }
  return layer;
}

// How far a node's edges may go by points: further ones would make more points than the graph is
// worth.
uint32_t longest_way(const std::vector<uint32_t>& reach) {
  std::vector<uint32_t> sorted = reach;
  std::ranges::sort(sorted);
  uint64_t budget = 30 * reach.size() + 4000;
  for (uint32_t r : sorted) {
    if (r > budget) return r;
    budget -= r;
  }
  return UINT32_MAX;
}

// Fills `trunk` with the points of each node's edges.
Proper make_proper(const LayeredGraph& graph, const std::vector<uint32_t>& layer, Lists& trunk,
                   std::vector<bool>& straight) {
  Proper p;
  p.boxes = static_cast<uint32_t>(graph.widths.size());
  p.width = graph.widths;
  p.layer = layer;
  p.above.resize(p.boxes);
  p.below.resize(p.boxes);
  std::vector<uint32_t> reach(p.boxes, 0);
  for (auto [from, to] : graph.edges)
    reach[from] = std::max(reach[from], layer[to] - layer[from] - 1);
  const uint32_t longest = longest_way(reach);
  trunk.resize(p.boxes);
  straight.assign(graph.edges.size(), false);
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    auto [from, to] = graph.edges[e];
    const uint32_t between = layer[to] - layer[from] - 1;
    straight[e] = between >= longest;
    if (straight[e]) continue;
    while (trunk[from].size() < between) {
      uint32_t last = trunk[from].empty() ? from : trunk[from].back();
      uint32_t point = p.add_point(p.layer[last] + 1);
      p.connect(last, point);
      trunk[from].push_back(point);
    }
    p.connect(between ? trunk[from][between - 1] : from, to);
  }
  const uint32_t layers =
      p.layer.empty() ? 0 : *std::max_element(p.layer.begin(), p.layer.end()) + 1;
  p.order.resize(layers);
  p.position.resize(p.layer.size());
  p.x.resize(p.layer.size());
  // Points stand where their nodes are, so that the first order is near a good one.
  for (uint32_t v = 0; v < p.boxes; ++v) {
    p.order[p.layer[v]].push_back(v);
    for (uint32_t t : trunk[v]) p.order[p.layer[t]].push_back(t);
  }
  for (uint32_t l = 0; l < layers; ++l) p.number(l);
  return p;
}

// Pairs of edges between two layers that cross, counted by a Fenwick tree.
uint64_t crossings(const Proper& p) {
  uint64_t sum = 0;
  std::vector<uint32_t> tree, ends;
  for (size_t l = 0; l + 1 < p.order.size(); ++l) {
    tree.assign(p.order[l + 1].size() + 1, 0);
    uint32_t seen = 0;
    for (uint32_t v : p.order[l]) {
      ends.clear();
      for (uint32_t to : p.below[v]) ends.push_back(p.position[to] + 1);
      for (uint32_t end : ends) {
        uint32_t before = 0;
        for (uint32_t k = end; k; k &= k - 1) before += tree[k];
        sum += seen - before;
      }
      for (uint32_t end : ends)
        for (uint32_t k = end; k < tree.size(); k += k & -k) ++tree[k];
      seen += static_cast<uint32_t>(ends.size());
    }
  }
  return sum;
}

void sort_layer(Proper& p, uint32_t l, const Lists& neighbours, std::vector<double>& wish) {
  for (uint32_t v : p.order[l]) {
    double sum = 0;
    for (uint32_t n : neighbours[v]) sum += p.position[n];
    wish[v] =
        neighbours[v].empty() ? p.position[v] : sum / static_cast<double>(neighbours[v].size());
  }
  std::ranges::stable_sort(p.order[l], {}, [&](uint32_t v) { return wish[v]; });
  p.number(l);
}

void find_order(Proper& p) {
  const auto layers = static_cast<uint32_t>(p.order.size());
  std::vector<double> wish(p.layer.size());
  Lists best = p.order;
  uint64_t fewest = crossings(p);
  for (int round = 0; round < order_rounds && fewest; ++round) {
    for (uint32_t l = 1; l < layers; ++l) sort_layer(p, l, p.above, wish);
    for (uint32_t l = layers - 1; l-- > 0;) sort_layer(p, l, p.below, wish);
    if (uint64_t now = crossings(p); now < fewest) {
      fewest = now;
      best = p.order;
    }
  }
  p.order = std::move(best);
  for (uint32_t l = 0; l < layers; ++l) p.number(l);
}

double distance(const Proper& p, uint32_t left, uint32_t right) {
  return (p.width[left] + p.width[right]) / 2 +
         (p.is_point(left) || p.is_point(right) ? narrow_gap : gap);
}

// The places nearest to the wished ones, by weighted squares, that keep order and distances.
void place_layer(Proper& p, uint32_t l, bool look_up, bool look_down) {
  struct Pool {
    double place, weight;
    uint32_t count;
  };
  std::vector<Pool> pools;
  std::vector<double> offset;
  const std::vector<uint32_t>& order = p.order[l];
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t v = order[i];
    offset.push_back(i ? offset.back() + distance(p, order[i - 1], v) : 0);
    double sum = 0, count = 0;  // of the neighbours, by what they have to say
    auto look_at = [&](uint32_t n) {
      const double say = p.is_end(n) ? 0.02 : 1;
      sum += say * p.x[n];
      count += say;
    };
    if (look_up) std::ranges::for_each(p.above[v], look_at);
    if (look_down) std::ranges::for_each(p.below[v], look_at);
    // A little towards the middle, so that long chains do not wander away.
    double wish = count > 0 ? sum / (count + 0.02) : p.x[v];
    double weight = count == 0 || p.is_end(v) ? 0.1 : p.is_point(v) ? 4 : 1;
    pools.push_back({wish - offset.back(), weight, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].place > pools.back().place) {
      Pool b = pools.back();
      pools.pop_back();
      Pool& a = pools.back();
      a.place = (a.place * a.weight + b.place * b.weight) / (a.weight + b.weight);
      a.weight += b.weight;
      a.count += b.count;
    }
  }
  size_t i = 0;
  for (const Pool& pool : pools)
    for (uint32_t k = 0; k < pool.count; ++k, ++i) p.x[order[i]] = pool.place + offset[i];
}

void find_places(Proper& p) {
  const auto layers = static_cast<uint32_t>(p.order.size());
  for (uint32_t l = 0; l < layers; ++l) {
    double x = 0;
    for (size_t i = 0; i < p.order[l].size(); ++i) {
      if (i) x += distance(p, p.order[l][i - 1], p.order[l][i]);
      p.x[p.order[l][i]] = x;
    }
    for (uint32_t v : p.order[l]) p.x[v] -= x / 2;
  }
  for (int round = 0; round < place_rounds; ++round) {
    const bool last = round + 2 >= place_rounds;
    for (uint32_t l = 0; l < layers; ++l) place_layer(p, l, true, last);
    for (uint32_t l = layers; l-- > 0;) place_layer(p, l, last, true);
  }
}

}  // namespace

std::optional<Layering> find_layers(const LayeredGraph& graph) {
  auto layer = longest_paths(graph);
  if (!layer) return std::nullopt;
  Layering result;
  Lists trunk;
  Proper p = make_proper(graph, *layer, trunk, result.straight);
  find_order(p);
  find_places(p);
  result.layers = static_cast<uint32_t>(p.order.size());
  result.layer = std::move(*layer);
  double left = 0, right = 0;
  for (size_t v = 0; v < p.x.size(); ++v) {
    left = v ? std::min(left, p.x[v] - p.width[v] / 2) : p.x[v] - p.width[v] / 2;
    right = v ? std::max(right, p.x[v] + p.width[v] / 2) : p.x[v] + p.width[v] / 2;
  }
  for (double& x : p.x) x -= left;
  result.width = right - left;
  result.centre.assign(p.x.begin(), p.x.begin() + p.boxes);
  result.trunks.resize(trunk.size());
  for (size_t v = 0; v < trunk.size(); ++v)
    for (uint32_t point : trunk[v]) result.trunks[v].push_back(p.x[point]);
  return result;
}

}  // namespace gradus::view
