// A device behind NVIDIA's driver.
#include <mutex>
#include <set>
#include <unordered_map>

#include <unistd.h>

#include "devices/cuda/device.h"
#include "devices/cuda/driver_library.h"
#include "fusion/cuda/prelude.h"

namespace gradus::fusion::cuda {

namespace {

constexpr int out_of_memory = 2;             // CUDA_ERROR_OUT_OF_MEMORY
constexpr int not_ready = 600;               // CUDA_ERROR_NOT_READY
constexpr unsigned stream_non_blocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned event_without_time = 2;   // CU_EVENT_DISABLE_TIMING

// Marks in the list of a launch's extra arguments.
void* const parameter_buffer = reinterpret_cast<void*>(1);
void* const parameter_bytes = reinterpret_cast<void*>(2);
void* const parameters_end = nullptr;

class DriverDevice final : public Device, public std::enable_shared_from_this<DriverDevice> {
 public:
  explicit DriverDevice(DeviceFacts facts) : facts_(std::move(facts)) {
    check(t_.device(&device_, facts_.number), "opening it");
    check(t_.retain_context(&context_, device_), "making its context");
  }
  ~DriverDevice() override {
    // In a forked child there is nothing to end; a fault here has nobody to tell.
    if (process_ != getpid()) {
      static_cast<void>(products_.release());
      static_cast<void>(convolutions_.release());
      return;
    }
    t_.set_context(context_);
    products_ = nullptr;
    convolutions_ = nullptr;
    for (auto& [number, stream] : streams_) t_.destroy_stream(stream);
    t_.release_context(device_);
  }

  const DeviceFacts& facts() const override { return facts_; }

  Address allocate(size_t bytes) override {
    enter();
    DevicePointer p = 0;
    const int fault = t_.allocate(&p, bytes);
    if (fault == out_of_memory)
      throw OutOfMemory("cuda:{} has no {} bytes left", facts_.number, bytes);
    check(fault, "allocating memory");
    return p;
  }
  void free(Address address) override {
    enter();
    check(t_.free(address), "freeing memory");
  }

  void* allocate_host(size_t bytes) override {
    enter();
    void* memory = nullptr;
    check(t_.allocate_host(&memory, std::max<size_t>(bytes, 1)), "allocating pinned memory");
    return memory;
  }
  void free_host(void* memory) override {
    enter();
    check(t_.free_host(memory), "freeing pinned memory");
  }

  void copy_to_device(Address to, const void* from, size_t bytes, StreamNumber n) override {
    enter();
    check(t_.copy_to_device(to, from, bytes, stream(n)), "copying to it");
    // The driver may still read what is no pinned memory.
    check(t_.wait_for_stream(stream(n)), "copying to it");
  }
  void copy_to_host(void* to, Address from, size_t bytes, StreamNumber n) override {
    enter();
    check(t_.copy_to_host(to, from, bytes, stream(n)), "copying from it");
    check(t_.wait_for_stream(stream(n)), "copying from it");
  }
  bool copy_from(Device& other, Address to, Address from, size_t bytes, StreamNumber n) override {
    auto* source = dynamic_cast<DriverDevice*>(&other);
    if (!source) return false;
    enter();
    reach(*source);
    check(t_.copy_between(to, context_, from, source->context_, bytes, stream(n)),
          "copying from another device");
    return true;
  }
  void synchronize(StreamNumber n) override {
    enter();
    check(t_.wait_for_stream(stream(n)), "waiting for it");
  }

  std::shared_ptr<const StreamMark> mark(StreamNumber n) override;
  void wait(StreamNumber n, const StreamMark& mark) override;
  bool is_done(const StreamMark& mark) override;
  uintptr_t native(StreamNumber n) override {
    enter();
    return reinterpret_cast<uintptr_t>(stream(n));
  }
  void let_wait(uintptr_t native, StreamNumber n) override;

  std::shared_ptr<const LoadedCode> load(const Code& code) override;
  void launch(const LoadedCode& code, const LaunchPlan::Launch& launch, StreamNumber n) override;

