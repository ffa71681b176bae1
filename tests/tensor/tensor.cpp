#include "gradus/tensor.h"

#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "tests/tensor/bytes.h"

// Sizes no machine has come back as null, as without the sanitizer.
#pragma GCC visibility push(default)
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
#pragma GCC visibility pop

using namespace gradus;

namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();
constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i64,
                                DType::i32, DType::i8,  DType::u8,  DType::boolean};

Tensor range(DType dtype, Sizes shape) {
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::from(dtype, shape, values);
}

TEST(Tensor, IsMadeFromValues) {
  Tensor t = Tensor::from(DType::i32, Sizes{2, 2}, std::vector<double>{1.9, -1.9, 1e20, NAN});
  EXPECT_EQ(t.to_int64s(), (std::vector<int64_t>{1, -1, 2147483647, 0}));
  EXPECT_EQ(describe(t), "i32[2, 2]");
  EXPECT_EQ(describe(Tensor()), "undefined");
  EXPECT_EQ(Tensor::scalar(DType::f16, 2.5).item(), 2.5);
  EXPECT_EQ(Tensor::zeros(DType::f32, Sizes{3}).to_doubles(), std::vector<double>(3, 0.0));
  EXPECT_EQ(Tensor::zeros(DType::f32, Sizes{0, 3}).to_doubles(), std::vector<double>{});
  EXPECT_THROW(Tensor::from(DType::f32, Sizes{2}, std::vector<double>{1}), Error);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % Allocator::alignment, 0u);
}

TEST(Tensor, RefusesSizesThatCannotBe) {
  EXPECT_THROW(Tensor::empty(DType::f32, Sizes{-1}), Error);
  EXPECT_THROW(Tensor::empty(DType::f32, Sizes{huge, 2}), Error);
  EXPECT_THROW(Tensor::empty(DType::f64, Sizes{huge / 4}), Error);  // its bytes cannot be counted
  EXPECT_THROW(Tensor::empty(DType::u8, Sizes{huge - 100}), ResourceError);
}

TEST(Tensor, StaysInsideItsStorage) {
  Tensor t = range(DType::f32, {4, 5});
  auto view = [&](Sizes shape, Sizes strides, int64_t offset) {
    return t.view(Layout(DType::f32, std::move(shape), std::move(strides)), offset);
  };
  EXPECT_EQ(view({2, 2}, {5, 2}, 11).to_doubles(), (std::vector<double>{11, 13, 16, 18}));
  EXPECT_EQ(view({3}, {0}, 19).to_doubles(), (std::vector<double>{19, 19, 19}));
  EXPECT_EQ(view({20}, {1}, 0).numel(), 20);
  EXPECT_THROW(view({21}, {1}, 0), Error);
  EXPECT_THROW(view({20}, {1}, 1), Error);
  EXPECT_THROW(view({1}, {1}, 20), Error);
  EXPECT_THROW(view({1}, {1}, -1), Error);
  EXPECT_THROW(view({1}, {1}, huge), Error);
  EXPECT_THROW(view({2}, {-1}, 5), Error);
  EXPECT_THROW(view({-1}, {1}, 0), Error);
  EXPECT_THROW(view({2}, {huge}, 0), Error);
  EXPECT_THROW(view({3, 3}, {huge / 2, huge / 2}, 0), Error);
  EXPECT_THROW(view({huge, huge}, {0, 0}, 0), Error);
  EXPECT_EQ(view({0, 7}, {7, 1}, 20).numel(), 0);
  EXPECT_THROW(view({0, 7}, {7, 1}, 21), Error);
  // Another dtype counts in its own elements.
  EXPECT_THROW(t.view(Layout(DType::f64, Sizes{11}), 0), Error);
  EXPECT_EQ(t.view(Layout(DType::f64, Sizes{10}), 0).numel(), 10);
}

