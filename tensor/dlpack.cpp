#include "gradus/dlpack.h"

#include <array>
#include <atomic>
#include <memory>

#include "gradus/read_watch.h"

namespace gradus {

namespace {

struct Code {
  uint8_t code, bits;
};

constexpr Code codes[dtype_count] = {
    {kDLFloat, 64}, {kDLFloat, 32}, {kDLFloat, 16}, {kDLBfloat, 16}, {kDLInt, 64},
    {kDLInt, 32},   {kDLInt, 8},    {kDLUInt, 8},   {kDLBool, 8},    {kDLInt, 16},
    {kDLUInt, 16},  {kDLUInt, 32},  {kDLUInt, 64}};

// ---- Out ----

// What an exported struct points to, and the struct itself.
template <class Managed>
struct Exported {
  Tensor tensor;
  Sizes shape, strides;
  Managed managed{};
};

template <class Managed>
Managed* export_tensor(const Tensor& t) {
  if (!t.defined()) throw Error("an undefined tensor cannot be handed out through DLPack");
  if (t.device().kind == DeviceKind::other)
    throw Error("a tensor on {} cannot be handed out through DLPack; copy it to the cpu first",
                to_string(t.device()));
  const bool on_cuda = t.device().kind == DeviceKind::cuda;
  if (const ReadWatch* watch = ReadWatch::current()) watch->reads(t);
  auto owner = std::make_unique<Exported<Managed>>();
  owner->tensor = t;
  owner->shape = t.layout().shape;
  owner->strides = t.layout().strides;
  Managed& m = owner->managed;
  DLTensor& d = m.dl_tensor;
  // The first element's address and no offset, as everyone does: some consumers forget the offset.
  // Without elements there is no address, says the specification.
  d.data = t.numel() == 0 ? nullptr : const_cast<std::byte*>(t.data());
  d.byte_offset = 0;
  d.device = {on_cuda ? kDLCUDA : kDLCPU, t.device().index};
  d.ndim = t.rank();
  d.dtype = {codes[static_cast<int>(t.dtype())].code, codes[static_cast<int>(t.dtype())].bits, 1};
  d.shape = owner->shape.data();
  d.strides = owner->strides.data();
  m.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  m.manager_ctx = owner.get();
  return &owner.release()->managed;
}

// ---- In ----

std::string device_name(DLDevice d) {
  static constexpr std::string_view names[] = {
      "unknown", "cpu",          "cuda",   "cuda_host", "opencl",  "unknown",
      "unknown", "vulkan",       "metal",  "vpi",       "rocm",    "rocm_host",
      "ext_dev", "cuda_managed", "oneapi", "webgpu",    "hexagon", "maia"};
  auto type = static_cast<uint32_t>(d.device_type);
  return fmt::format("{}:{} (DLPack device type {})", names[type < std::size(names) ? type : 0],
                     d.device_id, type);
}

DType dtype_of(DLDataType d) {
  if (d.lanes != 1)
    throw Error(
        "a DLPack tensor's elements have {} lanes; only plain elements are taken, reshape "
        "it to have the lanes as its last dimension",
        d.lanes);
  for (int i = 0; i < dtype_count; ++i)
    if (codes[i].code == d.code && codes[i].bits == d.bits) return static_cast<DType>(i);
  static constexpr std::string_view kinds[] = {"int",    "uint",    "float", "handle",
                                               "bfloat", "complex", "bool"};
  throw Error(
      "a DLPack tensor of {}{} (type code {}) has no counterpart; convert it to f64, f32, "
      "f16, bf16, an integer of 8 to 64 bits or bool before handing it over",
      d.code < std::size(kinds) ? kinds[d.code] : "type", d.bits, d.code);
}

// Throws Error for sizes and strides that are not to be trusted.
Layout layout_of(const DLTensor& d) {
  constexpr int32_t largest_rank = 64;
  if (d.ndim < 0 || d.ndim > largest_rank)
    throw Error("a DLPack tensor of {} dimensions is not taken; 0 to {} are", d.ndim, largest_rank);
  auto rank = static_cast<size_t>(d.ndim);
  if (rank > 0 && !d.shape) throw Error("a DLPack tensor has dimensions and no shape (null)");
  DType dtype = dtype_of(d.dtype);
  Sizes shape(d.shape, d.shape + rank);
  auto item = static_cast<int64_t>(size_of(dtype));
  auto count = checked_numel(shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, item, &bytes))
    throw Error("a DLPack tensor's shape {} is negative or more than can be counted",
                to_string(shape));
  if (!d.strides || *count == 0) return Layout(dtype, std::move(shape));
  Sizes strides(d.strides, d.strides + rank);
  Sizes dense = contiguous_strides(shape);
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] == 1) {
      strides[i] = dense[i];  // never stepped along: producers write anything
    } else if (strides[i] < 0) {
      throw Error(
          "a DLPack tensor has the negative strides {}; make it contiguous before handing "
          "it over",
          to_string(strides));
    }
  }
  Layout layout(dtype, std::move(shape), std::move(strides));
  auto extent = layout.checked_extent();
  if (!extent || __builtin_mul_overflow(*extent, item, &bytes))
    throw Error("a DLPack tensor of shape {} with strides {} reaches further than memory",
                to_string(layout.shape), to_string(layout.strides));
  return layout;
}