  void begin_recording(StreamNumber n) override {
    enter();
    constexpr int of_this_thread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(t_.begin_capture(stream(n), of_this_thread), "recording launches");
  }
  std::shared_ptr<const LoadedGraph> end_recording(StreamNumber n) override;
  void launch(const LoadedGraph& graph, StreamNumber n) override;

  const Products* products() override {
    std::call_once(products_sought_, [&] { products_ = start<Products>(product_library()); });
    return products_.get();
  }
  void multiply(const Product& product, Address a, Address b, Address row, Address c,
                Address workspace, StreamNumber n) override {
    enter();
    if (const int status = product.run(a, b, row, c, workspace, stream(n)))
      throw ResourceError("cuda:{} ({}): a product by cuBLASLt fails: status {}", facts_.number,
                          facts_.name, status);
  }
  const Convolutions* convolutions() override {
    std::call_once(convolutions_sought_,
                   [&] { convolutions_ = start<Convolutions>(convolution_library()); });
    return convolutions_.get();
  }
  void convolve(const Convolution& convolution, Address first, Address second, Address result,
                Address workspace, StreamNumber n) override {
    enter();
    if (const int status = convolution.run(first, second, result, workspace, stream(n)))
      throw ResourceError("cuda:{} ({}): a convolution by cuDNN fails: {}", facts_.number,
                          facts_.name, convolution.name_of(status));
  }
  const ExchangeTable* exchange_table() override {
    const LateLibrary<ExchangeTable>& late = exchange_library();
    return late.library ? &late.table : nullptr;
  }

 private:
  template <class Base, class Handle, int (*DriverTable::*destroy)(Handle)>
  friend class Made;
  // Null where a library is missing or does not start: our own kernels are there.
  template <class Calls, class Table>
  std::unique_ptr<const Calls> start(const LateLibrary<Table>& late) {
    enter();
    if (late.library) try {
        return std::make_unique<const Calls>(late.table);
      } catch (const ResourceError&) {
      }
    return nullptr;
  }
  // The context is a thread's: whoever comes here sets it.
  void enter() {
    if (process_ != getpid())
      throw ResourceError("cuda:{} was opened before a fork; open it in the child alone",
                          facts_.number);
    check(t_.set_context(context_), "setting its context");
  }
  void check(int fault, const char* what) const {
    if (fault)
      throw ResourceError("cuda:{} ({}): {} fails: {}", facts_.number, facts_.name, what,
                          DriverLibrary::get().error_text(fault));
  }
  // Copies are direct from then on, where the machine can; else the driver goes by the host.
  void reach(DriverDevice& other) {
    std::lock_guard guard(mutex_);
    if (!reached_.insert(other.device_).second) return;
    int can = 0;
    if (!t_.can_access(&can, device_, other.device_) && can) t_.enable_access(other.context_, 0);
  }
  DriverStream stream(StreamNumber n) {
    std::lock_guard guard(mutex_);
    DriverStream& s = streams_[n];
    if (!s) check(t_.make_stream(&s, stream_non_blocking), "making a stream");
    return s;
  }

  const DriverTable& t_ = DriverLibrary::get().table();
  const DeviceFacts facts_;
  const int64_t process_ = getpid();
  int device_ = 0;
  DriverContext context_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<StreamNumber, DriverStream> streams_;
  std::set<int> reached_;
  std::once_flag products_sought_, convolutions_sought_;
  std::unique_ptr<const Products> products_;
  std::unique_ptr<const Convolutions> convolutions_;
};

// What the driver has made, for as long as it is kept. An event that is destroyed stays until those
// that wait for it have, and a graph until its launches are done.
template <class Base, class Handle, int (*DriverTable::*destroy)(Handle)>
class Made : public Base {
 public:
  Made(std::shared_ptr<DriverDevice> device, Handle handle)
      : device_(std::move(device)), handle_(handle) {}
  ~Made() override {
    if (device_->process_ == getpid() && !device_->t_.set_context(device_->context_))
      (device_->t_.*destroy)(handle_);
  }
  Handle handle() const { return handle_; }

