#include "gradus/small_vector.h"

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/ref.h"

using namespace gradus;

namespace {

using Strings = SmallVector<std::string, 2>;
// Longer than a string's own buffer, so that reading a dead one is seen.
std::string word(int i) {
  return "a word that needs memory of its own, number " + std::to_string(i);
}

struct Counted : RefCounted {};

std::vector<std::string> list(const Strings& v) { return {v.begin(), v.end()}; }

TEST(SmallVector, GrowsPastItsInlineElements) {
  Strings v;
  std::vector<std::string> expected;
  for (int i = 0; i < 20; ++i) {
    v.push_back(word(i));
    expected.push_back(word(i));
    ASSERT_EQ(list(v), expected);
  }
  EXPECT_EQ(v.front(), word(0));
  EXPECT_EQ(v.back(), word(19));
}

TEST(SmallVector, TakesItsOwnElementsAsArguments) {
  for (int size : {1, 2, 4}) {  // with room, and just when it must grow
    Strings base;
    for (int i = 0; i < size; ++i) base.push_back(word(i));
    std::vector<std::string> expected = list(base);
    expected.push_back(word(0));

    // Assigning a copy would keep the room that growing made.
    auto fresh = [&] { return Strings(base); };

    Strings v = fresh();
    v.emplace_back(v[0]);
    EXPECT_EQ(list(v), expected) << "emplace_back " << size;
    v = fresh();
    v.push_back(v[0]);
    EXPECT_EQ(list(v), expected) << "push_back " << size;
    v = fresh();
    v.resize(static_cast<size_t>(size) + 1, v[0]);
    EXPECT_EQ(list(v), expected) << "resize " << size;

    v = fresh();
    v.insert(v.begin(), v.back());
    EXPECT_EQ(v.front(), word(size - 1)) << "insert " << size;
    EXPECT_EQ(v.size(), static_cast<size_t>(size) + 1);
    EXPECT_EQ(v.back(), word(size - 1));

    v = fresh();
    v.assign(5, v.back());
    EXPECT_EQ(list(v), std::vector<std::string>(5, word(size - 1))) << "assign " << size;

    v = fresh();
    v.append(v.begin(), v.end());
    expected = list(base);
    expected.insert(expected.end(), base.begin(), base.end());
    EXPECT_EQ(list(v), expected) << "append " << size;
    v = fresh();
    std::span<const std::string> own = v;
    v.append(own.begin(), own.end());
    EXPECT_EQ(list(v), expected) << "append a span " << size;

    v = fresh();
    Strings& same = v;
    v = same;
    EXPECT_EQ(list(v), list(base)) << "copy to itself " << size;
    v = std::move(same);
    EXPECT_EQ(list(v), list(base)) << "move to itself " << size;
  }
}

TEST(SmallVector, MovesLeaveAnEmptyOne) {
  for (int size : {2, 5}) {
    Strings v;
    for (int i = 0; i < size; ++i) v.push_back(word(i));
    auto expected = list(v);
    Strings moved = std::move(v);
    EXPECT_EQ(list(moved), expected);
    EXPECT_TRUE(v.empty());
    v.push_back(word(9));  // still of use
    EXPECT_EQ(v.size(), 1u);
    v = std::move(moved);
    EXPECT_EQ(list(v), expected);
    EXPECT_TRUE(moved.empty());
  }
}

TEST(SmallVector, HoldsWhatCannotBeCopied) {
  SmallVector<std::unique_ptr<int>, 1> v;
  for (int i = 0; i < 5; ++i) v.push_back(std::make_unique<int>(i));
  v.erase(v.begin() + 1);
  v.insert(v.begin(), std::make_unique<int>(7));
  std::vector<int> seen;
  for (auto& p : v) seen.push_back(*p);
  EXPECT_EQ(seen, (std::vector<int>{7, 0, 2, 3, 4}));
}

TEST(SmallVector, ConstructorsTellSizesFromRanges) {
  SmallVector<int64_t, 5> filled(3, 4);
  EXPECT_EQ(filled, (SmallVector<int64_t, 5>{4, 4, 4}));
  std::vector<int> source{1, 2, 3, 4, 5, 6};
  SmallVector<int64_t, 5> range(source.begin(), source.end());
  EXPECT_EQ(range, (SmallVector<int64_t, 5>{1, 2, 3, 4, 5, 6}));
  std::span<const int64_t> view = range;
  EXPECT_EQ(view.size(), 6u);
}

// Counts what lives and throws at a chosen copy.
struct Fragile {
  static inline int alive = 0, copies_left = 1 << 30;
  Fragile() { ++alive; }
  Fragile(const Fragile&) {
    if (copies_left-- == 0) throw std::runtime_error("no more copies");
    ++alive;
  }
  Fragile(Fragile&&) noexcept { ++alive; }
  Fragile& operator=(const Fragile&) = default;
  Fragile& operator=(Fragile&&) noexcept = default;
  ~Fragile() { --alive; }
};

TEST(SmallVector, LosesNothingWhenACopyThrows) {
  using Vector = SmallVector<Fragile, 2>;
  for (int allowed = 0; allowed < 12; ++allowed) {
    Fragile::copies_left = 1 << 30;
    {
      Vector source(6);
      Vector target(3);
      Fragile::copies_left = allowed;
      try {
        Vector copy(source);
        target = copy;
        target.append(target.begin(), target.end());
      } catch (const std::runtime_error&) {
      }
      Fragile::copies_left = 1 << 30;
      target.emplace_back();  // in a state of use
    }
    EXPECT_EQ(Fragile::alive, 0) << allowed;
  }
}

TEST(SmallVector, DoesAsVectorDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Strings v;
    std::vector<std::string> expected;
    for (int step = 0; step < 40; ++step) {
      size_t n = expected.size();
      size_t at = n ? random() % n : 0;
      switch (random() % 7) {
        case 0:
        case 1:
          v.push_back(word(step));
          expected.push_back(word(step));
          break;
        case 2:
          v.insert(v.begin() + at, word(step));
          expected.insert(expected.begin() + static_cast<long>(at), word(step));
          break;
        case 3:
          if (n == 0) break;
          v.erase(v.begin() + at);
          expected.erase(expected.begin() + static_cast<long>(at));
          break;
        case 4:
          if (n == 0) break;
          v.pop_back();
          expected.pop_back();
          break;
        case 5: {
          size_t size = random() % 6;
          v.resize(size, word(-1));
          expected.resize(size, word(-1));
          break;
        }
        case 6:
          if (step % 10 == 0) {
            v.clear();
            expected.clear();
          }
          break;
      }
      ASSERT_EQ(list(v), expected) << "round " << round << " step " << step;
    }
  }
}

// Elements that are moved as bytes: each object is destroyed once, wherever it went.
TEST(SmallVector, MovesBytesOfWhatMayBeRelocated) {
  using Shared = std::variant<std::monostate, Ref<Counted>>;
  static_assert(is_relocatable<Shared> && !is_relocatable<std::string>);
  const Ref<Counted> counted = make_ref<Counted>();
  {
    SmallVector<Shared, 2> v;
    for (uint32_t n = 0; n < 9; ++n) {  // inline, then on the heap
      if (n % 3)
        v.push_back(counted);
      else
        v.push_back({});
      SmallVector<Shared, 2> other(std::move(v));
      EXPECT_TRUE(v.empty());
      EXPECT_EQ(counted->use_count(), 1 + n - n / 3);
      v = std::move(other);
      EXPECT_TRUE(other.empty());
      ASSERT_EQ(v.size(), n + 1);
      EXPECT_EQ(std::holds_alternative<std::monostate>(v.back()), n % 3 == 0);
    }
  }
  EXPECT_EQ(counted->use_count(), 1u);
}

}  // namespace
