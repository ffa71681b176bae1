#include "fusion/cuda/kernels.h"

#include <atomic>
#include <map>

#include <unistd.h>

namespace gradus::fusion::cuda {

namespace {

// Other sources count from 1.
std::atomic<uint64_t> next_id{uint64_t{1} << 32};

// Where a slot's elements lie, from its first one, in bytes.
struct Extent {
  int64_t below = 0, above = 0;
  size_t bytes() const { return static_cast<size_t>(below + above); }
};

std::vector<Extent> extents_of(const Nest& nest, const Frame& frame) {
  std::vector<Extent> extents;
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    const auto bytes = static_cast<int64_t>(size_of(nest.loads[k].dtype));
    Extent e{0, bytes};
    for (size_t d = 0; d < frame.sizes.size(); ++d) {
      if (nest.loads[k].walks[d] == Walk::broadcast || frame.sizes[d] == 1) continue;
      const int64_t last = (frame.sizes[d] - 1) * frame.strides[k][d] * bytes;
      (last < 0 ? e.below : e.above) += last < 0 ? -last : last;
    }
    extents.push_back(e);
  }
  auto stored = [&](ValueNumber v, int64_t n) {
    extents.push_back({0, n * static_cast<int64_t>(size_of(nest.dtype_of(v)))});
  };
  for (ValueNumber v : nest.stores) stored(v, frame.count());
  for (ValueNumber v : nest.row_stores) stored(v, frame.count() / frame.sizes.back());
  return extents;
}

class CopyingKernel;

// A kernel and all that follows from the sizes.
struct Bound {
  std::shared_ptr<const CopyingKernel> kernel;
  LaunchPlan plan;
  std::vector<Extent> extents;  // by slot
  size_t loads;

  void run(std::byte* const* args) const;
};

class CopyingKernel final : public fusion::Kernel {
 public:
  CopyingKernel(const Nest& nest, std::shared_ptr<const Code> code,
                std::shared_ptr<CudaKernels::Place> place)
      : nest_(nest),
        code_(std::move(code)),
        place_(std::move(place)),
        loaded_(place_->device->load(*code_)) {}

  ir::Kernel bind(const Frame& frame) const override;
  const Nest& nest() const override { return nest_; }
  CudaKernels::Place& place() const { return *place_; }
  const LoadedCode& loaded() const { return *loaded_; }

 private:
  const Nest nest_;
  const std::shared_ptr<const Code> code_;
  const std::shared_ptr<CudaKernels::Place> place_;
  const std::shared_ptr<const LoadedCode> loaded_;
};

// Memory of a run. It goes back also where the run throws.
class Held {
 public:
  explicit Held(MemoryCache& memory) : memory_(memory) {}
  ~Held() {
    for (Address a : addresses_) memory_.release(a, 0);
  }
  Held(const Held&) = delete;
  Address take(size_t bytes) {
    addresses_.reserve(addresses_.size() + 1);
    return addresses_.emplace_back(memory_.allocate(bytes, 0));
  }

