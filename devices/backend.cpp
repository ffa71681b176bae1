#include "devices/backend.h"

namespace gradus::devices {

namespace {

size_t spanned_bytes(const Layout& l) { return static_cast<size_t>(l.extent()) * size_of(l.dtype); }

}  // namespace

Ref<Storage> device_storage(const std::shared_ptr<Backend>& device, size_t bytes) {
  std::byte* memory = device->allocate(bytes);
  return make_ref<Storage>(memory, bytes, device->device(),
                           [device, memory] { device->release(memory); });
}

Tensor device_tensor(const std::shared_ptr<Backend>& device, const Layout& layout) {
  return Tensor(device_storage(device, static_cast<size_t>(layout.numel()) * size_of(layout.dtype)),
                Layout(layout.dtype, layout.shape));
}

Tensor to_device(const std::shared_ptr<Backend>& device, const Tensor& t, bool exactly) {
  const Tensor from = exactly || t.layout().extent() <= t.numel() ? t : t.contiguous();
  const size_t bytes = spanned_bytes(from.layout());
  Tensor there(device_storage(device, bytes), from.layout());
  if (bytes) device->to_device(there.storage()->data(), from.data(), bytes);
  return there;
}

Tensor to_device(const std::shared_ptr<Backend>& device, Backend& other, const Tensor& t) {
  if (t.layout().extent() > t.numel()) return {};
  const size_t bytes = spanned_bytes(t.layout());
  Tensor there(device_storage(device, bytes), t.layout());
  // Also if a stream of its own made the memory: that waits, when it gets it back.
  other.record_use(t.storage()->data(), other.stream());
  if (bytes && !device->copy_from(other, there.storage()->data(), t.data(), bytes)) return {};
  return there;
}

Tensor to_host(Backend& device, const Tensor& t, Context& context) {
  if (!t.defined() || t.device() == Device()) return t;
  const size_t bytes = spanned_bytes(t.layout());
  auto memory = make_ref<Storage>(context.allocator(), bytes);
  if (bytes) device.to_host(memory->data(), t.data(), bytes);
  return Tensor(std::move(memory), t.layout());
}

}  // namespace gradus::devices
