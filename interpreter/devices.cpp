#include "gradus/devices.h"

#include <shared_mutex>

#include "devices/cuda/devices.h"
#include "devices/cuda/kernels.h"
#include "devices/cuda/planned_device.h"
#include "gradus/dlpack.h"
#include "gradus/per_thread.h"
#include "gradus/registry.h"
#include "gradus/state.h"
#include "interpreter/device_kernels.h"
#include "kernels/call_table.h"

namespace gradus {

namespace {

using autograd::Stream;
using ops::EagerOperand;

// An operator with its attributes on operands of given types, as a program of that one instruction.
ir::Graph program_of(const ir::Operator& op, const ir::Attributes& attributes,
                     std::span<const EagerOperand> operands) {
  ir::Graph graph;
  graph.name = op.name;
  ir::Stage& stage = graph.stages.emplace_back();
  ir::Node node;
  node.op = &op;
  node.attributes = attributes;
  SmallVector<ir::Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> in(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto* t = std::get_if<Tensor>(&operands[i])) {
      types[i] = ir::Type(t->dtype(), ir::Dims(t->shape().begin(), t->shape().end()));
      in[i].kind = ir::OperandType::Kind::tensor;
      in[i].type = &types[i];
      stage.inputs.push_back(graph.add_value(types[i], fmt::format("x{}", i), 0));
      node.operands.emplace_back(stage.inputs.back());
    } else if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      in[i].kind = ir::OperandType::Kind::number;
      in[i].category = n->category;
      node.operands.emplace_back(*n);
    } else {
      node.operands.emplace_back();
    }
  }
  for (const ir::Type& type : ops::infer(op, in, attributes, nullptr)) {
    node.results.push_back(graph.add_value(type, fmt::format("y{}", node.results.size()), 0));
    stage.results.push_back({graph[node.results.back()].name, node.results.back()});
  }
  stage.nodes.push_back(std::move(node));
  return graph;
}

// The code of operators that this thread has run lately.
struct OperatorCodes {
  ops::CallTable<std::shared_ptr<const Code>> table{512};
};

