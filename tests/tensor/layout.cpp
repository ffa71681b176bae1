#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/tensor.h"

using namespace gradus;

namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

TEST(Layout, CountsElementsOrSaysItCannot) {
  EXPECT_EQ(checked_numel(Sizes{}), 1);
  EXPECT_EQ(checked_numel(Sizes{2, 3, 4}), 24);
  EXPECT_EQ(checked_numel(Sizes{2, 0, 4}), 0);
  EXPECT_EQ(checked_numel(Sizes{huge}), huge);
  EXPECT_EQ(checked_numel(Sizes{huge, 2}), std::nullopt);
  EXPECT_EQ(checked_numel(Sizes{int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(checked_numel(Sizes{-1}), std::nullopt);
  EXPECT_EQ(checked_numel(Sizes{0, -1}), std::nullopt);
  EXPECT_EQ(checked_numel(Sizes{0, huge, 4}), std::nullopt);  // its strides would not fit
}

TEST(Layout, KnowsWhatIsContiguous) {
  auto contiguous = [](Sizes shape, Sizes strides) {
    return Layout(DType::f32, std::move(shape), std::move(strides)).contiguous();
  };
  EXPECT_TRUE(contiguous({}, {}));
  EXPECT_TRUE(contiguous({2, 3}, {3, 1}));
  EXPECT_FALSE(contiguous({2, 3}, {1, 2}));
  EXPECT_TRUE(contiguous({2, 1, 3}, {3, 77, 1}));
  EXPECT_FALSE(contiguous({3}, {0}));
  EXPECT_FALSE(contiguous({3}, {2}));
  EXPECT_TRUE(contiguous({1}, {0}));
  EXPECT_TRUE(contiguous({0, 5}, {1, 9}));
  EXPECT_TRUE(contiguous({5, 0}, {9, 9}));
}

TEST(Layout, MeasuresItsExtent) {
  EXPECT_EQ(Layout(DType::f32, {2, 3}).extent(), 6);
  EXPECT_EQ(Layout(DType::f32, {}).extent(), 1);
  EXPECT_EQ(Layout(DType::f32, {2, 0}).extent(), 0);
  EXPECT_EQ(Layout(DType::f32, {2, 3}, {10, 2}).extent(), 15);
  EXPECT_EQ(Layout(DType::f32, {4, 5}, {0, 0}).extent(), 1);
  EXPECT_EQ(Layout(DType::f32, {2, 3}, {10, 2}).checked_extent(), 15);
  EXPECT_EQ(Layout(DType::f32, {0, 3}, {10, 2}).checked_extent(), 0);
  EXPECT_EQ(Layout(DType::f32, {2, 3}, {-3, 1}).checked_extent(), std::nullopt);
  EXPECT_EQ(Layout(DType::f32, {2}, {huge}).checked_extent(), std::nullopt);
  EXPECT_EQ(Layout(DType::f32, {3, 3}, {huge / 3, huge / 3}).checked_extent(), std::nullopt);
  Layout expanded(DType::f32, {}, {});
  expanded.shape = {int64_t{1} << 40, int64_t{1} << 40};
  expanded.strides = {0, 0};
  EXPECT_EQ(expanded.checked_extent(), std::nullopt);  // its elements cannot be counted
}

// Offsets of all elements, in row-major order, by the definition.
std::vector<int64_t> offsets(const Sizes& shape, const Sizes& strides) {
  std::vector<int64_t> all{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t base : all)
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(base + i * strides[d]);
    all = std::move(next);
  }
  return all;
}

// The only strides that could do: those that lead to each dimension's second element.
std::optional<Sizes> strides_by_trial(const std::vector<int64_t>& at, const Sizes& shape) {
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] > 1) strides[d] = at[static_cast<size_t>(step)] - at[0];
    step *= shape[d];
  }
  for (int64_t s : strides)
    if (s < 0) return std::nullopt;
  return offsets(shape, strides) == at ? std::optional(strides) : std::nullopt;
}

