#include "fusion/cpu/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <unistd.h>

#include "fusion/cost.h"

namespace gradus::fusion::cpu {

namespace {

std::atomic<uint64_t> next_id{1};

std::optional<Isa> choose_isa(unsigned vector_bits) {
  if (vector_bits != 0 && vector_bits != 256 && vector_bits != 512)
    throw Error("kernels of {} bits are asked for; say 256, 512, or 0 for the widest there are",
                vector_bits);
  if (vector_bits != 256 && runs_here(Isa::avx512)) return Isa::avx512;
  if (vector_bits == 512) throw Error("kernels of 512 bits are asked for, which do not run here");
  return runs_here(Isa::avx2) ? std::optional(Isa::avx2) : std::nullopt;
}

// Those with threads that compile, all of the process. When it ends they are stopped before
// anything that they use goes.
class Threads {
 public:
  // Never destroyed: contexts may go at any time.
  static Threads& get() {
    static Threads& threads = *new Threads();
    return threads;
  }
  void add(CpuKernels* one) {
    std::lock_guard guard(mutex_);
    all_.push_back(one);
  }
  void remove(CpuKernels* one) {
    std::lock_guard guard(mutex_);
    std::erase(all_, one);
  }
  void stop() {
    std::lock_guard guard(mutex_);
    for (CpuKernels* one : all_) one->stop();
  }

