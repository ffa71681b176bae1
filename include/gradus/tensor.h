// Tensors and their parts: devices, layouts and storage.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/context.h"
#include "gradus/dtype.h"
#include "gradus/error.h"
#include "gradus/pool.h"
#include "gradus/ref.h"
#include "gradus/small_vector.h"

#pragma GCC visibility push(default)

// Devices.

namespace gradus {

// The kind of a device. `other` is a device whose backend the program provides.
enum class DeviceKind : uint8_t { cpu, cuda, other };
// A device. The CPU is one device; others have an index.

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// Returns "cpu", "cuda:0" or "other:1".
inline std::string to_string(Device d) {
  if (d.kind == DeviceKind::cpu) return "cpu";
  return (d.kind == DeviceKind::cuda ? "cuda:" : "other:") + std::to_string(d.index);
}

// Layouts: dtype, sizes and strides of the elements in memory.

using Sizes = SmallVector<int64_t, 4>;  // sizes, or strides, in elements

// The number of elements. nullopt if a size is negative or the number does not fit an int64. For an
// empty shape, sizes of 0 count as 1 in that check.
std::optional<int64_t> checked_numel(std::span<const int64_t> shape);
// The number of elements, without checks.
int64_t numel(std::span<const int64_t> shape);
// The strides, in elements, of a row-major layout without gaps.
Sizes contiguous_strides(std::span<const int64_t> shape);
// Removes dimensions of size 1, and joins neighbouring dimensions that have one common stride in
// all of `strides`. At least one dimension remains.
void join_dimensions(Sizes& shape, std::span<Sizes* const> strides);
// Returns the sizes as text, such as "[2, 3]".
std::string to_string(std::span<const int64_t> shape);

// Dtype, sizes and strides. Strides are in elements. They are never negative, and zero in an
// expanded dimension.
struct Layout {
  DType dtype = DType::f32;
  Sizes shape;
  Sizes strides;

  Layout() = default;
  Layout(DType d, Sizes sizes)
      : dtype(d), shape(std::move(sizes)), strides(contiguous_strides(shape)) {}
  Layout(DType d, Sizes sizes, Sizes steps)
      : dtype(d), shape(std::move(sizes)), strides(std::move(steps)) {}

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t numel() const { return gradus::numel(shape); }
  // Whether the layout is row-major without gaps. Strides of dimensions of size 1 do not matter. An
  // empty layout is contiguous.
  bool contiguous() const;
  // The number of elements from the first to the last one in memory, including gaps.
  int64_t extent() const;
  // The extent of an unchecked layout. nullopt if a size or stride is negative, or if the number of
  // elements or the extent does not fit an int64.
  std::optional<int64_t> checked_extent() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// The strides with which a view of the elements of `layout` has another shape of the same number of
// elements. nullopt if this needs a copy.
std::optional<Sizes> view_strides(const Layout& layout, std::span<const int64_t> shape);

// Storage: a counted block of memory with a version.

// A block of memory. Its reference count and its version are thread-safe, its bytes are not. Every
// call of `mutable_data` of a tensor raises the version. Writes by others (DLPack, NumPy) do not.
class Storage final : public RefCounted, public pool::Object {
 public:
  // Allocates uninitialised memory. Throws the exception of `allocator`, which is ResourceError if
  // there is no memory.
  Storage(std::shared_ptr<Allocator> allocator, size_t bytes);
  // Refers to foreign memory. `release`, if set, is called once, on the thread that drops the last
  // reference.
  Storage(void* data, size_t bytes, Device device, std::function<void()> release);
  ~Storage() override;

  // A pooled block of `block_bytes`. The storage object is at `offset`. The elements are `bytes`
  // bytes at `data_offset`, and `heap` counts them. The caller uses the rest. The block is freed
  // with the storage. Throws ResourceError.
  struct Block {
    size_t block_bytes, offset, data_offset, bytes;
  };
  static Storage* make_pooled(HeapAllocator& heap, const Block& block);
  // Frees a pooled block. The caller must hold the only reference, which is then invalid.
  void free_pooled() noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  void bump_version() { version_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  Storage(HeapAllocator& heap, std::byte* start, const Block& block);
  void dispose() const override;

  Device device_;
  std::byte* data_;
  size_t bytes_;
  std::atomic<uint64_t> version_{0};
  HeapAllocator::Counts* const counts_ = nullptr;  // of a pooled storage
  const uint32_t block_bytes_ = 0, offset_ = 0;    // of a pooled storage
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<const std::function<void()>> release_;
};

// Tensors: a view (dtype, shape, strides, offset) of a storage.

// A handle: a copy refers to the same storage. A default-constructed tensor is undefined, like an
// absent gradient. Only `defined`, `same_as`, `describe` and `bitwise_equal` accept an undefined
// tensor. Handles may be copied on any thread. One handle must not be used on two threads at the
// same time.
class Tensor {
 public:
  Tensor() = default;
  // A view of `storage` that begins at element `offset`. Throws Error if the layout reaches outside
  // the storage.
  Tensor(Ref<Storage> storage, Layout layout, int64_t offset = 0);

