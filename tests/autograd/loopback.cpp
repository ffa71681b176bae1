#include "tests/autograd/loopback.h"

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "ops/registry.h"

namespace gradus::autograd::testing {

// A stream: work in order, each piece after a random delay.
struct Loopback::Queue {
  explicit Queue(uint64_t seed) : random(seed), thread([this] { main(); }) {}
  ~Queue() {
    push(nullptr);
    thread.join();
  }
  void push(std::function<void()> work) {
    {
      std::lock_guard guard(mutex);
      work_list.push_back(std::move(work));
    }
    changed.notify_one();
  }
  // Set when all that was pushed so far is done.
  std::shared_future<void> event() {
    auto done = std::make_shared<std::promise<void>>();
    push([done] { done->set_value(); });
    return done->get_future().share();
  }
  void main() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock guard(mutex);
        changed.wait(guard, [&] { return !work_list.empty(); });
        work = std::move(work_list.front());
        work_list.pop_front();
      }
      if (!work) return;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
      work();
    }
  }
  std::mt19937_64 random;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work_list;
  std::thread thread;
};

// A tensor's memory. Queued work points at it without keeping the tensor alive, as on a device.
struct Loopback::Block {
  Block(size_t bytes, Device d, Stream s) : memory(bytes / 8 + 1), device(d), home(s) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(memory.data()); }
  void poison() { memory.assign(memory.size(), std::numeric_limits<double>::quiet_NaN()); }
  std::vector<double> memory;
  Device device;
  Stream home;
  std::mutex mutex;
  std::vector<Stream> uses;  // by streams of the same device
};

// What queued work knows of a tensor.
struct Loopback::Operand {
  std::shared_ptr<Block> block;
  Layout layout;
  int64_t offset = 0;
  Tensor host() const {
    return Tensor(make_ref<Storage>(block->data(), block->memory.size() * 8, Device(), nullptr),
                  layout, offset);
  }
};

struct Loopback::Impl {
  explicit Impl(uint64_t s) : seed(s) {}
  Queue& queue(Device device, Stream stream) {
    std::lock_guard guard(mutex);
    auto& slot = queues[{device.index, stream}];
    if (!slot) slot = std::make_unique<Queue>(seed + 1000 * stream + device.index);
    return *slot;
  }
  Operand operand(const Tensor& t) {
    std::lock_guard guard(mutex);
    return {blocks.at(t.storage()->data()).lock(), t.layout(), t.offset()};
  }
  // Uninitialised (poisoned) memory of the device, made on a stream.
  Tensor allocate(Layout layout, Device device, Stream stream) {
    auto bytes = static_cast<size_t>(layout.numel()) * size_of(layout.dtype);
    auto block = std::make_shared<Block>(bytes, device, stream);
    block->poison();
    {
      std::lock_guard guard(mutex);
      blocks[block->data()] = block;
    }
    auto storage = make_ref<Storage>(block->data(), bytes, device, [this, block] { free(block); });
    return Tensor(std::move(storage), std::move(layout));
  }
  // The memory is taken for something else as soon as its own stream and the recorded ones allow.
  void free(const std::shared_ptr<Block>& block) {
    std::vector<std::shared_future<void>> events;
    {
      std::lock_guard guard(block->mutex);
      for (Stream s : block->uses) events.push_back(queue(block->device, s).event());
    }
    queue(block->device, block->home).push([block, events] {
      for (const auto& e : events) e.wait();
      block->poison();
    });
  }

  const uint64_t seed;
  std::mutex mutex;
  std::map<std::byte*, std::weak_ptr<Block>> blocks;
  std::map<std::pair<uint16_t, Stream>, std::unique_ptr<Queue>> queues;
  std::atomic<Stream> next_stream{1};
};

namespace {
thread_local std::array<Stream, Loopback::count> current_of{};
}

