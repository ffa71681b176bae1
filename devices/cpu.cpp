// The CPU as a backend.
#include <cstring>
#include <new>

#include "devices/backend.h"
#include "kernels/make.h"

namespace gradus::devices {

namespace {

class Cpu final : public Backend {
 public:
  Cpu() : Backend(Device(), {.host_memory = true, .compiles_ahead = false}) {}
  size_t count() const override { return 1; }

  Stream stream() const override { return 0; }
  void set_stream(Stream) override {}
  std::shared_ptr<const void> mark(Stream) override { return nullptr; }
  void wait(Stream, const std::shared_ptr<const void>&) override {}
  uintptr_t native_stream(Stream) override { return 0; }
  void let_wait(uintptr_t, Stream) override {}
  void synchronize(Stream) override {}

  void record_use(const std::byte*, Stream) override {}
  std::byte* allocate(size_t bytes) override {
    void* memory = ::operator new(bytes, alignment, std::nothrow);
    if (!memory) throw ResourceError("there is no memory for {} bytes", bytes);
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* address) noexcept override { ::operator delete(address, alignment); }
  void to_device(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void to_host(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  bool copy_from(Backend& other, std::byte* to, const std::byte* from, size_t bytes) override {
    other.to_host(to, from, bytes);
    return true;
  }
  std::byte* take_staging(size_t bytes) override { return allocate(bytes); }
  void give_staging(std::byte* memory, size_t) noexcept override { release(memory); }

  std::shared_ptr<const void> record(FunctionRef<void()>) override { return nullptr; }
  void replay(const std::shared_ptr<const void>&) override {}

  DeviceCode make(const work::Work& work, int, bool) override {
    return {kernels::make(work), {}, {}};
  }
  bool is_settled(const std::string&) const override { return true; }

 private:
  static constexpr std::align_val_t alignment{256};
};

}  // namespace

const std::shared_ptr<Backend>& cpu() {
  static const auto& backend = *new std::shared_ptr<Backend>(std::make_shared<Cpu>());
  return backend;
}

}  // namespace gradus::devices
