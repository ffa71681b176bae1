#include "autograd/device_streams.h"

#include <array>
#include <mutex>

namespace gradus::autograd {

namespace {
struct Registry {
  std::mutex mutex;
  std::array<std::shared_ptr<DeviceStreams>, 256> by_kind;
};
Registry& registry() {
  static Registry& r = *new Registry;  // threads may ask while the process ends
  return r;
}
}  // namespace

void register_device_streams(DeviceKind kind, std::shared_ptr<DeviceStreams> streams) {
  Registry& r = registry();
  std::lock_guard guard(r.mutex);
  auto& slot = r.by_kind[static_cast<uint8_t>(kind)];
  if (kind == DeviceKind::cpu || slot)
    throw Error("streams of this kind of device are registered already, or it has none");
  slot = std::move(streams);
}

DeviceStreams* device_streams(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return nullptr;
  Registry& r = registry();
  std::lock_guard guard(r.mutex);
  return r.by_kind[static_cast<uint8_t>(kind)].get();
}

StreamGuard::StreamGuard(Device device, Stream stream)
    : device_(device), streams_(device_streams(device.kind)) {
  if (!streams_) return;
  saved_ = streams_->current(device);
  streams_->set_current(device, stream);
}
StreamGuard::~StreamGuard() {
  if (streams_) streams_->set_current(device_, saved_);
}

}  // namespace gradus::autograd
