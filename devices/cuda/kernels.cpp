#include "devices/cuda/kernels.h"

#include <atomic>

#include <unistd.h>

namespace gradus::fusion::cuda {

namespace {

// Other sources count from 1.
std::atomic<uint64_t> next_id{uint64_t{1} << 32};

class DeviceKernel;

// A kernel and all that follows from the sizes.
struct Bound {
  std::shared_ptr<const DeviceKernel> kernel;
  LaunchPlan plan;
  size_t slots;

  void run(std::byte* const* args) const;
};

class DeviceKernel final : public fusion::Kernel {
 public:
  DeviceKernel(const Nest& nest, std::shared_ptr<const Code> code,
               std::shared_ptr<CudaBackend> backend)
      : nest_(nest),
        code_(std::move(code)),
        backend_(std::move(backend)),
        loaded_(backend_->device_code().load(*code_)) {}

  work::Kernel bind(const Frame& frame) const override;
  const Nest& nest() const override { return nest_; }
  cuda::Device& device() const { return backend_->device_code(); }
  const LoadedCode& loaded() const { return *loaded_; }
  StreamNumber stream() const { return backend_->launch_stream(); }

 private:
  const Nest nest_;
  const std::shared_ptr<const Code> code_;
  const std::shared_ptr<CudaBackend> backend_;
  const std::shared_ptr<const LoadedCode> loaded_;
};

void Bound::run(std::byte* const* args) const {
  SmallVector<uint64_t, 16> addresses;
  for (size_t k = 0; k < slots; ++k) addresses.push_back(reinterpret_cast<uint64_t>(args[k]));
  SmallVector<std::byte, 256> room(plan.parameter_bytes());
  for (size_t part = 0; part < plan.launches(); ++part)
    kernel->device().launch(kernel->loaded(), plan.launch(part, addresses, room), kernel->stream());
}

void run_bound(const void* parameters, std::byte* const* args, work::KernelScope&) {
  static_cast<const Bound*>(parameters)->run(args);
}
void run_nothing(const void*, std::byte* const*, work::KernelScope&) {}

work::Kernel DeviceKernel::bind(const Frame& frame) const {
  if (frame.count() == 0) return {run_nothing, nullptr, 0};
  auto bound = std::make_shared<Bound>(
      Bound{std::static_pointer_cast<const DeviceKernel>(shared_from_this()),
            LaunchPlan(nest_, code_->shape, frame, device().facts().multiprocessors),
            nest_.loads.size() + nest_.stores.size() + nest_.row_stores.size()});
  return {run_bound, std::move(bound), 0};
}

}  // namespace

CudaKernels::CudaKernels(std::shared_ptr<Device> device, const KernelOptions& options, LogSink log)
    : id_(next_id++),
      process_(getpid()),
      options_(options),
      log_(std::move(log)),
      backend_(std::make_shared<CudaBackend>(
          std::move(device),
          options.folder.empty()
              ? nullptr
              : std::make_shared<ObjectStore>(options.folder, options.most_folder_bytes),
          log_, options.atomics)),
      ready_(std::make_shared<KernelSet>()) {}

CudaKernels::~CudaKernels() { backend_->behind().stop(); }

void CudaKernels::request(const Nest& nest, const std::string& text) {
  if (forked()) return;
  {
    std::lock_guard guard(mutex_);
    if (failed_.contains(text) || ready_->find(text)) return;
  }
  backend_->behind().add(text, [this, nest, text] { get(nest, text); });
}

void CudaKernels::wait() {
  if (!forked()) backend_->behind().wait();
}

bool CudaKernels::wants(const Nest& nest, const Frame& frame) const {
  return frame.count() > 0 && !nest.has_edges();
}

std::shared_ptr<devices::Backend> CudaKernels::backend() { return forked() ? nullptr : backend_; }

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
    auto code = backend_->compiler().compile(nest);
    auto kernel = std::make_shared<DeviceKernel>(nest, code, backend_);
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
    auto next = std::make_shared<KernelSet>(*ready_);
    next->failed.insert(text);
    ++next->generation;
    ready_ = std::move(next);
  }
  if (first && log_)
    log_(LogLevel::warning,
         fmt::format("no kernel on cuda:{} for a group, which runs otherwise: {}\n{}",
                     backend_->device().index, why, text));
  return nullptr;
}

KernelStatistics CudaKernels::statistics() const {
  if (forked()) return {};
  const TaskQueue::Statistics behind = backend_->behind().statistics();
  std::lock_guard guard(mutex_);
  KernelStatistics s = statistics_;
  s.failed = failed_.size();
  s.kernels = ready_->kernels.size();
  s.waiting = behind.waiting;
  s.dropped = behind.dropped;
  return s;
}

void use_device(Context& context, int number, const KernelOptions& options) {
  context.replace_part<Kernels>(
      std::make_shared<CudaKernels>(open_device(number), options, context.log_sink()));
}

}  // namespace gradus::fusion::cuda