 private:
  std::mutex mutex_;
  std::vector<CpuKernels*> all_;
};

// LLVM makes static objects while it first compiles. A process destroys what was made last first:
// were they made on a thread of ours, they would go while it goes on, before anybody can stop it.
// So the first who wants a thread compiles something small itself (some milliseconds), and what
// stops the threads is registered after that.
void prepare_process(Isa isa) {
  static const bool done = [&] {
    Compiler().compile(parse_nest("nest 2 {\n"
                                  " %v0 = load f32 [strided, contiguous]\n"
                                  " %v1 = load f16 [broadcast, strided]\n"
                                  " %v2 = number 0.5\n"
                                  " %v3 = mul(%v0, %v1) : f32 in f32\n"
                                  " %v4 = exp(%v3) : f32 in f32\n"
                                  " %v5 = add(%v4, %v2) : f32 in f32\n"
                                  " %v6 = convert(%v5) : f16\n"
                                  " store %v6\n}\n"),
                       isa);
    std::atexit([] { Threads::get().stop(); });
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

CpuKernels::CpuKernels(const KernelOptions& options, LogSink log)
    : id_(next_id++),
      options_(options),
      log_(std::move(log)),
      isa_(choose_isa(options.vector_bits)),
      sync_(std::make_unique<Sync>()),
      ready_(std::make_shared<KernelSet>()) {
  Threads::get().add(this);
}

CpuKernels::~CpuKernels() {
  Threads::get().remove(this);
  if (forked()) {
    // Nobody to wait for: the thread is the parent's, and what it held is left.
    static_cast<void>(sync_.release());
    static_cast<void>(cache_.release());
    return;
  }
  stop();
}

void CpuKernels::stop() {
  if (forked()) return;
  std::thread thread;
  {
    std::lock_guard guard(sync_->mutex);
    stop_ = true;
    thread = std::move(sync_->thread);
  }
  sync_->wake.notify_all();
  sync_->idle.notify_all();
  if (thread.joinable()) thread.join();
}

bool CpuKernels::forked() const {
  const int64_t process = process_.load(std::memory_order_relaxed);
  return process && process != getpid();
}

KernelCache& CpuKernels::cache() {
  std::string why_not_kept;
  {
    std::lock_guard guard(sync_->mutex);
    process_.store(getpid(), std::memory_order_relaxed);
    if (cache_) return *cache_;
    auto store = options_.folder.empty()
                     ? nullptr
                     : std::make_shared<ObjectStore>(options_.folder, options_.most_folder_bytes);
    if (store) why_not_kept = store->why_not();
    cache_ =
        std::make_unique<KernelCache>(options_.most_kernels, std::move(store), options_.symbols);
  }
  if (!why_not_kept.empty() && log_)
    log_(LogLevel::warning, "kernels are not kept: " + why_not_kept);
  return *cache_;
}

bool CpuKernels::wants(const Nest& nest, const Frame& frame) const {
  return isa_ && (options_.always || worth_a_kernel(nest, frame, *isa_ == Isa::avx512 ? 512 : 256));
}

bool CpuKernels::takes_columns(int64_t columns) const {
  return isa_ && (options_.always || fusion::takes_columns(columns));
}

std::shared_ptr<const KernelSet> CpuKernels::ready() {
  static const std::shared_ptr<const KernelSet> none = std::make_shared<KernelSet>();
  if (forked()) return none;
  std::lock_guard guard(sync_->mutex);
  return ready_;
}

std::shared_ptr<const fusion::Kernel> CpuKernels::get(const Nest& nest, const std::string& text) {
  if (!isa_ || forked()) return nullptr;
  {
    std::lock_guard guard(sync_->mutex);
    if (failed_.contains(text)) return nullptr;
    if (auto kernel = ready_->find(text)) {
      ++reused_;
      return kernel;
    }
  }
  return compile(nest, text);
}

std::shared_ptr<const fusion::Kernel> CpuKernels::compile(const Nest& nest,
                                                          const std::string& text) {
  std::string why;
  try {
    auto kernel = cache().get(nest, *isa_);
    publish(text, kernel);
    return kernel;
  } catch (const std::exception& e) {
    why = e.what();
  }
  bool first;
  {
    std::lock_guard guard(sync_->mutex);
    first = failed_.insert(text).second;
  }
  if (first && log_)
    log_(LogLevel::warning, fmt::format("a group runs unfused: {}\n{}", why, text));
  return nullptr;
}

// A set is never changed: whoever holds it keeps what it had.
void CpuKernels::publish(const std::string& text,
                         const std::shared_ptr<const fusion::Kernel>& kernel) {
  std::shared_ptr<const KernelSet> before;  // dies after the lock is released
  std::lock_guard guard(sync_->mutex);
  if (ready_->find(text)) return;
  auto next = std::make_shared<KernelSet>(*ready_);
  next->kernels.emplace(text, kernel);
  order_.push_back(text);
  while (order_.size() > std::max<size_t>(options_.most_kernels, 1)) {
    next->kernels.erase(order_.front());
    order_.pop_front();
  }
  ++next->generation;
  before = std::exchange(ready_, std::move(next));
}

void CpuKernels::request(const Nest& nest, const std::string& text) {
  if (!isa_ || forked()) return;
  std::lock_guard guard(sync_->mutex);
  if (stop_ || failed_.contains(text) || on_its_way_.contains(text) || ready_->find(text)) return;
  if (waiting_.size() >= most_waiting || !start()) {
    ++dropped_;
    return;
  }
  on_its_way_.insert(text);
  waiting_.emplace_back(nest, text);
  sync_->wake.notify_one();
}

// False where there is no compiler, or the machine gives no thread: programs run as they do.
bool CpuKernels::start() {
  if (sync_->thread.joinable()) return true;
  try {
    prepare_process(*isa_);
    process_.store(getpid(), std::memory_order_relaxed);
    sync_->thread = std::thread([this] { work(); });
    return true;
  } catch (const ResourceError&) {
  } catch (const std::system_error&) {
  }
  return false;
}

void CpuKernels::work() {
  std::unique_lock lock(sync_->mutex);
  for (;;) {
    sync_->wake.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    auto [nest, text] = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      compile(nest, text);
    } catch (const std::exception&) {
      // No memory to remember it by: who needs the kernel asks again.
    }
    lock.lock();
    on_its_way_.erase(text);
    busy_ = false;
    if (waiting_.empty()) sync_->idle.notify_all();
  }
}

void CpuKernels::wait() {
  if (forked()) return;
  std::unique_lock lock(sync_->mutex);
  sync_->idle.wait(lock, [&] { return stop_ || (waiting_.empty() && !busy_); });
}

KernelStatistics CpuKernels::statistics() const {
  KernelStatistics s;
  if (forked()) return s;
  std::lock_guard guard(sync_->mutex);
  if (cache_) {
    CacheStatistics c = cache_->statistics();
    s = {.hits = c.hits,
         .misses = c.misses,
         .loaded = c.loaded,
         .evicted = c.evicted,
         .seconds = c.seconds};
  }
  s.hits += reused_;
  s.failed = failed_.size();
  s.dropped = dropped_;
  s.waiting = waiting_.size() + busy_;
  s.kernels = ready_->kernels.size();
  return s;
}

}  // namespace gradus::fusion::cpu

namespace gradus::fusion {

namespace {

std::shared_ptr<Kernels> make_kernels(const Context& context, const KernelOptions& options) {
  return std::make_shared<cpu::CpuKernels>(options, context.log_sink());
}

}  // namespace

std::shared_ptr<Kernels> kernels_of(Context& context) {
  return context.part<Kernels>([&] { return make_kernels(context, {}); });
}

void set_kernel_options(Context& context, const KernelOptions& options) {
  context.replace_part<Kernels>(make_kernels(context, options));
}

}  // namespace gradus::fusion
