#include "gradus/ref.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/context.h"

using namespace gradus;

namespace {

struct Counted : RefCounted {
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  ~Counted() override { --*alive_; }
  int* alive_;
};
struct Derived final : Counted {
  using Counted::Counted;
};
struct Throws : RefCounted {
  Throws() { throw std::runtime_error("made badly"); }
};

TEST(Ref, CountsOwners) {
  int alive = 0;
  {
    Ref<Counted> a = make_ref<Counted>(&alive);
    EXPECT_EQ(a->use_count(), 1u);
    Ref<Counted> b = a;
    EXPECT_EQ(a->use_count(), 2u);
    EXPECT_TRUE(a == b);
    Ref<Counted> c = std::move(b);
    EXPECT_FALSE(b);
    EXPECT_EQ(a->use_count(), 2u);
    c = nullptr;
    EXPECT_EQ(a->use_count(), 1u);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Ref, AssignsToItself) {
  int alive = 0;
  Ref<Counted> a = make_ref<Counted>(&alive);
  Ref<Counted>& same = a;
  a = same;
  ASSERT_TRUE(a);
  EXPECT_EQ(a->use_count(), 1u);
  a = std::move(same);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->use_count(), 1u);
  EXPECT_EQ(alive, 1);
}

TEST(Ref, ConvertsToBase) {
  int alive = 0;
  Ref<Derived> d = make_ref<Derived>(&alive);
  Ref<Counted> base = d;
  EXPECT_EQ(d->use_count(), 2u);
  d = nullptr;
  EXPECT_EQ(alive, 1);
  base = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(Ref, LeavesNothingOfAThrowingConstructor) {
  EXPECT_THROW(make_ref<Throws>(), std::runtime_error);  // the address sanitizer sees a leak
}

TEST(Ref, CountsAcrossThreads) {
  int alive = 0;
  {
    Ref<Counted> shared = make_ref<Counted>(&alive);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([shared] {
        for (int i = 0; i < 10000; ++i) {
          Ref<Counted> copy = shared;
          Ref<Counted> moved = std::move(copy);
        }
      });
    for (auto& t : threads) t.join();
    threads.clear();
    EXPECT_EQ(shared->use_count(), 1u);
  }
  EXPECT_EQ(alive, 0);
}

TEST(FunctionRef, CallsWhatItBorrows) {
  int calls = 0;
  auto add = [&calls](int x) {
    ++calls;
    return x + calls;
  };
  FunctionRef<int(int)> f = add;
  FunctionRef<int(int)> copy = f;
  EXPECT_EQ(f(10), 11);
  EXPECT_EQ(copy(10), 12);
  const auto constant = [] { return 7; };
  EXPECT_EQ(FunctionRef<int()>(constant)(), 7);
}

}  // namespace
