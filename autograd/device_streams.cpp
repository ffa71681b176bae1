#include "gradus/device_streams.h"

#include <array>
#include <atomic>
#include <mutex>

#include "autograd/recorder.h"

namespace gradus::autograd {

namespace {
struct Registry {
  std::mutex mutex;
  std::atomic<bool> any{false};
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
  r.any.store(true, std::memory_order_release);
}

DeviceStreams* device_streams(DeviceKind kind) {
  Registry& r = registry();
  if (kind == DeviceKind::cpu || !r.any.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard guard(r.mutex);
  return r.by_kind[static_cast<uint8_t>(kind)].get();
}

uint64_t current_stream(Device device) {
  DeviceStreams* streams = device_streams(device.kind);
  return streams ? streams->current(device) : 0;
}

namespace {

// Takes the cotangent of what was copied back to where it came from.
class DeviceCopy final : public Node {
 public:
  DeviceCopy(Edge next, Device from) : Node(SmallVector<Edge, 2>{std::move(next)}), from_(from) {}
  std::string name() const override { return "DeviceCopy"; }

 private:
  Variables apply(Variables&& cotangents) override {
    if (!cotangents[0].defined()) return Variables(1);
    return {move_to(cotangents[0], from_)};
  }
  Device from_;
};

}  // namespace

Variable move_to(const Variable& v, Device device) {
  Device from = v.data().device();
  if (from == device) return v;
  DeviceStreams* streams = device_streams(device.kind == DeviceKind::cpu ? from.kind : device.kind);
  if (!streams)
    throw Error("a tensor cannot move from {} to {}: nobody registered streams for such a device",
                to_string(from), to_string(device));
  if (Recorder* recorder = thread_state().recorder) recorder->meets("a move to another device");
  Tensor copy = streams->copy_to(v.data(), device);
  if (!recording() || !v.requires_grad()) return Variable(std::move(copy));
  return create_gradient_edge(std::move(copy), make_ref<DeviceCopy>(v.gradient_edge(), from));
}

Streams current_streams() {
  Streams list;
  if (!registry().any.load(std::memory_order_acquire)) return list;
  for (int kind = 1; kind < 256; ++kind)
    if (DeviceStreams* streams = device_streams(static_cast<DeviceKind>(kind)))
      for (int i = 0; i < streams->devices(); ++i) {
        Device device{static_cast<DeviceKind>(kind), static_cast<uint16_t>(i)};
        list.emplace_back(device, streams->current(device));
      }
  return list;
}

namespace {
void make_current(const Streams& list) {
  for (auto [device, stream] : list)
    if (DeviceStreams* streams = device_streams(device.kind)) streams->set_current(device, stream);
}
}  // namespace

StreamsGuard::StreamsGuard(const Streams& streams) {
  if (streams.empty()) return;
  saved_ = current_streams();
  make_current(streams);
}
StreamsGuard::~StreamsGuard() { make_current(saved_); }

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