Loopback::Loopback() {
  const char* given = std::getenv("GRADUS_TEST_SEED");
  uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("loopback: GRADUS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  impl_ = std::make_unique<Impl>(seed);
}
Loopback::~Loopback() { drain(); }

Loopback& Loopback::get() {
  static Loopback& one = []() -> Loopback& {
    // Lives as long as the process: engines' threads may ask at its end.
    std::shared_ptr<Loopback> fresh(new Loopback);
    register_device_streams(DeviceKind::other, fresh);
    return *fresh;
  }();
  return one;
}

Stream Loopback::current(Device device) { return current_of.at(device.index); }
void Loopback::set_current(Device device, Stream stream) { current_of.at(device.index) = stream; }
Stream Loopback::new_stream(Device) { return impl_->next_stream.fetch_add(1); }

void Loopback::enqueue(Device device, std::function<void()> work) {
  impl_->queue(device, current(device)).push(std::move(work));
}

void Loopback::wait(Device device, Stream from, Device to_device, Stream to) {
  auto event = impl_->queue(device, from).event();
  impl_->queue(to_device, to).push([event] { event.wait(); });
}

void Loopback::record_use(const Tensor& tensor, Stream stream) {
  std::shared_ptr<Block> block = impl_->operand(tensor).block;
  std::lock_guard guard(block->mutex);
  if (stream != block->home) block->uses.push_back(stream);
}

void Loopback::drain() {
  std::vector<std::shared_future<void>> events;
  {
    std::lock_guard guard(impl_->mutex);
    for (auto& [key, queue] : impl_->queues) events.push_back(queue->event());
  }
  for (auto& e : events) e.wait();
}

SmallVector<Tensor, 2> Loopback::evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                          std::span<const ops::EagerOperand> operands) {
  using Host = std::variant<std::monostate, Operand, ir::Number>;
  std::vector<Host> in;
  std::vector<ir::Type> types(operands.size());
  std::vector<ir::OperandType> operand_types(operands.size());
  Device device;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto* t = std::get_if<Tensor>(&operands[i])) {
      device = t->device();
      ir::Dims dims;
      for (int64_t n : t->shape()) dims.push_back(n);
      types[i] = ir::Type(t->dtype(), std::move(dims), device);
      operand_types[i].kind = ir::OperandType::Kind::tensor;
      operand_types[i].type = &types[i];
      in.emplace_back(impl_->operand(*t));
    } else if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      operand_types[i].kind = ir::OperandType::Kind::number;
      operand_types[i].category = n->category;
      in.emplace_back(*n);
    } else {
      in.emplace_back();
    }
  }
  SmallVector<Tensor, 2> results;
  std::vector<Operand> out;
  for (const ir::Type& t : ops::infer(op, operand_types, attributes, nullptr)) {
    Sizes shape;
    for (const ir::Dim& d : t.dims) shape.push_back(d.value());
    results.push_back(impl_->allocate(Layout(t.dtype, shape), device, current(device)));
    out.push_back(impl_->operand(results.back()));
  }
  enqueue(device, [&op, attributes, in = std::move(in), out = std::move(out)] {
    SmallVector<ops::EagerOperand, 4> host;
    for (const Host& h : in) {
      if (const auto* o = std::get_if<Operand>(&h))
        host.emplace_back(o->host());
      else if (const auto* n = std::get_if<ir::Number>(&h))
        host.emplace_back(*n);
      else
        host.emplace_back();
    }
    auto made = ops::evaluate(op, attributes, host, *Context::default_context());
    for (size_t i = 0; i < out.size(); ++i)
      copy_elements(made[i].layout(), made[i].data(), out[i].layout, out[i].block->data());
  });
  return results;
}

Tensor Loopback::copy_to(const Tensor& tensor, Device device) {
  Layout dense(tensor.dtype(), Sizes(tensor.shape().begin(), tensor.shape().end()));
  if (tensor.device().kind == DeviceKind::cpu) {
    Tensor out = impl_->allocate(dense, device, current(device));
    enqueue(device, [from = tensor.copy(), to = impl_->operand(out)] {
      copy_elements(from.layout(), from.data(), to.layout, to.block->data());
    });
    return out;
  }
  Operand from = impl_->operand(tensor);
  auto source = [from] { return from.host(); };
  if (device.kind == DeviceKind::cpu) {
    Tensor out = Tensor::empty(tensor.dtype(), tensor.shape());
    std::promise<void> done;
    enqueue(tensor.device(), [&] {
      copy_elements(from.layout, source().data(), out.layout(), out.mutable_data());
      done.set_value();
    });
    done.get_future().wait();
    return out;
  }
  Tensor out = impl_->allocate(dense, device, current(device));
  wait(tensor.device(), current(tensor.device()), device, current(device));
  // Until the copy is made, the memory is in use as if by its own stream.
  enqueue(device, [source, keep = tensor, to = impl_->operand(out)] {
    copy_elements(source().layout(), source().data(), to.layout, to.block->data());
  });
  return out;
}

Variable device_leaf(int device, std::initializer_list<double> values, bool requires_grad) {
  Tensor host = Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())},
                             std::vector<double>(values));
  return Variable(Loopback::get().copy_to(host, Loopback::device(device)), requires_grad);
}
std::vector<double> device_values(const Variable& v) {
  return Loopback::get().copy_to(v.data(), Device()).to_doubles();
}

}  // namespace gradus::autograd::testing
