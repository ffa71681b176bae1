#include "gradus/tensor.h"

#include <algorithm>

#include "gradus/convert.h"
#include "gradus/read_watch.h"

namespace gradus {

Tensor::Tensor(Ref<Storage> storage, Layout layout, int64_t offset) {
  GRADUS_CHECK(storage && layout.shape.size() == layout.strides.size());
  int64_t size = static_cast<int64_t>(size_of(layout.dtype));
  int64_t capacity = static_cast<int64_t>(storage->bytes()) / size;
  auto extent = layout.checked_extent();
  if (offset < 0 || !extent || *extent > capacity - offset)
    throw Error(
        "a view of shape {} with strides {} and offset {} reaches outside its storage of {} "
        "elements",
        to_string(layout.shape), to_string(layout.strides), offset, capacity);
  auto body = make_ref<Body>();
  body->data = storage->data() + offset * size;
  body->storage = std::move(storage);
  body->layout = std::move(layout);
  body->offset = offset;
  body_ = std::move(body);
}

Tensor Tensor::empty(DType dtype, std::span<const int64_t> shape, Context& context) {
  auto count = checked_numel(shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(size_of(dtype)), &bytes))
    throw Error("a tensor {}{} has more elements than can be counted", name_of(dtype),
                to_string(shape));
  return make(Layout(dtype, Sizes(shape)), static_cast<size_t>(bytes), context);
}

Tensor Tensor::of_layout(const Layout& layout, Context& context) {
  return make(layout, static_cast<size_t>(layout.numel()) * size_of(layout.dtype), context);
}

// What is small lies in one block: the elements, the storage, the body. With the elements first few
// lines of memory hold all that is read of a tensor; a sanitizer sees more if they are last.
Tensor Tensor::make(const Layout& layout, size_t bytes, Context& context) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool data_first = false;
#else
  constexpr bool data_first = true;
#endif
  constexpr size_t unit = std::max(alignof(Storage), alignof(Body)), alignment = 64;
  static_assert(alignment == Allocator::alignment);
  constexpr size_t storage_bytes = (sizeof(Storage) + unit - 1) / unit * unit;
  constexpr size_t head = (storage_bytes + sizeof(Body) + alignment - 1) / alignment * alignment;
  constexpr size_t most_small_bytes = pool::most_bytes - head;
  HeapAllocator* heap = context.heap();
  Tensor t;
  if (heap && bytes <= most_small_bytes) [[likely]] {
    const size_t at = data_first ? (bytes + unit - 1) / unit * unit : 0;
    Storage* storage =
        data_first ? Storage::make_pooled(*heap, {at + storage_bytes + sizeof(Body), at, 0, bytes})
                   : Storage::make_pooled(*heap, {head + bytes, 0, head, bytes});
    auto* body = new (reinterpret_cast<std::byte*>(storage) + storage_bytes) Body(layout);
    body->in_block = true;
    body->storage = Ref<Storage>::first(storage);
    body->data = storage->data();
    t.body_ = Ref<Body>::first(body);
    return t;
  }
  auto body = make_ref<Body>(layout);
  body->storage = make_ref<Storage>(context.allocator(), bytes);
  body->data = body->storage->data();
  t.body_ = std::move(body);
  return t;
}

void Tensor::Body::dispose() const {
  if (!in_block) {
    delete this;
    return;
  }
  auto* self = const_cast<Body*>(this);
  // Where nobody else knows of the storage, nobody can come to know of it.
  if (storage->use_count() == 1) {
    Storage* block = self->storage.leave();
    self->~Body();
    block->free_pooled();
    return;
  }
  Ref<Storage> block = std::move(self->storage);  // goes when nothing is in it any more
  self->~Body();
}

Tensor Tensor::empty(DType dtype, std::span<const int64_t> shape) {
  return empty(dtype, shape, *Context::default_context());
}

Tensor Tensor::zeros(DType dtype, std::span<const int64_t> shape) {
  Tensor t = empty(dtype, shape);
  std::memset(t.body_->data, 0, t.storage()->bytes());
  return t;
}

Tensor Tensor::from(DType dtype, std::span<const int64_t> shape, std::span<const double> values) {
  Tensor t = empty(dtype, shape);
  if (t.numel() != static_cast<int64_t>(values.size()))
    throw Error("{} values do not fill the shape {}", values.size(), to_string(shape));
  copy_elements(Layout(DType::f64, Sizes(shape)), reinterpret_cast<const std::byte*>(values.data()),
                t.layout(), t.body_->data);
  return t;
}

Tensor Tensor::scalar(DType dtype, double value) { return from(dtype, {}, {&value, 1}); }

ReadWatch*& ReadWatch::current() {
  static constinit thread_local ReadWatch* current = nullptr;
  return current;
}