 private:
  const std::shared_ptr<DriverDevice> device_;  // goes last
  const Handle handle_;
};

using DriverMark = Made<StreamMark, DriverEvent, &DriverTable::destroy_event>;
using DriverLaunches = Made<LoadedGraph, DriverGraphRun, &DriverTable::destroy_graph_run>;
struct DriverCode final : Made<LoadedCode, DriverModule, &DriverTable::unload_module> {
  using Made::Made;
  DriverFunction function = nullptr;
};

std::shared_ptr<const StreamMark> DriverDevice::mark(StreamNumber n) {
  enter();
  DriverEvent event = nullptr;
  check(t_.make_event(&event, event_without_time), "making an event");
  auto mark = std::make_shared<DriverMark>(shared_from_this(), event);
  check(t_.record_event(event, stream(n)), "recording an event");
  return mark;
}

void DriverDevice::wait(StreamNumber n, const StreamMark& mark) {
  enter();
  check(t_.stream_waits(stream(n), static_cast<const DriverMark&>(mark).handle(), 0),
        "having a stream wait");
}

bool DriverDevice::is_done(const StreamMark& mark) {
  enter();
  const int status = t_.query_event(static_cast<const DriverMark&>(mark).handle());
  if (status == not_ready) return false;
  check(status, "asking for an event");
  return true;
}

void DriverDevice::let_wait(uintptr_t native, StreamNumber n) {
  const auto made = mark(n);
  check(t_.stream_waits(reinterpret_cast<DriverStream>(native),
                        static_cast<const DriverMark&>(*made).handle(), 0),
        "having another library's stream wait");
}

std::shared_ptr<const LoadedGraph> DriverDevice::end_recording(StreamNumber n) {
  enter();
  DriverGraph graph = nullptr;
  check(t_.end_capture(stream(n), &graph), "recording launches");
  DriverGraphRun run = nullptr;
  const int fault = t_.make_graph_run(&run, graph, 0);
  t_.destroy_graph(graph);
  check(fault, "making a graph of launches");
  return std::make_shared<DriverLaunches>(shared_from_this(), run);
}

void DriverDevice::launch(const LoadedGraph& graph, StreamNumber n) {
  enter();
  check(t_.launch_graph(static_cast<const DriverLaunches&>(graph).handle(), stream(n)),
        "launching a graph");
}

std::shared_ptr<const LoadedCode> DriverDevice::load(const Code& code) {
  if (code.cubin.empty()) throw ResourceError("cuda:{}: there is no machine code", facts_.number);
  enter();
  DriverModule module = nullptr;
  check(t_.load_module(&module, code.cubin.data()), "loading a kernel");
  auto loaded = std::make_shared<DriverCode>(shared_from_this(), module);
  check(t_.find_function(&loaded->function, module, entry_name), "finding a kernel");
  return loaded;
}

void DriverDevice::launch(const LoadedCode& code, const LaunchPlan::Launch& launch,
                          StreamNumber n) {
  enter();
  size_t bytes = launch.parameters.size();
  // The driver reads what it is given, and writes none of it.
  void* extra[] = {parameter_buffer, const_cast<std::byte*>(launch.parameters.data()),
                   parameter_bytes, &bytes, parameters_end};
  check(t_.launch(static_cast<const DriverCode&>(code).function, launch.blocks, 1, 1, block_threads,
                  1, 1, 0, stream(n), nullptr, extra),
        "launching a kernel");
}

}  // namespace

std::shared_ptr<Device> open_device(int number) {
  const std::string why = why_no_device(number);
  if (!why.empty()) throw ResourceError("cuda:{} cannot be used: {}", number, why);
  struct Opened {
    int64_t process = 0;
    std::weak_ptr<Device> device;
  };
  static std::mutex& mutex = *new std::mutex;
  static auto& opened = *new std::unordered_map<int, Opened>;
  std::lock_guard guard(mutex);
  Opened& known = opened[number];
  // What a parent had opened is of no use in a forked child.
  auto device = known.process == getpid() ? known.device.lock() : nullptr;
  if (!device) {
    const DeviceReport report = probe_kernels();
    device = std::make_shared<DriverDevice>(report.devices[static_cast<size_t>(number)]);
    known = {getpid(), device};
  }
  return device;
}

}  // namespace gradus::fusion::cuda
