#include "gradus/dlpack.h"

#include <cstddef>
#include <limits>

#include <gtest/gtest.h>

#include "tests/tensor/bytes.h"

using namespace gradus;
using namespace gradus::test;

namespace {

// The ABI of version 1 on 64-bit machines.
static_assert(sizeof(DLDataType) == 4 && sizeof(DLDevice) == 8 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48 &&
              offsetof(DLManagedTensor, deleter) == 56);
static_assert(offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, flags) == 24 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

// A producer's tensor: floats 0 to 11 as [3, 4], and a count of deleter calls.
template <class Managed>
struct Producer {
  alignas(64) float memory[12];
  int64_t shape[2] = {3, 4}, strides[2] = {4, 1};
  Managed managed{};
  int deleted = 0;

  Producer() {
    for (int i = 0; i < 12; ++i) memory[i] = static_cast<float>(i);
    DLTensor& d = managed.dl_tensor;
    d = {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->deleted; };
  }
  DLTensor& d() { return managed.dl_tensor; }
};

template <class Managed>
class DLPack : public testing::Test {};
using Structs = testing::Types<DLManagedTensorVersioned, DLManagedTensor>;
TYPED_TEST_SUITE(DLPack, Structs);

template <class Managed>
Managed* out(const Tensor& t) {
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>)
    return to_dlpack(t);
  else
    return to_dlpack_unversioned(t);
}

// SPEC W3
TYPED_TEST(DLPack, TensorsComeInWithoutACopy) {
  Producer<TypeParam> p;
  {
    Tensor t = from_dlpack(&p.managed);
    EXPECT_EQ(describe(t), "f32[3, 4]");
    EXPECT_EQ(t.data_as<float>(), p.memory);
    Tensor view = t.view(Layout(DType::f32, Sizes{2}), 3);
    t = Tensor();
    EXPECT_EQ(p.deleted, 0);  // a view keeps it
    p.memory[3] = 33;
    EXPECT_EQ(view.item(0), 33);
  }
  EXPECT_EQ(p.deleted, 1);
}

TYPED_TEST(DLPack, StridesAndOffsetsComeInAsTheyAre) {
  Producer<TypeParam> p;
  p.shape[0] = 2;
  p.shape[1] = 3;
  p.strides[0] = 1;
  p.strides[1] = 4;
  p.d().byte_offset = 8;
  Tensor t = from_dlpack(&p.managed);
  EXPECT_EQ(t.to_doubles(), (std::vector<double>{2, 6, 10, 3, 7, 11}));
  Producer<TypeParam> expanded;
  expanded.strides[0] = 0;
  EXPECT_EQ(from_dlpack(&expanded.managed).item(8), 0);
  Producer<TypeParam> dense;
  dense.d().strides = nullptr;
  EXPECT_EQ(from_dlpack(&dense.managed).item(5), 5);
  Producer<TypeParam> scalar;
  scalar.d().ndim = 0;
  scalar.d().shape = scalar.d().strides = nullptr;
  EXPECT_EQ(from_dlpack(&scalar.managed).to_doubles(), std::vector<double>{0});
  // The stride of a single element may be anything.
  Producer<TypeParam> single;
  single.shape[0] = 1;
  single.strides[0] = -huge;
  EXPECT_EQ(from_dlpack(&single.managed).numel(), 4);
}

TYPED_TEST(DLPack, EmptyTensorsNeedNoMemory) {
  Producer<TypeParam> p;
  p.shape[0] = 0;
  p.strides[0] = -5;
  p.d().data = nullptr;
  {
    Tensor t = from_dlpack(&p.managed);
    EXPECT_EQ(describe(t), "f32[0, 4]");
    EXPECT_EQ(t.to_doubles(), std::vector<double>{});
    TypeParam* again = out<TypeParam>(t);
    EXPECT_EQ(again->dl_tensor.data, nullptr);
    again->deleter(again);
  }
  EXPECT_EQ(p.deleted, 1);
}

TYPED_TEST(DLPack, EveryDtypeGoesOutAndComesBack) {
  for (int i = 0; i < dtype_count; ++i) {
    Tensor t =
        Tensor::from(static_cast<DType>(i), Sizes{2, 3}, std::vector<double>{0, 1, 1, 0, 1, 0});
    Tensor transposed = t.view(Layout(t.dtype(), {3, 2}, {1, 3}), 0);
    TypeParam* managed = out<TypeParam>(transposed);
    EXPECT_EQ(managed->dl_tensor.data, t.data());
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, 8 * size_of(t.dtype()));
    EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCPU);
    Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.data(), t.data());
    EXPECT_EQ(back.layout(), transposed.layout());
    EXPECT_TRUE(bitwise_equal(back, transposed));
  }
}

