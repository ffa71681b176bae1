#include "tests/cuda/device.h"

#include <new>

#include "fusion/cuda/prelude.h"

namespace gradus::fusion::test {

namespace {

class InterpretedCode final : public cuda::LoadedCode {
 public:
  explicit InterpretedCode(const std::string& ptx) : module(ptx::Module::parse(ptx)) {}
  const ptx::Module module;
};

}  // namespace

ptx::LaunchCounts launch_interpreted(const ptx::Module& module,
                                     const cuda::LaunchPlan::Launch& launch, ptx::Memory& memory,
                                     bool backwards) {
  ptx::Launch l;
  l.grid.x = launch.blocks;
  l.backwards = backwards;
  l.block.x = cuda::block_threads;
  size_t at = 0;
  for (size_t bytes : module.parameter_sizes(cuda::entry_name)) {
    l.args.push_back(launch.parameters.data() + at);
    at += bytes;
  }
  if (at != launch.parameters.size())
    throw Error("the kernel takes {} bytes of parameters, {} are given", at,
                launch.parameters.size());
  return ptx::launch(module, cuda::entry_name, l, memory);
}

InterpretedDevice::InterpretedDevice(size_t memory_bytes, int number) : left_(memory_bytes) {
  facts_.number = number;
  facts_.id = {4711, static_cast<uint64_t>(number)};
  facts_.name = "PTX interpreter";
  facts_.major = 9;
  facts_.multiprocessors = 1;
  facts_.memory_bytes = memory_bytes;
}

cuda::Address InterpretedDevice::allocate(size_t bytes) {
  std::lock_guard guard(mutex_);
  if (bytes > left_) throw cuda::OutOfMemory("the device has no {} bytes left", bytes);
  left_ -= bytes;
  ++allocations;
  const cuda::Address address = memory_.allocate(bytes);
  sizes_[address] = bytes;
  return address;
}

void InterpretedDevice::free(cuda::Address address) {
  std::lock_guard guard(mutex_);
  memory_.free(address);
  left_ += sizes_.at(address);
  sizes_.erase(address);
  ++frees;
}

void* InterpretedDevice::allocate_host(size_t bytes) {
  ++pinned;
  return ::operator new(bytes, std::align_val_t(64));
}

void InterpretedDevice::free_host(void* memory) {
  --pinned;
  ::operator delete(memory, std::align_val_t(64));
}

void InterpretedDevice::copy_to_device(cuda::Address to, const void* from, size_t bytes,
                                       cuda::StreamNumber) {
  std::lock_guard guard(mutex_);
  memory_.write(to, from, bytes);
  ++copies_in;
}

void InterpretedDevice::copy_to_host(void* to, cuda::Address from, size_t bytes,
                                     cuda::StreamNumber) {
  std::lock_guard guard(mutex_);
  memory_.read(to, from, bytes);
  ++copies_out;
}

bool InterpretedDevice::copy_from(cuda::Device& other, cuda::Address to, cuda::Address from,
                                  size_t bytes, cuda::StreamNumber) {
  auto* source = dynamic_cast<InterpretedDevice*>(&other);
  if (!source) return false;
  std::vector<std::byte> kept(bytes);
  {
    std::lock_guard guard(source->mutex_);
    source->memory_.read(kept.data(), from, bytes);
  }
  std::lock_guard guard(mutex_);
  memory_.write(to, kept.data(), bytes);
  ++copies_between;
  return true;
}

std::shared_ptr<const cuda::LoadedCode> InterpretedDevice::load(const cuda::Code& code) {
  loading();
  return std::make_shared<InterpretedCode>(code.ptx);
}

bool InterpretedDevice::records(cuda::StreamNumber n) {
  std::lock_guard guard(mutex_);
  return recording_.contains(n);
}

void InterpretedDevice::begin_recording(cuda::StreamNumber n) {
  std::lock_guard guard(mutex_);
  if (!recording_.try_emplace(n, std::make_shared<Recording>()).second)
    throw ResourceError("stream {} is recorded already", n);
}

std::shared_ptr<const cuda::LoadedGraph> InterpretedDevice::end_recording(cuda::StreamNumber n) {
  std::lock_guard guard(mutex_);
  ++recordings;
  auto node = recording_.extract(n);
  if (node.empty()) throw ResourceError("stream {} is not recorded", n);
  return node.mapped();
}

void InterpretedDevice::call(cuda::StreamNumber n, std::function<void()> work) {
  std::lock_guard guard(mutex_);
  if (auto to = recording_.find(n); to != recording_.end())
    to->second->launches.push_back(std::move(work));
  else
    work();
}

void InterpretedDevice::multiply(const cuda::Product& product, cuda::Address a, cuda::Address b,
                                 cuda::Address row, cuda::Address c, cuda::Address workspace,
                                 cuda::StreamNumber n) {
  call(n, [=, &product] {
    if (const int status = product.run(a, b, row, c, workspace, nullptr))
      throw ResourceError("a product fails: status {}", status);
  });
}

void InterpretedDevice::convolve(const cuda::Convolution& convolution, cuda::Address first,
                                 cuda::Address second, cuda::Address result,
                                 cuda::Address workspace, cuda::StreamNumber n) {
  call(n, [=, &convolution] {
    if (const int status = convolution.run(first, second, result, workspace, nullptr))
      throw ResourceError("a convolution fails: {}", convolution.name_of(status));
  });
}

void InterpretedDevice::launch(const cuda::LoadedGraph& graph, cuda::StreamNumber) {
  replaying();
  std::lock_guard guard(mutex_);
  for (const auto& work : static_cast<const Recording&>(graph).launches) work();
  ++replays;
}

void InterpretedDevice::launch(const cuda::LoadedCode& code, const cuda::LaunchPlan::Launch& launch,
                               cuda::StreamNumber n) {
  std::lock_guard guard(mutex_);
  if (auto to = recording_.find(n); to != recording_.end()) {
    to->second->launches.push_back(
        [this, &module = static_cast<const InterpretedCode&>(code).module, blocks = launch.blocks,
         parameters = std::vector(launch.parameters.begin(), launch.parameters.end())] {
          launch_interpreted(module, {blocks, parameters}, memory_, backwards);
        });
    return;
  }
  launch_interpreted(static_cast<const InterpretedCode&>(code).module, launch, memory_, backwards);
  ++launches;
  most_threads = std::max(most_threads.load(), size_t{launch.blocks} * cuda::block_threads);
}

}  // namespace gradus::fusion::test
