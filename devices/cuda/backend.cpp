#include "devices/cuda/backend.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "devices/cuda/launches.h"
#include "gradus/per_thread.h"

namespace gradus::fusion::cuda {

namespace {

constexpr StreamNumber recording_stream = 1;

// One for all who use a device at a time: each finds what lies there.
std::shared_ptr<MemoryCache> cache_of(Device& device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& caches = *new std::map<Device*, std::weak_ptr<MemoryCache>>;
  std::lock_guard guard(mutex);
  std::erase_if(caches, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<MemoryCache>& known = caches[&device];
  auto cache = known.lock();
  if (!cache) known = cache = std::make_shared<MemoryCache>(device);
  return cache;
}

// This thread's, of a device: of all who run it.
struct CurrentStreams {
  std::vector<StreamNumber> by_device;
};
StreamNumber& current_stream(const Device& device) {
  std::vector<StreamNumber>& list = PerThread<CurrentStreams>::get().by_device;
  const auto number = static_cast<size_t>(device.facts().number);
  if (number >= list.size()) list.resize(number + 1, 0);
  return list[number];
}

constexpr size_t most_waiting_kernels = 4096;

// Half of the machine, since a program may run meanwhile; two where that is less.
unsigned compiling_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 2u, 8u); }

// NVRTC makes static objects while it first compiles (fusion/task_queue.h).
void prepare_process() {
  static const bool done = [] {
    Nvrtc::get().compile("extern \"C\" __global__ void gradus_kernel(float* x) { *x = *x + 1; }",
                         "sm_90");
    return true;
  }();
  static_cast<void>(done);
}

// The device whose launches this thread records; null: none.
const CudaBackend*& recording() {
  static constinit thread_local const CudaBackend* device = nullptr;
  return device;
}

}  // namespace

CudaBackend::CudaBackend(std::shared_ptr<Device> device, std::shared_ptr<const ObjectStore> store,
                         LogSink log, bool atomics)
    : Backend(
          {DeviceKind::cuda, static_cast<uint16_t>(device->facts().number)},
          {.shares_copies = false, .reads_edges = false, .has_loops = false, .joins_rows = true}),
      device_(std::move(device)),
      atomics_(atomics),
      compiler_(device_->facts().architecture(), std::move(store)),
      memory_(cache_of(*device_)),
      exchanges_(*device_, log),
      behind_(compiling_threads(), most_waiting_kernels,
              [this] {
                if (!compiler_.architecture().empty()) prepare_process();
              }),
      stock_(behind_,
             {.no_code = fmt::format("no kernel on cuda:{} for an instruction, which the host does",
                                     device_->facts().number),
              .log = std::move(log)}) {
  stock_.claim();
}

CudaBackend::~CudaBackend() {
  behind_.stop();
  for (const auto& [bytes, memory] : staging_) try {
      device_->free_host(memory);
    } catch (const ResourceError&) {
      // The device is gone.
    }
}

size_t CudaBackend::count() const { return probe_kernels().devices.size(); }

CudaBackend::Stream CudaBackend::stream() const { return current_stream(*device_); }

void CudaBackend::set_stream(Stream stream) {
  if (stream == recording_stream || stream > UINT32_MAX)
    throw Error("{} has no stream {}", to_string(device()), stream);
  current_stream(*device_) = static_cast<StreamNumber>(stream);
}

std::shared_ptr<const void> CudaBackend::mark(Stream stream) {
  return device_->mark(static_cast<StreamNumber>(stream));
}

void CudaBackend::wait(Stream stream, const std::shared_ptr<const void>& mark) {
  device_->wait(static_cast<StreamNumber>(stream), *static_cast<const StreamMark*>(mark.get()));
}

uintptr_t CudaBackend::native_stream(Stream stream) {
  return device_->native(static_cast<StreamNumber>(stream));
}

void CudaBackend::let_wait(uintptr_t native, Stream for_what) {
  device_->let_wait(native, static_cast<StreamNumber>(for_what));
}

void CudaBackend::synchronize(Stream stream) {
  exchanges_.wait(static_cast<StreamNumber>(stream));
  device_->synchronize(static_cast<StreamNumber>(stream));
}