  // An uninitialised, contiguous tensor. Without a context, the default context allocates it.
  // Throws Error if the number of bytes overflows, ResourceError if there is no memory.
  static Tensor empty(DType dtype, std::span<const int64_t> shape, Context& context);
  static Tensor empty(DType dtype, std::span<const int64_t> shape);
  // An uninitialised tensor of a contiguous layout, whose sizes are not checked.
  static Tensor of_layout(const Layout& layout, Context& context);
  // The same, with the number of bytes known.
  static Tensor of_layout(const Layout& layout, size_t bytes, Context& context) {
    return make(layout, bytes, context);
  }
  // A contiguous tensor of zeros, from the default context. Throws like `empty`.
  static Tensor zeros(DType dtype, std::span<const int64_t> shape);
  // A contiguous tensor of these elements, row-major and converted to `dtype`, from the default
  // context. Throws Error if the number of values is not the number of elements.
  static Tensor from(DType dtype, std::span<const int64_t> shape, std::span<const double> values);
  static Tensor scalar(DType dtype, double value);

  bool defined() const { return static_cast<bool>(body_); }
  explicit operator bool() const { return defined(); }

  DType dtype() const { return body_->layout.dtype; }
  const Layout& layout() const { return body_->layout; }
  std::span<const int64_t> shape() const { return body_->layout.shape; }
  std::span<const int64_t> strides() const { return body_->layout.strides; }
  int rank() const { return body_->layout.rank(); }
  int64_t numel() const { return body_->layout.numel(); }
  int64_t offset() const { return body_->offset; }  // from the start of the storage, in elements
  Device device() const { return body_->storage->device(); }
  const Ref<Storage>& storage() const { return body_->storage; }
  uint64_t version() const { return body_->storage->version(); }

  // The address of the first element, for reading.
  const std::byte* data() const { return body_->data; }
  template <class T>
  const T* data_as() const {
    return reinterpret_cast<const T*>(body_->data);
  }
  // The address of the first element, for writing. Raises the version, by which States and the
  // engine detect changes.
  std::byte* mutable_data() {
    body_->storage->bump_version();
    return body_->data;
  }
  template <class T>
  T* mutable_data_as() {
    return reinterpret_cast<T*>(mutable_data());
  }

  // Another view of the same storage. `offset` counts from the start of the storage, in elements.
  // Throws Error if the layout reaches outside the storage.
  Tensor view(Layout layout, int64_t offset) const;
  // Returns this tensor if it is contiguous, otherwise a copy. The default context allocates this
  // copy and those of the functions below. These functions throw Error if they read elements of a
  // tensor on a device; autograd::move_to copies such a tensor.
  Tensor contiguous() const;
  // Returns a contiguous copy with its own storage.
  Tensor copy() const;
  // Returns a contiguous copy with every element converted. A float is rounded toward zero and
  // saturates in an integer; NaN becomes 0.
  Tensor to(DType dtype) const;
  // Returns the elements of any dtype as doubles, row-major. For tests, printing and small tensors.
  std::vector<double> to_doubles() const;
  // Returns the elements as int64, converted as in `to`.
  std::vector<int64_t> to_int64s() const;
  // Returns the element at a row-major index as a double. Throws Error if there is no such element.
  double item(int64_t index = 0) const;

  // Whether this handle is the only reference to the memory.
  bool sole_owner() const { return body_->use_count() == 1 && body_->storage->use_count() == 1; }

  // Whether the tensor is known, without a test of its strides, to be contiguous and to begin at
  // the start of its storage. This is so for small tensors that are not views.
  bool plain() const { return body_->in_block; }
  // Prefetches the memory that a kernel reads first.
  void prefetch() const {
    __builtin_prefetch(body_.get());
    if (body_) __builtin_prefetch(reinterpret_cast<const std::byte*>(body_.get()) - 64);
  }

  // Whether storage, layout and offset are the same. Two undefined tensors are the same.
  bool same_as(const Tensor& other) const;

 private:
  struct Body final : RefCounted, pool::Object {
    Body() = default;
    explicit Body(const Layout& l) : layout(l) {}
    bool in_block = false;  // the body is in the storage's pooled block
    Ref<Storage> storage;
    std::byte* data = nullptr;
    int64_t offset = 0;
    Layout layout;

   private:
    void dispose() const override;
  };
  // A contiguous tensor of this number of bytes.
  static Tensor make(const Layout& layout, size_t bytes, Context& context);
  Ref<Body> body_;
};

// Returns the dtype and shape as text, such as "f32[2, 3]", or "undefined".
std::string describe(const Tensor& t);

// Whether dtype, shape and element bits are the same: NaN equals NaN, and 0 differs from -0. Two
// undefined tensors are equal. Throws Error for tensors on a device.
bool bitwise_equal(const Tensor& a, const Tensor& b);

// Copies elements between layouts of the same shape, and converts dtypes like Tensor::to. The
// pointers are the addresses of the first elements, in host memory.
void copy_elements(const Layout& from, const std::byte* source, const Layout& to,
                   std::byte* target);

}  // namespace gradus

#pragma GCC visibility pop
