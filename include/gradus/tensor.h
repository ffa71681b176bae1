// Tensors: where memory lies, how elements lie in it, and the handle of both.
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

// Where memory lies.

namespace gradus {

// `other` is a device that an embedder brings.
enum class DeviceKind : uint8_t { cpu, cuda, other };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda:0" or "other:1".
inline std::string to_string(Device d) {
  if (d.kind == DeviceKind::cpu) return "cpu";
  return (d.kind == DeviceKind::cuda ? "cuda:" : "other:") + std::to_string(d.index);
}

// How elements lie in memory: dtype, sizes, strides.

using Sizes = SmallVector<int64_t, 4>;  // numbers of elements, or strides

// Number of elements; nullopt if it (or a negative size) does not fit an int64.
std::optional<int64_t> checked_numel(std::span<const int64_t> shape);
// Number of elements of sizes known to be sane.
int64_t numel(std::span<const int64_t> shape);
Sizes contiguous_strides(std::span<const int64_t> shape);
// Drops dimensions of size 1 and joins neighbours that all walk in one stride; one is left.
void join_dimensions(Sizes& shape, std::span<Sizes* const> strides);
// "[2, 3]"
std::string to_string(std::span<const int64_t> shape);

// Strides are in elements and may be zero (expanded) or negative never.
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
  // Row-major without gaps; sizes 1 have no say, empty ones are contiguous.
  bool contiguous() const;
  // Elements between the first and one past the last one touched.
  int64_t extent() const;
  // The same for a layout from outside; nullopt where a size or stride is negative, or where the
  // number of elements or the extent does not fit an int64.
  std::optional<int64_t> checked_extent() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// The strides under which `layout` can be seen with another shape of as many elements without a
// copy, if there are any.
std::optional<Sizes> view_strides(const Layout& layout, std::span<const int64_t> shape);

// A counted block of memory with a version.

// Counts are thread-safe, the bytes are not. The version rises with every write made through a
// tensor's `mutable_data`; foreign writers (DLPack, NumPy) cannot be watched.
class Storage final : public RefCounted, public pool::Object {
 public:
  // Uninitialised memory from `allocator`. Throws ResourceError.
  Storage(std::shared_ptr<Allocator> allocator, size_t bytes);
  // Foreign memory: `release` is called once, on the thread that drops the last reference.
  Storage(void* data, size_t bytes, Device device, std::function<void()> release);
  ~Storage() override;

  // In a pooled block of `block_bytes`: the storage lies `offset` after its start, `bytes` of
  // elements (counted by `heap`) `data_offset` after it, and what whoever makes it puts between
  // them. The block goes with the storage. Throws ResourceError.
  struct Block {
    size_t block_bytes, offset, data_offset, bytes;
  };
  static Storage* make_pooled(HeapAllocator& heap, const Block& block);
  // Frees a pooled block to which the caller has the only reference, which is gone then.
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
  HeapAllocator::Counts* const counts_ = nullptr;  // of a pooled one
  const uint32_t block_bytes_ = 0, offset_ = 0;    // likewise
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<const std::function<void()>> release_;
};

// Tensors: a view (dtype, shape, strides, offset) of counted storage.

// A value handle: copying shares the storage. A default-made tensor is undefined (as a missing
// gradient is). Handles may be copied from any thread; one handle is not for two threads at once.
class Tensor {
 public:
  Tensor() = default;
  // `offset` in elements. Throws Error where the layout reaches outside the storage.
  Tensor(Ref<Storage> storage, Layout layout, int64_t offset = 0);

  // Uninitialised, contiguous. Throws Error for sizes that overflow, ResourceError for no memory.
  static Tensor empty(DType dtype, std::span<const int64_t> shape, Context& context);
  static Tensor empty(DType dtype, std::span<const int64_t> shape);
  // Of a contiguous layout whose sizes are known to be sane, as a kernel's result has.
  static Tensor of_layout(const Layout& layout, Context& context);
  // The same where the bytes are known, too.
  static Tensor of_layout(const Layout& layout, size_t bytes, Context& context) {
    return make(layout, bytes, context);
  }
  static Tensor zeros(DType dtype, std::span<const int64_t> shape);
  // A contiguous tensor with these elements, converted to `dtype`. Throws Error for a wrong count.
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
  int64_t offset() const { return body_->offset; }  // in elements
  Device device() const { return body_->storage->device(); }
  const Ref<Storage>& storage() const { return body_->storage; }
  uint64_t version() const { return body_->storage->version(); }

  // The first element. Reading only.
  const std::byte* data() const { return body_->data; }
  template <class T>
  const T* data_as() const {
    return reinterpret_cast<const T*>(body_->data);
  }
  // For writing: raises the version, so that whoever holds the values notices.
  std::byte* mutable_data() {
    body_->storage->bump_version();
    return body_->data;
  }
  template <class T>
  T* mutable_data_as() {
    return reinterpret_cast<T*>(mutable_data());
  }

  // Another view of the same storage. `offset` counts from the storage's start, in elements.
  Tensor view(Layout layout, int64_t offset) const;
  // Whatever reads elements throws Error for a tensor on a device: autograd::move_to copies it.
  // Itself if contiguous, else a copy.
  Tensor contiguous() const;
  // A contiguous copy with storage of its own.
  Tensor copy() const;
  // The values converted element by element (floats saturate into integers, NaN becomes 0).
  Tensor to(DType dtype) const;
  // Any dtype as doubles, row-major. For tests, printing and small things.
  std::vector<double> to_doubles() const;
  std::vector<int64_t> to_int64s() const;
  // Element at a row-major index, as double.
  double item(int64_t index = 0) const;

  // Whether nothing else refers to the memory: no other tensor and no copy of this handle.
  bool sole_owner() const { return body_->use_count() == 1 && body_->storage->use_count() == 1; }

  // Whether it is known without a look at its strides that it is contiguous and begins where its
  // storage does. Small ones are, unless they are views.
  bool plain() const { return body_->in_block; }
  // Has the processor fetch what a kernel that reads it needs first.
  void prefetch() const {
    __builtin_prefetch(body_.get());
    if (body_) __builtin_prefetch(reinterpret_cast<const std::byte*>(body_.get()) - 64);
  }

  // The same storage, layout and offset.
  bool same_as(const Tensor& other) const;

 private:
  struct Body final : RefCounted, pool::Object {
    Body() = default;
    explicit Body(const Layout& l) : layout(l) {}
    bool in_block = false;  // lies in the storage's pooled block, which it keeps
    Ref<Storage> storage;
    std::byte* data = nullptr;
    int64_t offset = 0;
    Layout layout;

   private:
    void dispose() const override;
  };
  // A contiguous one of so many bytes.
  static Tensor make(const Layout& layout, size_t bytes, Context& context);
  Ref<Body> body_;
};

// "f32[2, 3]" or "undefined".
std::string describe(const Tensor& t);

// Bitwise: the same dtype, shape and element bits (so that NaN equals NaN and 0 differs from -0).
bool bitwise_equal(const Tensor& a, const Tensor& b);

// Copies elements between layouts of the same shape, converting dtypes (as Tensor::to).
// Pointers are to the first elements.
void copy_elements(const Layout& from, const std::byte* source, const Layout& to,
                   std::byte* target);

}  // namespace gradus

#pragma GCC visibility pop
