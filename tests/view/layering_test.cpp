#include "tools/view/layering.h"

#include <chrono>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace gradus::view {

namespace {

// What holds of any layering: edges point down, boxes of a layer keep apart, ways are whole.
void check(const LayeredGraph& graph, const Layering& layering) {
  std::map<uint32_t, std::vector<std::pair<double, double>>> spans;
  for (size_t v = 0; v < graph.widths.size(); ++v) {
    const double half = graph.widths[v] / 2;
    spans[layering.layer[v]].emplace_back(layering.centre[v] - half, layering.centre[v] + half);
    EXPECT_GE(layering.centre[v] - half, -1e-6);
    EXPECT_LE(layering.centre[v] + half, layering.width + 1e-6);
  }
  for (auto& [layer, list] : spans) {
    std::sort(list.begin(), list.end());
    for (size_t i = 1; i < list.size(); ++i) {
      EXPECT_GE(list[i].first, list[i - 1].second + 10);
    }
  }
  std::vector<size_t> reach(graph.widths.size(), 0);
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    auto [from, to] = graph.edges[e];
    ASSERT_LT(layering.layer[from], layering.layer[to]);
    const size_t between = layering.layer[to] - layering.layer[from] - 1;
    if (!layering.straight[e]) reach[from] = std::max(reach[from], between);
  }
  // A trunk goes as far as the node's longest edge along it, and no further.
  for (size_t v = 0; v < reach.size(); ++v) EXPECT_EQ(layering.trunks[v].size(), reach[v]) << v;
}

TEST(Layering, RandomGraphs) {
  std::mt19937 random(7);
  for (uint32_t n : {1u, 2u, 5u, 40u, 400u}) {
    LayeredGraph graph;
    for (uint32_t v = 0; v < n; ++v) {
      graph.widths.push_back(20 + random() % 150);
      for (uint32_t k = 0; v && k < random() % 4; ++k)
        graph.edges.emplace_back(v - 1 - random() % std::min<unsigned long>(v, 30), v);
    }
    auto a = find_layers(graph), b = find_layers(graph);
    ASSERT_TRUE(a && b);
    check(graph, *a);
    EXPECT_EQ(a->centre, b->centre);
  }
}

// Two pairs that would cross in the order in which they are given.
TEST(Layering, CrossingsAreTakenAway) {
  LayeredGraph graph{{50, 50, 50, 50}, {{0, 3}, {1, 2}}};
  auto layering = find_layers(graph);
  ASSERT_TRUE(layering);
  EXPECT_EQ(layering->centre[0] < layering->centre[1], layering->centre[3] < layering->centre[2]);
  check(graph, *layering);
}

// 0 -> 1 -> 2 -> 3, 0 -> 3, and 4 that only 3 reads.
TEST(Layering, LongEdgesBendAndInputsComeLate) {
  LayeredGraph graph{{30, 30, 30, 30, 30}, {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {4, 3}}};
  auto layering = find_layers(graph);
  ASSERT_TRUE(layering);
  EXPECT_EQ(layering->layer, (std::vector<uint32_t>{0, 1, 2, 3, 2}));
  EXPECT_FALSE(layering->straight[3]);
  ASSERT_EQ(layering->trunks[0].size(), 2u);
  // The edge keeps off the boxes that it passes.
  EXPECT_GT(std::abs(layering->trunks[0][0] - layering->centre[1]), 15);
  check(graph, *layering);
}

TEST(Layering, CirclesAreRefused) {
  EXPECT_FALSE(find_layers({{10, 10, 10}, {{0, 1}, {1, 2}, {2, 1}}}));
}

// 10,000 boxes in a line, each read by one far below: the ways of all would be some 10^7 points.
TEST(Layering, LargeGraphsStayCheap) {
  LayeredGraph graph;
  constexpr uint32_t n = 10000;
  graph.widths.assign(n, 60);
  for (uint32_t v = 1; v < n; ++v) graph.edges.emplace_back(v - 1, v);
  for (uint32_t v = 0; v < n / 2; ++v) graph.edges.emplace_back(v, n - 1 - v);
  auto begin = std::chrono::steady_clock::now();
  auto layering = find_layers(graph);
  auto time = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(layering);
  size_t points = 0;
  for (const auto& trunk : layering->trunks) points += trunk.size();
  EXPECT_LT(points, 40u * n);
  EXPECT_LT(std::chrono::duration<double>(time).count(), 60);
  check(graph, *layering);
}

}  // namespace

}  // namespace gradus::view