class RandomLayouts {
 public:
  explicit RandomLayouts(unsigned seed) : random_(seed) {}
  int64_t upto(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // Contiguous, then permuted, cut with steps, and expanded.
  Layout layout(int64_t* storage_size = nullptr) {
    static constexpr int64_t sizes[] = {1, 1, 2, 2, 3, 4, 6};
    Layout l(DType::i32, {});
    int rank = static_cast<int>(upto(5));
    for (int i = 0; i < rank; ++i) l.shape.push_back(sizes[upto(7)]);
    l.strides = contiguous_strides(l.shape);
    if (storage_size) *storage_size = numel(l.shape);
    for (int i = rank - 1; i > 0; --i) {
      if (upto(3)) continue;
      auto j = upto(i + 1);
      std::swap(l.shape[i], l.shape[j]);
      std::swap(l.strides[i], l.strides[j]);
    }
    for (int i = 0; i < rank; ++i) {
      if (upto(4) == 0 && l.shape[i] > 1) {
        int64_t step = 1 + upto(2);
        l.shape[i] = (l.shape[i] - 1) / step + 1;
        l.strides[i] *= step;
      }
      if (upto(6) == 0 && l.shape[i] > 1) l.shape[i] -= 1;
      if (upto(6) == 0) {
        l.shape[i] = sizes[upto(7)];
        l.strides[i] = 0;
      }
    }
    return l;
  }

  // As many elements, in another shape.
  Sizes shape_of(int64_t elements) {
    Sizes shape;
    while (elements > 1) {
      std::vector<int64_t> divisors;
      for (int64_t d = 2; d <= elements; ++d)
        if (elements % d == 0) divisors.push_back(d);
      int64_t d = divisors[static_cast<size_t>(upto(static_cast<int64_t>(divisors.size())))];
      shape.push_back(d);
      elements /= d;
      if (upto(4) == 0) shape.push_back(1);
    }
    if (upto(4) == 0) shape.insert(shape.begin(), 1);
    return shape;
  }

 private:
  std::mt19937_64 random_;
};

TEST(Layout, ViewStridesAreFoundWhenThereAreAny) {
  RandomLayouts random(11);
  int found = 0, none = 0;
  for (int round = 0; round < 30000; ++round) {
    Layout l = random.layout();
    Sizes shape = random.shape_of(l.numel());
    auto at = offsets(l.shape, l.strides);
    auto expected = strides_by_trial(at, shape);
    auto mine = view_strides(l, shape);
    std::string text =
        to_string(l.shape) + " strides " + to_string(l.strides) + " as " + to_string(shape);
    ASSERT_EQ(mine.has_value(), expected.has_value()) << text;
    if (mine) {
      ASSERT_EQ(offsets(shape, *mine), at) << text << " by " << to_string(*mine);
      for (int64_t s : *mine) ASSERT_GE(s, 0) << text;
    }
    ++(mine ? found : none);
  }
  EXPECT_GT(found, 3000);
  EXPECT_GT(none, 3000);
  EXPECT_TRUE(view_strides(Layout(DType::f32, {0, 3}, {7, 9}), Sizes{3, 0}));
}

TEST(Layout, CopiesBetweenAnyStrides) {
  RandomLayouts random(12);
  for (int round = 0; round < 5000; ++round) {
    int64_t size = 0;
    Layout from = random.layout(&size);
    std::vector<int32_t> source(static_cast<size_t>(size));
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int32_t>(i) - 3;
    // A permuted target with a gap between its elements.
    Layout to(DType::f64, from.shape);
    std::vector<size_t> dims(from.shape.size());
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = i;
    std::shuffle(dims.begin(), dims.end(), std::mt19937(static_cast<unsigned>(round)));
    int64_t gap = 1 + random.upto(2), step = gap;
    for (size_t d : dims) {
      to.strides[d] = step;
      step *= from.shape[d];
    }
    std::vector<double> target(static_cast<size_t>(to.extent()), -99.0);
    copy_elements(from, reinterpret_cast<const std::byte*>(source.data()), to,
                  reinterpret_cast<std::byte*>(target.data()));
    auto in = offsets(from.shape, from.strides), out = offsets(to.shape, to.strides);
    std::vector<double> expected(target.size(), -99.0);
    for (size_t i = 0; i < in.size(); ++i)
      expected[static_cast<size_t>(out[i])] = source[static_cast<size_t>(in[i])];
    ASSERT_EQ(target, expected) << to_string(from.shape) << " " << to_string(from.strides) << " to "
                                << to_string(to.strides);
  }
}

}  // namespace
