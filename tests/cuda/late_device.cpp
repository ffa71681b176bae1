#include "tests/cuda/late_device.h"

namespace gradus::fusion::test {

namespace {

// Of all such devices, since one waits for another.
std::recursive_mutex& everything() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

struct LateDevice::Mark final : cuda::StreamMark {
  LateDevice* device;
  cuda::StreamNumber stream;
  size_t given;
};

void LateDevice::give(cuda::StreamNumber n, std::function<void()> work) {
  Queue& q = queues_[n];
  q.waiting.push_back(std::move(work));
  ++q.given;
}

void LateDevice::run(cuda::StreamNumber n, size_t up_to) {
  Queue& q = queues_[n];
  while (q.done < up_to && !q.waiting.empty()) {
    auto work = std::move(q.waiting.front());
    q.waiting.pop_front();
    ++q.done;
    work();
  }
}

void LateDevice::copy_to_device(cuda::Address to, const void* from, size_t bytes,
                                cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  const auto* first = static_cast<const std::byte*>(from);
  give(n, [this, to, n, kept = std::vector<std::byte>(first, first + bytes)] {
    InterpretedDevice::copy_to_device(to, kept.data(), kept.size(), n);
  });
}

void LateDevice::copy_to_host(void* to, cuda::Address from, size_t bytes, cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  run_all(n);
  InterpretedDevice::copy_to_host(to, from, bytes, n);
}

bool LateDevice::copy_from(cuda::Device& other, cuda::Address to, cuda::Address from, size_t bytes,
                           cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  if (!dynamic_cast<LateDevice*>(&other)) return false;
  give(n, [this, &other, to, from, bytes, n] {
    InterpretedDevice::copy_from(other, to, from, bytes, n);
  });
  return true;
}

void LateDevice::synchronize(cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  run_all(n);
  InterpretedDevice::synchronize(n);
}

std::shared_ptr<const cuda::StreamMark> LateDevice::mark(cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  auto mark = std::make_shared<Mark>();
  mark->device = this;
  mark->stream = n;
  mark->given = queues_[n].given;
  return mark;
}

void LateDevice::wait(cuda::StreamNumber n, const cuda::StreamMark& mark) {
  std::lock_guard guard(everything());
  give(n, [m = static_cast<const Mark&>(mark)] { m.device->run(m.stream, m.given); });
  ++waits;
}

bool LateDevice::is_done(const cuda::StreamMark& mark) {
  std::lock_guard guard(everything());
  const auto& m = static_cast<const Mark&>(mark);
  m.device->run(m.stream, m.given);
  return true;
}

void LateDevice::let_wait(uintptr_t native, cuda::StreamNumber n) {
  wait(static_cast<cuda::StreamNumber>(native - first_native), *mark(n));
}

void LateDevice::launch(const cuda::LoadedCode& code, const cuda::LaunchPlan::Launch& launch,
                        cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  if (records(n)) return InterpretedDevice::launch(code, launch, n);
  ++queues_[n].launches;
  give(n, [this, n, &code, blocks = launch.blocks,
           kept = std::vector<std::byte>(launch.parameters.begin(), launch.parameters.end())] {
    InterpretedDevice::launch(code, {blocks, kept}, n);
  });
}

// What is let go before its launches are done stays until then, as a driver keeps it.
void LateDevice::launch(const cuda::LoadedGraph& graph, cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  give(n, [this, n, kept = static_cast<const Recording&>(graph).shared_from_this()] {
    InterpretedDevice::launch(*kept, n);
  });
}

// Nobody keeps what is given to libraries until it is late.
void LateDevice::multiply(const cuda::Product& product, cuda::Address a, cuda::Address b,
                          cuda::Address row, cuda::Address c, cuda::Address workspace,
                          cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  run_all(n);
  InterpretedDevice::multiply(product, a, b, row, c, workspace, n);
}

void LateDevice::convolve(const cuda::Convolution& convolution, cuda::Address first,
                          cuda::Address second, cuda::Address result, cuda::Address workspace,
                          cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  run_all(n);
  InterpretedDevice::convolve(convolution, first, second, result, workspace, n);
}

size_t LateDevice::launches_on(cuda::StreamNumber n) {
  std::lock_guard guard(everything());
  return queues_[n].launches;
}

}  // namespace gradus::fusion::test