TEST(Tensor, ViewsShareAndCopiesDoNot) {
  Tensor t = range(DType::i32, {2, 3});
  Tensor column = t.view(Layout(DType::i32, {2}, {3}), 1);
  EXPECT_EQ(column.storage(), t.storage());
  EXPECT_FALSE(column.same_as(t));
  EXPECT_TRUE(t.same_as(Tensor(t)));
  EXPECT_TRUE(t.contiguous().same_as(t));
  Tensor dense = column.contiguous();
  EXPECT_NE(dense.storage(), t.storage());
  t.mutable_data_as<int32_t>()[1] = 70;
  EXPECT_EQ(column.to_int64s(), (std::vector<int64_t>{70, 4}));
  EXPECT_EQ(dense.to_int64s(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(column.item(1), 4);
  EXPECT_THROW(column.item(2), Error);
  EXPECT_THROW(column.item(-1), Error);
}

// SPEC I19: writes raise the version, and every view of the storage sees it.
TEST(Tensor, VersionsCountWrites) {
  Tensor t = range(DType::f32, {2, 3});
  Tensor view = t.view(Layout(DType::f32, {2}, {3}), 0);
  uint64_t before = t.version();
  static_cast<void>(t.data());
  static_cast<void>(view.to_doubles());
  Tensor other = t.copy();
  EXPECT_EQ(t.version(), before);
  view.mutable_data();
  EXPECT_EQ(t.version(), before + 1);
  EXPECT_EQ(view.version(), before + 1);
  t.mutable_data_as<float>()[0] = 1;
  EXPECT_EQ(view.version(), before + 2);
  uint64_t others = other.version();
  t.mutable_data();
  EXPECT_EQ(other.version(), others);
  std::thread writers[] = {std::thread([view]() mutable {
                             for (int i = 0; i < 1000; ++i) view.mutable_data();
                           }),
                           std::thread([t]() mutable {
                             for (int i = 0; i < 1000; ++i) t.mutable_data();
                           })};
  for (auto& w : writers) w.join();
  EXPECT_EQ(t.version(), before + 2003);
}

TEST(Tensor, MemoryGoesBackToItsAllocator) {
  test::Counted counted;
  Tensor view;
  {
    Tensor t = Tensor::empty(DType::f64, Sizes{10}, counted.context);
    view = t.view(Layout(DType::f64, Sizes{2}), 3);
    EXPECT_EQ(counted.heap->live_bytes(), 80u);
  }
  EXPECT_EQ(counted.heap->live_bytes(), 80u);
  view = Tensor();
  EXPECT_EQ(counted.heap->live_bytes(), 0u);
}

// Small or large, in one block or in three: handles, views and the storage go in any order.
TEST(Tensor, PartsOutliveOneAnother) {
  for (int64_t n : {0, 1, 50, 5000}) {
    test::Counted counted;
    Tensor view, copy;
    Ref<Storage> storage;
    {
      Tensor t = Tensor::empty(DType::f64, Sizes{n}, counted.context);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % Allocator::alignment, 0u);
      EXPECT_TRUE(t.sole_owner());
      if (n > 0) t.mutable_data_as<double>()[n - 1] = 3;
      copy = t;
      view = t.view(Layout(DType::f64, Sizes{n}), 0);
      storage = t.storage();
      EXPECT_FALSE(t.sole_owner());
    }
    EXPECT_EQ(counted.heap->live_bytes(), static_cast<size_t>(n) * 8);
    EXPECT_EQ(counted.heap->live_blocks(), 1u);
    copy = Tensor();
    if (n > 0) {
      EXPECT_EQ(view.item(n - 1), 3);
    }
    view = Tensor();
    EXPECT_EQ(storage->bytes(), static_cast<size_t>(n) * 8);
    EXPECT_EQ(counted.heap->live_blocks(), 1u);
    storage = nullptr;
    EXPECT_EQ(counted.heap->live_blocks(), 0u);
  }
}

// The allocator goes with its context; what was taken from it, and is counted there, stays.
TEST(Tensor, OutlivesItsContext) {
  for (int64_t n : {1, 5000}) {
    Tensor t;
    {
      Context context;
      t = Tensor::empty(DType::f64, Sizes{n}, context);
    }
    t.mutable_data_as<double>()[n - 1] = 3;
    EXPECT_EQ(t.item(n - 1), 3);
  }
}

TEST(Tensor, ForeignMemoryIsReleasedOnce) {
  std::vector<float> memory{1, 2, 3};
  int released = 0;
  {
    Tensor t(make_ref<Storage>(memory.data(), 12, Device{}, [&] { ++released; }),
             Layout(DType::f32, Sizes{3}));
    Tensor copy = t;
    t = Tensor();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(copy.item(2), 3);
  }
  EXPECT_EQ(released, 1);
}

TEST(Tensor, ConvertsBetweenAllDtypes) {
  for (DType from : all_dtypes)
    for (DType to : all_dtypes) {
      Tensor t = range(from, {5});
      std::vector<double> expected{0, 1, 2, 3, 4};
      if (from == DType::boolean || to == DType::boolean) expected = {0, 1, 1, 1, 1};
      EXPECT_EQ(t.to(to).to_doubles(), expected) << name_of(from) << " to " << name_of(to);
      EXPECT_EQ(t.to(to).dtype(), to);
    }
}

TEST(Tensor, BitwiseEqualityIsOfBits) {
  auto make = [](double a, double b) {
    return Tensor::from(DType::f32, Sizes{2}, std::vector<double>{a, b});
  };
  EXPECT_TRUE(bitwise_equal(make(1, NAN), make(1, NAN)));
  EXPECT_FALSE(bitwise_equal(make(1, 0.0), make(1, -0.0)));
  EXPECT_FALSE(bitwise_equal(make(1, 2), make(1, 2).to(DType::f64)));
  EXPECT_FALSE(bitwise_equal(range(DType::f32, {2, 3}), range(DType::f32, {3, 2})));
  EXPECT_TRUE(bitwise_equal(Tensor(), Tensor()));
  EXPECT_FALSE(bitwise_equal(make(1, 2), Tensor()));
  EXPECT_TRUE(bitwise_equal(range(DType::f32, {0}), range(DType::f32, {0})));
  Tensor wide = range(DType::f32, {2, 2});
  EXPECT_TRUE(bitwise_equal(wide.view(Layout(DType::f32, {2}, {2}), 1), make(1, 3)));
}

}  // namespace
