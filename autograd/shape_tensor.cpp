#include "autograd/shape_tensor.h"

#include <atomic>

#include <sys/mman.h>

#include "gradus/read_watch.h"

namespace gradus {

namespace {

constexpr size_t zeros_bytes = size_t{1} << 40;  // of addresses

// Pages that nobody writes are the machine's one page of zeros.
std::byte* zeros() {
#if __has_include(<sys/mman.h>)
  static std::byte* const start = [] {
    void* p =
        mmap(nullptr, zeros_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
  }();
  return start;
#else
  return nullptr;
#endif
}

std::atomic<const std::byte*> begun{nullptr};  // `zeros`, once it was asked for

}  // namespace

Tensor autograd::shape_tensor(const ir::Type& type) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  const auto count = checked_numel(shape);
  std::byte* memory = zeros();
  if (!memory || !count || static_cast<size_t>(*count) > zeros_bytes / size_of(type.dtype))
    return {};
  begun.store(memory, std::memory_order_relaxed);
  auto storage = make_ref<Storage>(memory, static_cast<size_t>(*count) * size_of(type.dtype),
                                   type.device, std::function<void()>());
  return Tensor(std::move(storage), Layout(type.dtype, std::move(shape)));
}

bool has_no_values(const Tensor& t) {
  const std::byte* start = begun.load(std::memory_order_relaxed);
  return start && t.storage()->data() == start;
}

}  // namespace gradus