void CudaBackend::record_use(const std::byte* address, Stream stream) {
  memory_->record_use(address_of(address), static_cast<StreamNumber>(stream));
}

std::byte* CudaBackend::allocate(size_t bytes) {
  return reinterpret_cast<std::byte*>(
      memory_->allocate(bytes, current_stream(*device_), [&] { exchanges_.finish(); }));
}

void CudaBackend::release(std::byte* address) noexcept { memory_->release(address_of(address)); }

void CudaBackend::to_device(std::byte* to, const std::byte* from, size_t bytes) {
  const StreamNumber stream = current_stream(*device_);
  exchanges_.wait(stream);
  device_->copy_to_device(address_of(to), from, bytes, stream);
}

void CudaBackend::to_host(std::byte* to, const std::byte* from, size_t bytes) {
  const StreamNumber stream = current_stream(*device_);
  exchanges_.wait(stream);
  device_->copy_to_host(to, address_of(from), bytes, stream);
}

bool CudaBackend::copy_from(devices::Backend& other, std::byte* to, const std::byte* from,
                            size_t bytes) {
  auto* source = dynamic_cast<CudaBackend*>(&other);
  if (!source) return false;
  const StreamNumber ours = current_stream(*device_), theirs = current_stream(*source->device_);
  device_->wait(ours, *source->device_->mark(theirs));
  if (!device_->copy_from(*source->device_, address_of(to), address_of(from), bytes, ours))
    return false;
  // What is given there from now on may write what was copied.
  source->device_->wait(theirs, *device_->mark(ours));
  return true;
}

StreamNumber CudaBackend::launch_stream() const {
  return recording() == this ? recording_stream : current_stream(*device_);
}

std::shared_ptr<const void> CudaBackend::record(FunctionRef<void()> work) {
  std::lock_guard guard(recording_mutex_);
  device_->begin_recording(recording_stream);
  recording() = this;
  std::exception_ptr fault;
  try {
    work();
  } catch (...) {
    fault = std::current_exception();
  }
  recording() = nullptr;
  // Also where the work failed: nobody could record again.
  std::shared_ptr<const LoadedGraph> graph;
  try {
    graph = device_->end_recording(recording_stream);
  } catch (...) {
    if (!fault) throw;
  }
  if (fault) std::rethrow_exception(fault);
  return graph;
}

void CudaBackend::replay(const std::shared_ptr<const void>& recorded) {
  device_->launch(*static_cast<const LoadedGraph*>(recorded.get()), current_stream(*device_));
}

devices::ExchangeOffer CudaBackend::exchange_offer(const std::shared_ptr<Communicator>& ranks) {
  return exchanges_.offer(ranks);
}

void CudaBackend::join_exchange(std::string_view group, const std::shared_ptr<Communicator>& ranks,
                                std::span<const devices::ExchangeOffer> offers) {
  exchanges_.join(group, ranks, offers);
}

devices::DeviceCode CudaBackend::make(const work::Work& work, int arguments, bool wait) {
  return make_code(shared_from_this(), work, arguments, wait);
}

KernelStore::Made<LoadedCode> CudaBackend::load(const Source& source) {
  return {device_->load(*compiler_.compile(source))};
}

std::optional<std::shared_ptr<const LoadedCode>> CudaBackend::stock(const Source& source,
                                                                    bool wait) {
  if (wait || stock_.is_settled(source.text))
    return stock_.get(source.text, [&] { return load(source); });
  stock_.request(source.text, [this, source] { return load(source); });
  return std::nullopt;
}

std::byte* CudaBackend::take_staging(size_t bytes) {
  bytes = MemoryCache::rounded(bytes);
  {
    std::lock_guard guard(mutex_);
    if (auto found = staging_.find(bytes); found != staging_.end()) {
      std::byte* memory = found->second;
      staging_.erase(found);
      return memory;
    }
  }
  return static_cast<std::byte*>(device_->allocate_host(bytes));
}

void CudaBackend::give_staging(std::byte* memory, size_t bytes) noexcept {
  std::lock_guard guard(mutex_);
  staging_.emplace(MemoryCache::rounded(bytes), memory);
}

}  // namespace gradus::fusion::cuda
