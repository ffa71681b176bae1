#include "devices/cuda/kernels.h"

namespace gradus::fusion::cuda {

namespace {

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
    : backend_(std::make_shared<CudaBackend>(
          std::move(device),
          options.folder.empty()
              ? nullptr
              : std::make_shared<ObjectStore>(options.folder, options.most_folder_bytes),
          log, options.atomics)),
      store_(backend_->behind(),
             {.no_code = fmt::format("no kernel on cuda:{} for a group, which runs otherwise",
                                     backend_->device().index),
              .log = std::move(log)}) {
  store_.claim();
}

CudaKernels::~CudaKernels() { backend_->behind().stop(); }

bool CudaKernels::wants(const Nest& nest, const Frame& frame) const {
  return frame.count() > 0 && !nest.has_edges();
}

std::shared_ptr<devices::Backend> CudaKernels::backend() {
  return store_.forked() ? devices::cpu() : backend_;
}

KernelStore::Made<fusion::Kernel> CudaKernels::make(const Nest& nest) const {
  const auto code = backend_->compiler().compile(nest);
  const bool compiled = code->seconds > 0;
  return {std::make_shared<DeviceKernel>(nest, code, backend_),
          {.misses = compiled, .loaded = !compiled, .seconds = code->seconds}};
}

std::shared_ptr<const fusion::Kernel> CudaKernels::get(const Nest& nest, const std::string& text) {
  return store_.get(text, [&] { return make(nest); });
}

void CudaKernels::request(const Nest& nest, const std::string& text) {
  store_.request(text, [this, nest] { return make(nest); });
}

void use_device(Context& context, int number, const KernelOptions& options) {
  context.replace_part<Kernels>(
      std::make_shared<CudaKernels>(open_device(number), options, context.log_sink()));
}

}  // namespace gradus::fusion::cuda
