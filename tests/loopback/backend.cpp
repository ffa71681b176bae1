#include "tests/loopback/backend.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/make.h"
#include "tests/reference/work.h"

namespace gradus::loopback {

namespace {

constexpr size_t alignment = 256;
// What is let go, and what nobody has written yet: NaN in every floating dtype.
constexpr int poison = 0xff;

void check(bool good, const char* what) {
  if (!good) throw ResourceError("{}", what);
}

}  // namespace

// Memory that is mapped twice: where its addresses lead, nobody may read or write; kernels find it
// elsewhere. Thread-safe.
class Arena {
 public:
  Arena() {
    const int file = memfd_create("gradus-loopback", MFD_CLOEXEC);
    check(file >= 0 && ftruncate(file, bytes) == 0, "the loopback device has no memory");
    real_ = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
    close(file);
    shown_ = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    free_[0] = bytes;
  }
  ~Arena() {
    munmap(real_, bytes);
    munmap(shown_, bytes);
  }
  Arena(const Arena&) = delete;

  bool holds(const std::byte* address) const {
    return address >= shown_ && address < shown_ + bytes;
  }
  std::byte* real(const std::byte* address) const { return real_ + (address - shown_); }

  // The first place where it fits: what was let go is soon another's.
  std::byte* take(size_t n) {
    n = std::max(alignment, (n + alignment - 1) / alignment * alignment);
    std::lock_guard guard(mutex_);
    for (auto f = free_.begin(); f != free_.end(); ++f) {
      if (f->second < n) continue;
      const auto [at, room] = *f;
      free_.erase(f);
      if (room > n) free_[at + n] = room - n;
      taken_[at] = n;
      return shown_ + at;
    }
    throw ResourceError("the loopback device has no {} bytes left", n);
  }
  size_t size_at(const std::byte* address) {
    std::lock_guard guard(mutex_);
    return taken_.at(static_cast<size_t>(address - shown_));
  }
  void give(const std::byte* address) {
    std::lock_guard guard(mutex_);
    const auto taken = taken_.find(static_cast<size_t>(address - shown_));
    auto [f, fresh] = free_.emplace(*taken);
    taken_.erase(taken);
    if (auto next = std::next(f); next != free_.end() && f->first + f->second == next->first) {
      f->second += next->second;
      free_.erase(next);
    }
    if (f == free_.begin()) return;
    if (auto before = std::prev(f); before->first + before->second == f->first) {
      before->second += f->second;
      free_.erase(f);
    }
  }

