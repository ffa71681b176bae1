// Windows of all kinds beside a search element by element.
#include <cmath>
#include <limits>
#include <random>

#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

struct Case {
  Sizes x;  // [N, C, ..]
  std::vector<int64_t> kernel, stride, padding, dilation;
};

// Of equal elements the first, of NaNs the last. Three spatial axes; missing ones are of size 1.
void search(const Case& c, const std::vector<double>& x, const Sizes& y,
            std::vector<double>& values, std::vector<double>& indices) {
  auto axis = [&](const std::vector<int64_t>& list, size_t d, int64_t otherwise) {
    const size_t missing = 3 - list.size();
    return d < missing ? otherwise : list[d - missing];
  };
  const size_t spatial = c.kernel.size();
  std::vector<int64_t> image(c.x.begin() + 2, c.x.end()), windows(y.begin() + 2, y.end());
  int64_t plane = 1;
  for (int64_t n : image) plane *= n;
  ASSERT_EQ(spatial, image.size());
  for (int64_t p = 0; p < c.x[0] * c.x[1]; ++p)
    for (int64_t w0 = 0; w0 < axis(windows, 0, 1); ++w0)
      for (int64_t w1 = 0; w1 < axis(windows, 1, 1); ++w1)
        for (int64_t w2 = 0; w2 < axis(windows, 2, 1); ++w2) {
          double best = 0;
          int64_t at = -1;
          const int64_t w[3] = {w0, w1, w2};
          for (int64_t k0 = 0; k0 < axis(c.kernel, 0, 1); ++k0)
            for (int64_t k1 = 0; k1 < axis(c.kernel, 1, 1); ++k1)
              for (int64_t k2 = 0; k2 < axis(c.kernel, 2, 1); ++k2) {
                const int64_t k[3] = {k0, k1, k2};
                int64_t offset = 0;
                bool inside = true;
                for (size_t d = 0; d < 3; ++d) {
                  const int64_t i = w[d] * axis(c.stride, d, 1) - axis(c.padding, d, 0) +
                                    k[d] * axis(c.dilation, d, 1);
                  inside &= i >= 0 && i < axis(image, d, 1);
                  offset = offset * axis(image, d, 1) + i;
                }
                if (!inside) continue;
                const double v = x[static_cast<size_t>(p * plane + offset)];
                if (at < 0 || v > best || std::isnan(v)) {
                  best = v;
                  at = offset;
                }
              }
          values.push_back(best);
          indices.push_back(static_cast<double>(at));
        }
}

TEST(MaxPool, FindsWhatASearchFinds) {
  const Case cases[] = {
      {{2, 3, 9, 40}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{1, 2, 7, 150}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // more windows than a tile has
      {{2, 1, 8, 33}, {3, 4}, {2, 3}, {1, 2}, {2, 1}},
      {{1, 1, 5, 70}, {1, 3}, {1, 2}, {0, 1}, {1, 5}},
      {{3, 2, 90}, {5}, {2}, {2}, {1}},
      {{1, 2, 4, 5, 21}, {2, 3, 3}, {1, 2, 2}, {1, 1, 0}, {1, 1, 2}},
      {{1, 1, 20, 40}, {17, 16}, {1, 1}, {0, 0}, {1, 1}},  // more elements than a table has
      {{1, 1, 3, 4}, {3, 4}, {1, 1}, {0, 0}, {1, 1}},
      // Two wide, side by side: full vectors, half ones, single windows; cut ones at both ends.
      {{2, 2, 6, 47}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{1, 2, 7, 46}, {3, 2}, {1, 2}, {1, 1}, {2, 1}},
      {{2, 3, 61}, {2}, {2}, {1}, {1}},
      {{1, 2, 5, 4, 26}, {2, 2, 2}, {2, 1, 2}, {1, 0, 0}, {1, 1, 1}},
      {{1, 2, 30}, {3}, {2}, {1}, {1}},
  };
  std::mt19937 random(7);
  for (const Case& c : cases)
    for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::i64, DType::u8})
      for (bool transposed : {false, true}) {
        std::vector<double> x;
        const int64_t n = numel(c.x);
        for (int64_t i = 0; i < n; ++i) {
          // Few values, so that many are equal.
          double v = static_cast<double>(random() % 12);
          if (is_floating(dtype) && random() % 40 == 0)
            v = std::numeric_limits<double>::quiet_NaN();
          x.push_back(v);
        }
        Tensor in = Tensor::from(DType::f64, c.x, x).to(dtype);
        if (transposed) in = scattered(in);
        auto results = evaluate("max_pool", {EagerOperand(in)},
                                {ints("kernel", c.kernel), ints("stride", c.stride),
                                 ints("padding", c.padding), ints("dilation", c.dilation)});
        std::vector<double> values, indices;
        search(c, x, Sizes(results[0].shape()), values, indices);
        EXPECT_EQ(results[1].to_doubles(), indices) << name_of(dtype) << " " << transposed;
        const std::vector<double> found = results[0].to_doubles();
        ASSERT_EQ(found.size(), values.size());
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(found[i] == values[i] || (std::isnan(found[i]) && std::isnan(values[i])))
              << found[i] << " " << values[i];
      }
}

}  // namespace
}  // namespace gradus::ops::test
