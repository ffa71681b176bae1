#include "fusion/cpu/kernels.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "fusion/cost.h"

namespace gradus::fusion::cpu {

namespace {

std::atomic<uint64_t> next_id{1};

std::optional<Isa> choose_isa(unsigned bits) {
  bool known = bits == 0;
  for (Isa isa : all_isas) {
    known |= vector_bits(isa) == bits;
    if (runs_here(isa) && (bits == 0 || vector_bits(isa) == bits)) return isa;
  }
  if (!known)
    throw Error(
        "kernels of {} bits are asked for; say 128, 256, 512, or 0 for the widest there are", bits);
  if (bits != 0) throw Error("kernels of {} bits are asked for, which do not run here", bits);
  return std::nullopt;
}

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
    TaskQueue::stop_all_at_exit();
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
      ready_(std::make_shared<KernelSet>()),
      behind_(std::make_unique<TaskQueue>(1, most_waiting, [this] {
        prepare();
        process_.store(getpid(), std::memory_order_relaxed);
      })) {}

// Before there are threads. Without a compiler there will be none.
void CpuKernels::prepare() {
  try {
    prepare_process(*isa_);
  } catch (const ResourceError& e) {
    if (!told_.exchange(true) && log_)
      log_(LogLevel::warning, fmt::format("programs run unfused: {}", e.what()));
    throw;
  }
}

CpuKernels::~CpuKernels() {
  behind_.reset();
  // What the parent's thread held is left.
  if (forked()) static_cast<void>(cache_.release());
}

bool CpuKernels::forked() const {
  const int64_t process = process_.load(std::memory_order_relaxed);
  return process && process != getpid();
}

KernelCache& CpuKernels::cache() {
  std::string why_not_kept;
  {
    std::lock_guard guard(mutex_);
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
  return isa_ && (options_.always || worth_a_kernel(nest, frame, vector_bits(*isa_)));
}

bool CpuKernels::takes_columns(int64_t columns) const {
  return isa_ && (options_.always || fusion::takes_columns(columns));
}

WholeStages CpuKernels::whole_stages() const {
  const bool groups = options_.always && options_.whole_stages == WholeStages::small;
  return !isa_ || groups ? WholeStages::off : options_.whole_stages;
}

std::shared_ptr<const KernelSet> CpuKernels::ready() {
  static const std::shared_ptr<const KernelSet> none = std::make_shared<KernelSet>();
  if (forked()) return none;
  std::lock_guard guard(mutex_);
  return ready_;
}

namespace {

// What a set has of the kind that is made of a nest, or of a stage.
auto& codes_of(auto& set, const Nest&) { return set.kernels; }
auto& codes_of(auto& set, const StageProgram&) { return set.stages; }
template <class Source>
using CodeOf = typename std::decay_t<decltype(codes_of(std::declval<KernelSet&>(),
                                                       std::declval<Source>()))>::mapped_type;

}  // namespace

// Null where no code can be made, which is told once.
template <class Source>
auto CpuKernels::compile(const Source& source, const std::string& text) {
  using Code = CodeOf<Source>;
  std::string why;
  try {
    const Code code = cache().get(source, *isa_);
    publish(source, text, code);
    return code;
  } catch (const std::exception& e) {
    why = e.what();
  }
  bool first;
  {
    std::lock_guard guard(mutex_);
    first = failed_.insert(text).second;
  }
  if (first && log_)
    log_(LogLevel::warning, fmt::format("a group runs unfused: {}\n{}", why, text));
  return Code();
}

template <class Source>
auto CpuKernels::get_one(const Source& source, const std::string& text) {
  using Code = CodeOf<Source>;
  if (!isa_ || forked()) return Code();
  {
    std::lock_guard guard(mutex_);
    if (failed_.contains(text)) return Code();
    const auto& codes = codes_of(*ready_, source);
    if (auto found = codes.find(text); found != codes.end()) {
      ++reused_;
      return found->second;
    }
  }
  return compile(source, text);
}

template <class Source>
void CpuKernels::request_one(const Source& source, const std::string& text) {
  if (!isa_ || forked()) return;
  {
    std::lock_guard guard(mutex_);
    if (failed_.contains(text) || codes_of(*ready_, source).contains(text)) return;
  }
  behind_->add(text, [this, source, text] { compile(source, text); });
}

// A set is never changed: whoever holds it keeps what it had.
template <class Source, class Code>
void CpuKernels::publish(const Source& source, const std::string& text, const Code& code) {
  std::shared_ptr<const KernelSet> before;  // dies after the lock is released
  std::lock_guard guard(mutex_);
  if (codes_of(*ready_, source).contains(text)) return;
  auto next = std::make_shared<KernelSet>(*ready_);
  codes_of(*next, source).emplace(text, code);
  order_.push_back(text);
  while (order_.size() > std::max<size_t>(options_.most_kernels, 1)) {
    next->kernels.erase(order_.front());
    next->stages.erase(order_.front());
    order_.pop_front();
  }
  ++next->generation;
  before = std::exchange(ready_, std::move(next));
}

std::shared_ptr<const fusion::Kernel> CpuKernels::get(const Nest& nest, const std::string& text) {
  return get_one(nest, text);
}
void CpuKernels::request(const Nest& nest, const std::string& text) { request_one(nest, text); }
std::shared_ptr<const StageKernel> CpuKernels::get_stage(const StageProgram& stage,
                                                         const std::string& text) {
  return get_one(stage, text);
}
void CpuKernels::request_stage(const StageProgram& stage, const std::string& text) {
  request_one(stage, text);
}

void CpuKernels::wait() {
  if (!forked()) behind_->wait();
}

KernelStatistics CpuKernels::statistics() const {
  KernelStatistics s;
  if (forked()) return s;
  const TaskQueue::Statistics behind = behind_->statistics();
  std::lock_guard guard(mutex_);
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
  s.dropped = behind.dropped;
  s.waiting = behind.waiting;
  s.kernels = ready_->kernels.size() + ready_->stages.size();
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
