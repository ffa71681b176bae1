#include "devices/cuda/planned_device.h"

#include <atomic>
#include <new>

#include "devices/cuda/kernels.h"

namespace gradus::fusion::cuda {

namespace {

class PlannedDevice final : public Device {
 public:
  explicit PlannedDevice(int number) {
    facts_.name = "a device that is only planned for";
    facts_.number = number;
    facts_.multiprocessors = 1;
  }
  const DeviceFacts& facts() const override { return facts_; }

  Address allocate(size_t bytes) override {
    return next_ += (bytes + alignment - 1) / alignment * alignment + alignment;
  }
  void free(Address) override {}
  void* allocate_host(size_t bytes) override {
    return ::operator new(bytes, std::align_val_t(host_alignment));
  }
  void free_host(void* memory) override {
    ::operator delete(memory, std::align_val_t(host_alignment));
  }
  void copy_to_device(Address, const void*, size_t, StreamNumber) override {}
  void copy_to_host(void*, Address, size_t, StreamNumber) override { refuse(); }
  bool copy_from(Device&, Address, Address, size_t, StreamNumber) override { return false; }
  void synchronize(StreamNumber) override {}
  std::shared_ptr<const StreamMark> mark(StreamNumber) override {
    return std::make_shared<const StreamMark>();
  }
  void wait(StreamNumber, const StreamMark&) override {}
  bool is_done(const StreamMark&) override { return true; }
  uintptr_t native(StreamNumber) override { refuse(); }
  void let_wait(uintptr_t, StreamNumber) override { refuse(); }
  std::shared_ptr<const LoadedCode> load(const Code&) override {
    return std::make_shared<const LoadedCode>();
  }
  void launch(const LoadedCode&, const LaunchPlan::Launch&, StreamNumber) override { refuse(); }
  void begin_recording(StreamNumber) override { refuse(); }
  std::shared_ptr<const LoadedGraph> end_recording(StreamNumber) override { return nullptr; }
  void launch(const LoadedGraph&, StreamNumber) override { refuse(); }
  const Products* products() override { return nullptr; }
  void multiply(const Product&, Address, Address, Address, Address, Address,
                StreamNumber) override {
    refuse();
  }
  const Convolutions* convolutions() override { return nullptr; }
  void convolve(const Convolution&, Address, Address, Address, Address, StreamNumber) override {
    refuse();
  }
  const ExchangeTable* exchange_table() override { return nullptr; }

 private:
  static constexpr Address alignment = 256;
  static constexpr size_t host_alignment = 64;
  [[noreturn]] void refuse() const {
    throw ResourceError(
        "cuda:{} was only planned for: nothing runs there; make states in a context that uses the "
        "device (devices/cuda/kernels.h)",
        facts_.number);
  }

  DeviceFacts facts_;
  std::atomic<Address> next_{alignment};
};

}  // namespace

std::shared_ptr<Device> planned_device(int number) {
  return std::make_shared<PlannedDevice>(number);
}

void plan_for_device(Context& context, int number) {
  context.replace_part<Kernels>(
      std::make_shared<CudaKernels>(planned_device(number), KernelOptions{}, nullptr));
}

}  // namespace gradus::fusion::cuda