 private:
  static constexpr size_t bytes = size_t{1} << 30;
  static std::byte* map(int protection, int flags, int file) {
    void* memory = mmap(nullptr, bytes, protection, flags, file, 0);
    check(memory != MAP_FAILED, "the loopback device has no addresses");
    return static_cast<std::byte*>(memory);
  }
  std::byte *real_, *shown_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_, taken_;  // by offset: bytes
};

// A stream: a thread that does its work in order.
class Queue {
 public:
  explicit Queue(uint64_t seed) : random_(seed), thread_([this] { main(); }) {}
  ~Queue() {
    push(nullptr);
    thread_.join();
  }
  void push(std::function<void()> work) {
    {
      std::lock_guard guard(mutex_);
      waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
  }
  // Done when all that was pushed so far is.
  std::shared_future<void> mark() {
    auto done = std::make_shared<std::promise<void>>();
    push([done] { done->set_value(); });
    return done->get_future().share();
  }

 private:
  void main() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock guard(mutex_);
        changed_.wait(guard, [&] { return !waiting_.empty(); });
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (!work) return;
      if (random_() % 16 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
      else if (random_() % 2 == 0)
        std::this_thread::yield();
      work();
    }
  }
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::thread thread_;
};

struct LoopbackBackend::Launch {
  std::shared_ptr<LoopbackBackend> backend;
  work::Kernel kernel;
  size_t pointers;
  bool may_fail;  // the last pointer is where faults are told
};

struct LoopbackBackend::Recording {
  const LoopbackBackend* backend;
  std::vector<std::function<void()>> work;
};

namespace {

thread_local std::map<uint16_t, uint64_t> current_streams;
thread_local void* recording = nullptr;

devices::PlanTraits traits_by_chance(std::mt19937_64 random) {
  return {.shares_copies = false,
          .reads_edges = random() % 2 == 0,
          .has_loops = random() % 2 == 0,
          .joins_rows = random() % 2 == 0};
}

}  // namespace

LoopbackBackend::LoopbackBackend(uint16_t number, uint64_t seed)
    : Backend({DeviceKind::other, number}, traits_by_chance(std::mt19937_64(seed))),
      arena_(std::make_unique<Arena>()),
      context_(std::make_shared<Context>(ContextOptions{.workers = 1})),
      random_(seed * 1000 + number) {}

LoopbackBackend::~LoopbackBackend() { queues_.clear(); }

bool LoopbackBackend::chance(int one_in) const {
  std::lock_guard guard(mutex_);
  return random_() % static_cast<uint64_t>(one_in) == 0;
}

Queue& LoopbackBackend::queue(Stream stream) {
  std::lock_guard guard(mutex_);
  auto& queue = queues_[stream];
  if (!queue) queue = std::make_unique<Queue>(random_());
  return *queue;
}

devices::Backend::Stream LoopbackBackend::stream() const { return current_streams[device().index]; }
void LoopbackBackend::set_stream(Stream stream) { current_streams[device().index] = stream; }

void LoopbackBackend::enqueue(std::function<void()> work) {
  auto* record = static_cast<Recording*>(recording);
  if (record && record->backend == this)
    record->work.push_back(std::move(work));
  else
    queue(stream()).push(std::move(work));
}

std::shared_ptr<const void> LoopbackBackend::mark(Stream stream) {
  return std::make_shared<std::shared_future<void>>(queue(stream).mark());
}
void LoopbackBackend::wait(Stream stream, const std::shared_ptr<const void>& mark) {
  auto done = *std::static_pointer_cast<const std::shared_future<void>>(mark);
  queue(stream).push([done] { done.wait(); });
}
void LoopbackBackend::synchronize(Stream stream) { queue(stream).mark().wait(); }

void LoopbackBackend::drain() {
  std::vector<Stream> streams;
  {
    std::lock_guard guard(mutex_);
    for (const auto& [stream, queue] : queues_) streams.push_back(stream);
  }
  for (Stream s : streams) synchronize(s);
  std::lock_guard guard(mutex_);
  if (!failure_.empty()) throw InternalError(std::exchange(failure_, {}));
}

std::byte* LoopbackBackend::allocate(size_t bytes) {
  std::byte* address = arena_->take(bytes);
  std::memset(arena_->real(address), poison, arena_->size_at(address));
  std::lock_guard guard(mutex_);
  blocks_[address] = {stream(), {}};
  return address;
}

void LoopbackBackend::record_use(const std::byte* address, Stream stream) {
  std::lock_guard guard(mutex_);
  auto block = blocks_.find(const_cast<std::byte*>(address));
  if (block != blocks_.end() && stream != block->second.home) block->second.uses.insert(stream);
}

// Another's when its own stream and those that use it have done what they were given.
void LoopbackBackend::release(std::byte* address) noexcept {
  Block block;
  {
    std::lock_guard guard(mutex_);
    block = blocks_.extract(address).mapped();
  }
  std::vector<std::shared_future<void>> uses;
  for (Stream s : block.uses) uses.push_back(queue(s).mark());
  queue(block.home).push([this, address, uses] {
    for (const auto& use : uses) use.wait();
    std::memset(arena_->real(address), poison, arena_->size_at(address));
    arena_->give(address);
  });
}

std::byte* LoopbackBackend::real(std::byte* address) const {
  if (!address) return nullptr;
  if (!arena_->holds(address)) throw InternalError("a pointer is none of the device's");
  return arena_->real(address);
}

void LoopbackBackend::to_device(std::byte* to, const std::byte* from, size_t bytes) {
  enqueue([to = real(to), read = std::vector<std::byte>(from, from + bytes)] {
    std::memcpy(to, read.data(), read.size());
  });
}
void LoopbackBackend::to_host(std::byte* to, const std::byte* from, size_t bytes) {
  std::promise<void> done;
  queue(stream()).push([&done, to, from = real(const_cast<std::byte*>(from)), bytes] {
    std::memcpy(to, from, bytes);
    done.set_value();
  });
  done.get_future().wait();
}
bool LoopbackBackend::copy_from(Backend& other, std::byte* to, const std::byte* from,
                                size_t bytes) {
  auto* source = dynamic_cast<LoopbackBackend*>(&other);
  if (!source || source->chance(4)) return false;  // then it goes by the host
  wait(stream(), source->mark(source->stream()));
  enqueue([to = real(to), from = source->real(const_cast<std::byte*>(from)), bytes] {
    std::memcpy(to, from, bytes);
  });
  source->wait(source->stream(), mark(stream()));
  return true;
}

std::byte* LoopbackBackend::take_staging(size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
}
void LoopbackBackend::give_staging(std::byte* memory, size_t) noexcept {
  ::operator delete(memory, std::align_val_t(64));
}

std::shared_ptr<const void> LoopbackBackend::record(FunctionRef<void()> work) {
  auto made = std::make_shared<Recording>(Recording{this, {}});
  recording = made.get();
  try {
    work();
  } catch (...) {
    recording = nullptr;
    throw;
  }
  recording = nullptr;
  return made;
}
void LoopbackBackend::replay(const std::shared_ptr<const void>& recorded) {
  for (const auto& work : std::static_pointer_cast<const Recording>(recorded)->work) enqueue(work);
}

int64_t LoopbackBackend::note(const char* message) {
  std::lock_guard guard(mutex_);
  messages_.emplace_back(message);
  return static_cast<int64_t>(messages_.size()) - 1;
}

void LoopbackBackend::launch(const void* parameters, std::byte* const* args,
                             work::KernelScope& scope) {
  const auto& launch = *static_cast<const Launch*>(parameters);
  SmallVector<std::byte*, 8> pointers;
  for (size_t a = 0; a < launch.pointers + launch.may_fail; ++a)
    pointers.push_back(launch.backend->real(args[a]));
  std::byte* scratch = launch.kernel.scratch_bytes ? launch.backend->real(scope.scratch) : nullptr;
  launch.backend->enqueue([self = launch, pointers, scratch] {
    work::KernelScope inner{self.backend->context_->workers(), scratch};
    try {
      self.kernel.run(self.kernel.parameters.get(), pointers.data(), inner);
    } catch (const Exception& e) {
      if (self.may_fail) {
        const int64_t fault[] = {1, self.backend->note(e.what())};
        std::memcpy(pointers.back(), fault, sizeof fault);
        return;
      }
      std::lock_guard guard(self.backend->mutex_);
      self.backend->failure_ = e.what();
    }
  });
}

work::Kernel LoopbackBackend::later(work::Kernel kernel, size_t pointers, bool may_fail) {
  const size_t scratch = kernel.scratch_bytes;
  return work::Kernel::of(launch, Launch{shared_from_this(), std::move(kernel), pointers, may_fail},
                          scratch);
}

namespace {

void run_reference(const void* parameters, std::byte* const* args, work::KernelScope&) {
  reference::evaluate(*static_cast<const work::Work*>(parameters), args);
}

// Their evaluator adds up in another order than the code does.
bool has_another_order(const work::Work& w) {
  return std::holds_alternative<work::Factor>(w) || std::holds_alternative<work::Fourier>(w);
}

bool rounds_once(const work::Product& w) {
  return w.gemm.dtype == DType::f32 || w.gemm.dtype == DType::f64;
}

}  // namespace

devices::DeviceCode LoopbackBackend::make(const work::Work& work, int arguments, bool wait) {
  const auto* product = std::get_if<work::Product>(&work);
  const bool adds_row = product && product->adds_row;
  if (std::holds_alternative<work::Foreign>(work) || (adds_row && !rounds_once(*product)) ||
      chance(16))
    return {};
  devices::DeviceCode code;
  const std::string key = work::key_of(work);
  {
    std::lock_guard guard(mutex_);
    auto [known, fresh] = made_later_.try_emplace(key, wait || random_() % 4 != 0);
    known->second |= wait;
    if (!known->second) code.later.push_back(key);
  }
  if (!code.later.empty()) return code;
  work::Kernel kernel;
  if (adds_row || (!has_another_order(work) && chance(4)))
    kernel = work::Kernel::of(run_reference, work);
  else
    kernel = kernels::make(work);
  if (!kernel.run) return {};
  const bool may_fail =
      std::holds_alternative<work::Index>(work) || std::holds_alternative<work::IndexCheck>(work);
  if (may_fail)
    code.faults.push_back([self = weak_from_this()](int64_t message) {
      const auto backend = self.lock();
      std::lock_guard guard(backend->mutex_);
      return Error("{}", backend->messages_.at(static_cast<size_t>(message)));
    });
  code.kernel = later(std::move(kernel), static_cast<size_t>(arguments), may_fail);
  return code;
}

bool LoopbackBackend::is_settled(const std::string& code) const {
  if (!chance(2)) return false;
  std::lock_guard guard(mutex_);
  return made_later_[code] = true;
}

namespace {

std::atomic<uint64_t> next_id{uint64_t{1} << 44};  // no other source counts so far

class LoopbackKernel final : public fusion::Kernel {
 public:
  LoopbackKernel(const fusion::Nest& nest, std::shared_ptr<LoopbackBackend> backend)
      : nest_(nest), backend_(std::move(backend)) {}
  work::Kernel bind(const fusion::Frame& frame) const override {
    const size_t pointers = nest_.operands() + nest_.stores.size() + nest_.row_stores.size() +
                            nest_.column_stores.size();
    const work::Work work = work::Loops{nest_, frame};
    return backend_->later(work::Kernel::of(run_reference, work), pointers);
  }

 private:
  const fusion::Nest nest_;
  const std::shared_ptr<LoopbackBackend> backend_;
};

}  // namespace

LoopbackKernels::LoopbackKernels(std::shared_ptr<LoopbackBackend> backend)
    : id_(next_id++), backend_(std::move(backend)), ready_(std::make_shared<fusion::KernelSet>()) {}

bool LoopbackKernels::wants(const fusion::Nest& nest, const fusion::Frame& frame) const {
  return frame.count() > 0 && (!nest.has_edges() || backend_->traits().reads_edges);
}

std::shared_ptr<const fusion::KernelSet> LoopbackKernels::ready() {
  std::lock_guard guard(mutex_);
  return ready_;
}

std::shared_ptr<const fusion::Kernel> LoopbackKernels::get(const fusion::Nest& nest,
                                                           const std::string& text) {
  std::lock_guard guard(mutex_);
  if (auto kernel = ready_->find(text)) return kernel;
  std::shared_ptr<const fusion::Kernel> kernel = std::make_shared<LoopbackKernel>(nest, backend_);
  ready_ = ready_->with(fusion::KernelSet::Of::nest, text, kernel);
  return kernel;
}

}  // namespace gradus::loopback