 private:
  MemoryCache& memory_;
  std::vector<Address> addresses_;
};

void Bound::run(std::byte* const* args) const {
  CudaKernels::Place& place = kernel->place();
  Held held(place.memory);
  std::vector<Address> addresses;
  // An operand that is written over is one piece of memory there, too.
  std::map<std::pair<const std::byte*, size_t>, Address> known;
  for (size_t k = 0; k < extents.size(); ++k) {
    const Extent& e = extents[k];
    const std::byte* first = args[k] - e.below;
    auto [found, fresh] = known.try_emplace({first, e.bytes()});
    if (fresh) {
      // Aligned as it is here, so that packs are where they are here.
      const uint64_t offset = reinterpret_cast<uintptr_t>(first) % 16;
      found->second = held.take(e.bytes() + offset) + offset;
      if (k < loads) place.device->copy_to_device(found->second, first, e.bytes(), 0);
    }
    addresses.push_back(found->second + static_cast<uint64_t>(e.below));
  }
  std::vector<std::byte> room(plan.parameter_bytes());
  for (size_t part = 0; part < plan.launches(); ++part)
    place.device->launch(kernel->loaded(), plan.launch(part, addresses, room), 0);
  for (size_t k = loads; k < extents.size(); ++k)
    place.device->copy_to_host(args[k], addresses[k], extents[k].bytes(), 0);
}

void run_bound(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  static_cast<const Bound*>(parameters)->run(args);
}
void run_nothing(const void*, std::byte* const*, ir::KernelScope&) {}

ir::Kernel CopyingKernel::bind(const Frame& frame) const {
  if (frame.count() == 0) return {run_nothing, nullptr, 0};
  auto bound = std::make_shared<Bound>(
      Bound{std::static_pointer_cast<const CopyingKernel>(shared_from_this()),
            LaunchPlan(nest_, code_->shape, frame, place_->device->facts().multiprocessors),
            extents_of(nest_, frame), nest_.loads.size()});
  return {run_bound, std::move(bound), 0};
}

}  // namespace

CudaKernels::CudaKernels(std::shared_ptr<Device> device, const KernelOptions& options, LogSink log)
    : id_(next_id++),
      process_(getpid()),
      options_(options),
      log_(std::move(log)),
      place_(std::make_shared<Place>(std::move(device))),
      compiler_(place_->device->facts().architecture(),
                options.folder.empty()
                    ? nullptr
                    : std::make_shared<ObjectStore>(options.folder, options.most_folder_bytes)),
      ready_(std::make_shared<KernelSet>()) {}

bool CudaKernels::wants(const Nest& nest, const Frame& frame) const {
  return frame.count() > 0 && !nest.has_edges();
}

bool CudaKernels::forked() const { return process_ != getpid(); }

std::shared_ptr<const KernelSet> CudaKernels::ready() {
  static const std::shared_ptr<const KernelSet> none = std::make_shared<KernelSet>();
  if (forked()) return none;  // another thread of the parent's may have held the mutex
  std::lock_guard guard(mutex_);
  return ready_;
}

std::shared_ptr<const fusion::Kernel> CudaKernels::get(const Nest& nest, const std::string& text) {
  if (forked()) return nullptr;
  {
    std::lock_guard guard(mutex_);
    if (failed_.contains(text)) return nullptr;
    if (auto kernel = ready_->find(text)) {
      ++statistics_.hits;
      return kernel;
    }
  }
  std::string why;
  try {
    auto code = compiler_.compile(nest);
    auto kernel = std::make_shared<CopyingKernel>(nest, code, place_);
    std::lock_guard guard(mutex_);
    if (auto other = ready_->find(text)) return other;
    auto next = std::make_shared<KernelSet>(*ready_);
    next->kernels.emplace(text, kernel);
    ++next->generation;
    ready_ = std::move(next);
    ++(code->seconds > 0 ? statistics_.misses : statistics_.loaded);
    statistics_.seconds += code->seconds;
    return kernel;
  } catch (const std::exception& e) {
    why = e.what();
  }
  bool first;
  {
    std::lock_guard guard(mutex_);
    first = failed_.insert(text).second;
  }
  if (first && log_)
    log_(LogLevel::warning, fmt::format("a group runs unfused, on the CPU: {}\n{}", why, text));
  return nullptr;
}

KernelStatistics CudaKernels::statistics() const {
  if (forked()) return {};
  std::lock_guard guard(mutex_);
  KernelStatistics s = statistics_;
  s.failed = failed_.size();
  s.kernels = ready_->kernels.size();
  return s;
}

void use_device(Context& context, int number, const KernelOptions& options) {
  context.replace_part<Kernels>(
      std::make_shared<CudaKernels>(open_device(number), options, context.log_sink()));
}

}  // namespace gradus::fusion::cuda