namespace {
// Before its elements are read.
void check_readable(const Tensor& t) {
  if (t.device() != Device()) [[unlikely]]
    throw Error("{} lies on {}; its elements are read from a copy on the cpu", describe(t),
                to_string(t.device()));
  if (ReadWatch* watch = ReadWatch::current()) [[unlikely]]
    watch->reads(t);
}
}  // namespace

Tensor Tensor::view(Layout layout, int64_t offset) const {
  return Tensor(storage(), std::move(layout), offset);
}

Tensor Tensor::contiguous() const { return layout().contiguous() ? *this : copy(); }

Tensor Tensor::copy() const { return to(dtype()); }

Tensor Tensor::to(DType dtype) const {
  check_readable(*this);
  Tensor t = empty(dtype, shape());
  copy_elements(layout(), data(), t.layout(), t.body_->data);
  return t;
}

std::vector<double> Tensor::to_doubles() const {
  check_readable(*this);
  std::vector<double> values(static_cast<size_t>(numel()));
  copy_elements(layout(), data(), Layout(DType::f64, Sizes(shape())),
                reinterpret_cast<std::byte*>(values.data()));
  return values;
}

std::vector<int64_t> Tensor::to_int64s() const {
  check_readable(*this);
  std::vector<int64_t> values(static_cast<size_t>(numel()));
  copy_elements(layout(), data(), Layout(DType::i64, Sizes(shape())),
                reinterpret_cast<std::byte*>(values.data()));
  return values;
}

double Tensor::item(int64_t index) const {
  if (index < 0 || index >= numel())
    throw Error("element {} of a tensor of {} elements was asked for", index, numel());
  check_readable(*this);
  const Layout& l = layout();
  int64_t at = 0;
  for (int i = l.rank() - 1; i >= 0; --i) {
    at += index % l.shape[i] * l.strides[i];
    index /= l.shape[i];
  }
  return visit_dtype(dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return convert<double>(data_as<T>()[at]);
  });
}

bool Tensor::same_as(const Tensor& o) const {
  if (!defined() || !o.defined()) return defined() == o.defined();
  return storage() == o.storage() && offset() == o.offset() && layout() == o.layout();
}

std::string describe(const Tensor& t) {
  return t.defined() ? std::string(name_of(t.dtype())) + to_string(t.shape()) : "undefined";
}

bool bitwise_equal(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.layout().shape != b.layout().shape) return false;
  check_readable(a);
  check_readable(b);
  Tensor x = a.contiguous(), y = b.contiguous();
  size_t bytes = static_cast<size_t>(x.numel()) * size_of(a.dtype());
  return bytes == 0 || std::memcmp(x.data(), y.data(), bytes) == 0;
}

namespace {

template <class From, class To>
void copy_row(const From* source, int64_t step, To* target, int64_t target_step, int64_t n) {
  if (step == 1 && target_step == 1) {
    for (int64_t i = 0; i < n; ++i) target[i] = convert<To>(source[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) target[i * target_step] = convert<To>(source[i * step]);
  }
}

}  // namespace

void copy_elements(const Layout& from, const std::byte* source, const Layout& to,
                   std::byte* target) {
  GRADUS_CHECK(from.shape == to.shape);
  int64_t n = from.numel();
  if (n == 0) return;
  if (from.dtype == to.dtype && from.contiguous() && to.contiguous()) {
    std::memcpy(target, source, static_cast<size_t>(n) * size_of(from.dtype));
    return;
  }
  int outer = std::max(from.rank() - 1, 0);
  int64_t row = from.rank() ? from.shape.back() : 1;
  int64_t step = from.rank() ? from.strides.back() : 1;
  int64_t target_step = from.rank() ? to.strides.back() : 1;
  visit_dtype(from.dtype, [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    auto copy_to = [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      auto* s = reinterpret_cast<const From*>(source);
      auto* t = reinterpret_cast<To*>(target);
      Sizes index(static_cast<size_t>(outer), 0);
      int64_t s_at = 0, t_at = 0;
      for (int64_t rows = n / row; rows-- > 0;) {
        copy_row(s + s_at, step, t + t_at, target_step, row);
        for (int d = outer - 1; d >= 0; --d) {
          s_at += from.strides[d];
          t_at += to.strides[d];
          if (++index[d] < from.shape[d]) break;
          s_at -= from.strides[d] * from.shape[d];
          t_at -= to.strides[d] * from.shape[d];
          index[d] = 0;
        }
      }
    };
    // What an integer wraps to has the same bits for both signs.
    if constexpr (std::is_integral_v<From>)
      visit_signed(to.dtype, copy_to);
    else
      visit_dtype(to.dtype, copy_to);
  });
}

}  // namespace gradus