TYPED_TEST(DLPack, WhatGoesOutKeepsItsMemory) {
  Counted counted;
  Tensor t = Tensor::empty(DType::f64, Sizes{10}, counted.context);
  TypeParam* managed = out<TypeParam>(t.view(Layout(DType::f64, Sizes{2}), 4));
  EXPECT_EQ(managed->dl_tensor.data, t.data() + 32);
  t = Tensor();
  EXPECT_EQ(counted.heap->live_bytes(), 80u);
  managed->deleter(managed);
  EXPECT_EQ(counted.heap->live_bytes(), 0u);
}

TYPED_TEST(DLPack, RefusalsLeaveTheStructToItsOwner) {
  using P = Producer<TypeParam>;
  struct Case {
    const char* says;
    void (*spoil)(P&);
  };
  const Case cases[] = {
      {"cuda:-1",
       [](P& p) {
         p.d().device = {kDLCUDA, -1};
       }},
      {"rocm:0",
       [](P& p) {
         p.d().device = {kDLROCM, 0};
       }},
      {"DLPack device type 99",
       [](P& p) {
         p.d().device = {static_cast<DLDeviceType>(99), 0};
       }},
      {"-1 dimensions", [](P& p) { p.d().ndim = -1; }},
      {"1000000 dimensions", [](P& p) { p.d().ndim = 1000000; }},
      {"no shape", [](P& p) { p.d().shape = nullptr; }},
      {"4 lanes", [](P& p) { p.d().dtype.lanes = 4; }},
      {"0 lanes", [](P& p) { p.d().dtype.lanes = 0; }},
      {"complex64",
       [](P& p) {
         p.d().dtype = {kDLComplex, 64, 1};
       }},
      {"float8",
       [](P& p) {
         p.d().dtype = {kDLFloat, 8, 1};
       }},
      {"uint4",
       [](P& p) {
         p.d().dtype = {kDLUInt, 4, 1};
       }},
      {"int128",
       [](P& p) {
         p.d().dtype = {kDLInt, 128, 1};
       }},
      {"bool1 ",
       [](P& p) {
         p.d().dtype = {kDLBool, 1, 1};
       }},
      {"type code 200",
       [](P& p) {
         p.d().dtype = {200, 8, 1};
       }},
      {"negative strides [-4, 1]", [](P& p) { p.strides[0] = -4; }},
      {"shape [-3, 4]", [](P& p) { p.shape[0] = -3; }},
      {"more than can be counted", [](P& p) { p.shape[0] = huge; }},
      {"more than can be counted", [](P& p) { p.shape[0] = huge / 8; }},
      {"further than memory", [](P& p) { p.strides[0] = huge / 2; }},
      {"further than memory", [](P& p) { p.strides[0] = huge / 8; }},
      {"byte_offset", [](P& p) { p.d().byte_offset = UINT64_MAX; }},
      {"byte_offset", [](P& p) { p.d().byte_offset = ~reinterpret_cast<uintptr_t>(p.memory); }},
      {"no data", [](P& p) { p.d().data = nullptr; }},
      {"not aligned to 4", [](P& p) { p.d().byte_offset = 2; }},
      {"not aligned to 4", [](P& p) { p.d().data = reinterpret_cast<char*>(p.memory) + 1; }},
      {"bytes other than 0 and 1",
       [](P& p) {
         p.d().dtype = {kDLBool, 8, 1};
         p.strides[0] = 16;
       }},
  };
  for (const Case& c : cases) {
    P p;
    c.spoil(p);
    std::string error = error_of([&] { from_dlpack(&p.managed); });
    EXPECT_NE(error.find(c.says), std::string::npos) << "expected: " << c.says << "\nis: " << error;
    EXPECT_EQ(p.deleted, 0) << c.says;
  }
  EXPECT_THROW(from_dlpack(static_cast<TypeParam*>(nullptr)), Error);
}

TYPED_TEST(DLPack, ADeleterMayBeMissing) {
  Producer<TypeParam> p;
  p.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&p.managed).numel(), 12);
}

