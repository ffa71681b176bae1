// Tensors: a view (dtype, shape, strides, offset) of counted storage.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/error.h"
#include "base/ref.h"
#include "tensor/layout.h"
#include "tensor/storage.h"

#pragma GCC visibility push(default)

namespace gradus {

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