// Any other byte, read as a bool, would be undefined behaviour.
void check_bools(const Layout& layout, const std::byte* data) {
  int64_t rows = layout.numel();
  int64_t row = layout.rank() ? layout.shape.back() : 1;
  int64_t step = layout.rank() ? layout.strides.back() : 1;
  if (rows == 0) return;
  Sizes index(layout.shape.size(), 0);
  for (rows /= row; rows-- > 0;) {
    std::byte seen{0};
    for (int64_t i = 0; i < row; ++i) seen |= data[i * step];
    if (seen > std::byte{1})
      throw Error("a DLPack tensor of bools holds bytes other than 0 and 1; hand it over as u8");
    for (int i = layout.rank() - 2; i >= 0; --i) {
      data += layout.strides[i];
      if (++index[i] < layout.shape[i]) break;
      data -= layout.strides[i] * layout.shape[i];
      index[i] = 0;
    }
  }
}

// Throws Error for memory that is neither the host's nor a cuda device's.
Device place_of(DLDevice d) {
  const bool numbered = d.device_id >= 0 && d.device_id <= UINT16_MAX;
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return {};
  if (numbered && (d.device_type == kDLCUDA || d.device_type == kDLCUDAManaged))
    return {DeviceKind::cuda, static_cast<uint16_t>(d.device_id)};
  throw Error("a DLPack tensor on {} is not taken; copy it to the cpu first", device_name(d));
}

std::atomic<DeviceFence>& fence_of(DeviceKind kind) {
  static constinit std::array<std::atomic<DeviceFence>, 3> fences{};
  return fences[static_cast<size_t>(kind)];
}

template <class Managed>
Tensor import_tensor(Managed* managed) {
  const DLTensor& d = managed->dl_tensor;
  const Device place = place_of(d.device);
  Layout layout = layout_of(d);
  size_t item = size_of(layout.dtype);
  auto bytes = static_cast<size_t>(layout.extent()) * item;
  auto address = reinterpret_cast<uintptr_t>(d.data);
  if (bytes > 0) {
    if (!d.data)
      throw Error("a DLPack tensor of shape {} has no data (null)", to_string(layout.shape));
    uintptr_t end = 0;
    if (__builtin_add_overflow(address, d.byte_offset, &address) ||
        __builtin_add_overflow(address, bytes, &end))
      throw Error("a DLPack tensor with byte_offset {} reaches further than memory", d.byte_offset);
    if (address % item != 0)
      throw Error(
          "a DLPack tensor's {} elements are not aligned to {} bytes; copy it before "
          "handing it over",
          name_of(layout.dtype), item);
  }
  auto* first = bytes > 0 ? static_cast<std::byte*>(d.data) + d.byte_offset : nullptr;
  if (layout.dtype == DType::boolean && place == Device()) check_bools(layout, first);

  // Should making the tensor fail, the struct stays the caller's: it is taken at the very end.
  auto taken = std::make_shared<bool>(false);
  auto release = [managed, taken, place] {
    if (!*taken || !managed->deleter) return;
    if (DeviceFence fence = fence_of(place.kind).load(std::memory_order_acquire)) fence(place);
    managed->deleter(managed);
  };
  Tensor tensor(make_ref<Storage>(first, bytes, place, std::move(release)), std::move(layout));
  *taken = true;
  return tensor;
}

}  // namespace

void set_device_fence(DeviceKind kind, DeviceFence fence) {
  fence_of(kind).store(fence, std::memory_order_release);
}

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, bool read_only) {
  auto* managed = export_tensor<DLManagedTensorVersioned>(tensor);
  managed->version = {1, 0};
  managed->flags = read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) {
  return export_tensor<DLManagedTensor>(tensor);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) throw Error("a DLPack tensor was expected and null was given");
  // Of another major version nothing but the deleter is where it seems to be.
  if (managed->version.major != 1)
    throw Error("a DLPack tensor of version {}.{} is not understood; ask its library for version 1",
                managed->version.major, managed->version.minor);
  return import_tensor(managed);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw Error("a DLPack tensor was expected and null was given");
  return import_tensor(managed);
}

}  // namespace gradus