TYPED_TEST(DLPack, RefusesToHandOutWhatIsNotThere) {
  EXPECT_THROW(out<TypeParam>(Tensor()), Error);
  float x = 0;
  Tensor device(make_ref<Storage>(&x, 4, Device{DeviceKind::other, 2}, nullptr),
                Layout(DType::f32, Sizes{1}));
  EXPECT_NE(error_of([&] { out<TypeParam>(device); }).find("other:2"), std::string::npos);
}

// Memory of a device is an address that nobody follows here.
TYPED_TEST(DLPack, MemoryOfCudaDevicesGoesOutAndComesIn) {
  auto* address = reinterpret_cast<std::byte*>(uintptr_t{1} << 44);
  int freed = 0;
  Tensor device(make_ref<Storage>(address, 400, Device{DeviceKind::cuda, 2}, [&] { ++freed; }),
                Layout(DType::f32, Sizes{3, 5}, Sizes{1, 4}), 8);
  TypeParam* managed = out<TypeParam>(device);
  EXPECT_EQ(managed->dl_tensor.data, address + 32);
  EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(managed->dl_tensor.device.device_id, 2);
  device = Tensor();
  Tensor back = from_dlpack(managed);
  EXPECT_EQ(back.device(), (Device{DeviceKind::cuda, 2}));
  EXPECT_EQ(back.data(), address + 32);
  EXPECT_EQ(back.strides()[1], 4);
  EXPECT_EQ(freed, 0);
  back = Tensor();
  EXPECT_EQ(freed, 1);
  // Nobody looks at bools there.
  Producer<TypeParam> bools;
  bools.d().device = {kDLCUDA, 0};
  bools.d().dtype = {kDLBool, 8, 1};
  bools.d().data = address;
  EXPECT_EQ(from_dlpack(&bools.managed).dtype(), DType::boolean);
  EXPECT_EQ(bools.deleted, 1);
}

TYPED_TEST(DLPack, PinnedAndManagedMemory) {
  Producer<TypeParam> pinned, managed;
  pinned.d().device = {kDLCUDAHost, 1};
  EXPECT_EQ(from_dlpack(&pinned.managed).item(5), 5);
  managed.d().device = {kDLCUDAManaged, 1};
  EXPECT_EQ(from_dlpack(&managed.managed).device(), (Device{DeviceKind::cuda, 1}));
}

// What a device was given is done before another library's memory there goes.
TYPED_TEST(DLPack, DeletersWaitForTheDevice) {
  static Device fenced;
  static int deleted_then;
  static Producer<TypeParam>* producer;
  Producer<TypeParam> p;
  producer = &p;
  deleted_then = -1;
  p.d().device = {kDLCUDA, 3};
  set_device_fence(DeviceKind::cuda, [](Device d) noexcept {
    fenced = d;
    deleted_then = producer->deleted;
  });
  from_dlpack(&p.managed);
  set_device_fence(DeviceKind::cuda, nullptr);
  EXPECT_EQ(fenced, (Device{DeviceKind::cuda, 3}));
  EXPECT_EQ(deleted_then, 0);
  EXPECT_EQ(p.deleted, 1);
}

TEST(DLPackVersioned, OtherMajorVersionsAreNotTaken) {
  for (uint32_t major : {0u, 2u, 77u}) {
    Producer<DLManagedTensorVersioned> p;
    p.managed.version = {major, 3};
    std::string error = error_of([&] { from_dlpack(&p.managed); });
    EXPECT_NE(error.find(fmt::format("version {}.3", major)), std::string::npos) << error;
    EXPECT_EQ(p.deleted, 0);
  }
  Producer<DLManagedTensorVersioned> newer;
  newer.managed.version = {1, 9};
  EXPECT_EQ(from_dlpack(&newer.managed).numel(), 12);
}

TEST(DLPackVersioned, FlagsGoOutAndAreUnderstood) {
  Tensor t = Tensor::zeros(DType::f32, Sizes{2});
  DLManagedTensorVersioned* plain = to_dlpack(t);
  DLManagedTensorVersioned* read_only = to_dlpack(t, true);
  EXPECT_EQ(plain->flags, 0u);
  EXPECT_EQ(plain->version.major, 1u);
  EXPECT_EQ(read_only->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  plain->deleter(plain);
  EXPECT_EQ(from_dlpack(read_only).numel(), 2);  // read-only ones are taken
}

}  // namespace