std::shared_ptr<const Code> code_of(const ir::Operator& op, const ir::Attributes& attributes,
                                    std::span<const EagerOperand> operands) {
  SmallVector<ops::CallOperand, 4> by_layout(operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    if (const auto* t = std::get_if<Tensor>(&operands[i]))
      by_layout[i] = {&t->layout(), t->device(), nullptr};
    else
      by_layout[i].number = std::get_if<ir::Number>(&operands[i]);
  auto& known = PerThread<OperatorCodes>::get().table;
  const ops::CallKey key{op, attributes, by_layout, {}, true};
  if (const auto* code = known.find(key)) return *code;
  return known.insert(key, Code::compile(program_of(op, attributes, operands)));
}

Error nobody_uses(Device device) {
  return Error("nobody uses {}: call gradus::use_device for it first", to_string(device));
}

// Streams and operators of one kind of device. An operator is a program of one instruction, which
// a state runs: so it has the code, the detours by the host and the faults that it has in any
// other program.
class UsedDevices final : public autograd::DeviceStreams {
 public:
  // The one of this process, registered by the kind's first device.
  static UsedDevices& of(DeviceKind kind) {
    if (UsedDevices* known = find(kind)) return *known;
    static std::mutex& mutex = *new std::mutex;
    std::lock_guard guard(mutex);
    if (UsedDevices* known = find(kind)) return *known;
    auto fresh = std::make_shared<UsedDevices>();
    autograd::register_device_streams(kind, fresh);  // which keeps it
    set_device_fence(kind, [](Device device) noexcept { find(device.kind)->fence(device); });
    return *fresh;
  }
  // Null where nobody uses such a device.
  static UsedDevices* find(DeviceKind kind) {
    return dynamic_cast<UsedDevices*>(autograd::device_streams(kind));
  }

  void add(std::shared_ptr<fusion::Kernels> kernels) {
    auto place = std::make_shared<Place>();
    place->device = kernels->backend();
    const size_t number = place->device->device().index;
    // Threads of its own, if what has no code on the device is large.
    place->context = std::make_shared<Context>();
    place->context->replace_part<fusion::Kernels>(std::move(kernels));
    // All there are have a thread of the engine's, also those that are opened later.
    const size_t there = place->device->count();
    std::unique_lock guard(mutex_);
    if (places_.size() <= number) places_.resize(std::max(number + 1, there));
    places_[number] = std::move(place);
    count_.store(static_cast<int>(places_.size()), std::memory_order_release);
  }

  int devices() const override { return count_.load(std::memory_order_acquire); }

  Stream current(Device device) override {
    auto place = find(device);
    return place ? place->device->stream() : 0;
  }
  void set_current(Device device, Stream stream) override {
    if (auto place = find(device)) place->device->set_stream(stream);
  }
  void wait(Device device, Stream from, Device to_device, Stream to) override {
    get(to_device)->device->wait(to, get(device)->device->mark(from));
  }
  void record_use(const Tensor& tensor, Stream stream) override {
    if (auto place = find(tensor.device()))
      place->device->record_use(tensor.storage()->data(), stream);
  }

  SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                  std::span<const EagerOperand> operands) override {
    std::vector<Tensor> inputs;
    Device device;
    for (const EagerOperand& o : operands)
      if (const auto* t = std::get_if<Tensor>(&o)) {
        inputs.push_back(*t);
        if (t->device() != Device()) device = t->device();
      }
    const auto place = get(device);
    try {
      State state(code_of(op, attributes, operands), place->context, {.fusion = FusionMode::first});
      std::vector<Tensor> made = state.run(inputs, {.results_on_device = true});
      SmallVector<Tensor, 2> results;
      for (Tensor& t : made) results.push_back(std::move(t));
      return results;
    } catch (const Error& e) {
      throw Error("{}", e.bare());  // the place is one of a program that nobody wrote
    }
  }

  Tensor copy_to(const Tensor& tensor, Device device) override {
    const Device from = tensor.device();
    if (from != Device() && device != Device())
      if (Tensor there = devices::to_device(get(device)->device, *get(from)->device, tensor);
          there.defined())
        return there;
    Tensor here = tensor;
    if (from != Device())
      here = devices::to_host(*get(from)->device, tensor, *autograd::current_context());
    return device == Device() ? here : devices::to_device(get(device)->device, here);
  }

  std::shared_ptr<devices::Backend> backend(Device device) const { return get(device)->device; }
  bool is_used(Device device) const { return find(device) != nullptr; }
  Stream next_stream(Device device) {
    get(device);
    return first_stream + next_.fetch_add(1, std::memory_order_relaxed) % streams;
  }
  // All that its streams were given is done.
  void fence(Device device) noexcept {
    const auto place = find(device);
    if (!place) return;
    const uint32_t made = std::min(next_.load(std::memory_order_relaxed), streams);
    try {
      place->device->synchronize(0);
      for (uint32_t s = 0; s < made; ++s) place->device->synchronize(first_stream + s);
    } catch (const ResourceError&) {
      // The device is gone: nothing is done there.
    }
  }

 private:
  // 1 is the backend's own.
  static constexpr uint32_t first_stream = 2, streams = 32;
  struct Place {
    std::shared_ptr<Context> context;  // whose kernels are the device's
    std::shared_ptr<devices::Backend> device;
  };
  std::shared_ptr<Place> find(Device device) const {
    std::shared_lock guard(mutex_);
    return device.index < places_.size() ? places_[device.index] : nullptr;
  }
  std::shared_ptr<Place> get(Device device) const {
    auto place = find(device);
    if (!place) throw nobody_uses(device);
    return place;
  }

  mutable std::shared_mutex mutex_;
  std::vector<std::shared_ptr<Place>> places_;  // by number; null: not used so far
  std::atomic<int> count_{0};
  std::atomic<uint32_t> next_{0};
};

UsedDevices& used(Device device) {
  UsedDevices* devices = device == Device() ? nullptr : UsedDevices::find(device.kind);
  if (!devices) throw nobody_uses(device);
  return *devices;
}

void check_kind(Device device) {
  if (device.kind != DeviceKind::cuda)
    throw Error("{} cannot be used by name; cuda devices can", to_string(device));
}

}  // namespace

void use_device(Context& context, Device device, const KernelOptions& options) {
  check_kind(device);
  fusion::cuda::use_device(context, device.index, options);
  UsedDevices::of(device.kind).add(fusion::kernels_of(context));
}

void use_device(Context& context, std::shared_ptr<fusion::Kernels> kernels) {
  const auto backend = kernels->backend();
  if (backend->device() == Device()) throw Error("these kernels are no device's");
  context.replace_part<fusion::Kernels>(kernels);
  UsedDevices::of(backend->device().kind).add(std::move(kernels));
}

Stream new_stream(Device device) { return used(device).next_stream(device); }

uintptr_t native_stream(Device device) {
  const auto backend = used(device).backend(device);
  return backend->native_stream(backend->stream());
}

void let_wait(Device device, uintptr_t native) {
  const auto backend = used(device).backend(device);
  backend->let_wait(native, backend->stream());
}

bool is_used(Device device) {
  const UsedDevices* devices = UsedDevices::find(device.kind);
  return devices && devices->is_used(device);
}

Tensor to_host(const Tensor& tensor, Context& context) {
  if (!tensor.defined() || tensor.device() == Device()) return tensor;
  return devices::to_host(*used(tensor.device()).backend(tensor.device()), tensor, context);
}

void plan_for_device(Context& context, Device device) {
  check_kind(device);
  fusion::cuda::plan_for_device(context, device.index);
}

std::string describe_devices() { return fusion::cuda::to_string(fusion::cuda::probe_devices()); }

}  // namespace gradus
