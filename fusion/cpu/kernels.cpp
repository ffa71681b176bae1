#include "fusion/cpu/kernels.h"

#include <algorithm>
#include <cstdlib>

#include "fusion/cost.h"
#include "gradus/isa.h"
#include "gradus/messages.h"

namespace gradus::fusion::cpu {

namespace {

// What GRADUS_ISA names, for measurements of what narrower machines do.
std::optional<Isa> isa_of_environment() {
  const char* name = std::getenv("GRADUS_ISA");
  if (!name || !*name) return std::nullopt;
  for (Isa isa : all_isas)
    if (name_of(isa) == name) {
      if (!runs_here(isa)) throw Error("GRADUS_ISA is {}, which does not run here", name);
      return isa;
    }
  throw Error("GRADUS_ISA is '{}'; it may be x86-64-v4, x86-64-v3 or aarch64", printable(name));
}

// Whether this processor does so (fusion/cost.h).
bool lowers_clock_for_512() {
#if GRADUS_HAS_V3
  static const bool intel = __builtin_cpu_is("intel");
  return intel;
#else
  return false;
#endif
}

std::optional<Isa> choose_isa(unsigned bits) {
  if (bits == 0)
    if (auto isa = isa_of_environment()) return isa;
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

// LLVM makes static objects while it first compiles. Were they made on a thread of ours, they would
// go while it goes on (fusion/task_queue.h). So the first who wants a thread compiles what makes
// them all, for the widest registers that run here: some milliseconds.
void prepare_process() {
  static const bool done = [] {
    const auto* widest = std::find_if(std::begin(all_isas), std::end(all_isas), runs_here);
    Compiler().compile(parse_nest("nest 2 {\n"
                                  " %v0 = load f32 [strided, contiguous]\n"
                                  " %v1 = load f16 [broadcast, strided]\n"
                                  " %v2 = number 0.5\n"
                                  " %v3 = mul(%v0, %v1) : f32 in f32\n"
                                  " %v4 = exp(%v3) : f32 in f32\n"
                                  " %v5 = add(%v4, %v2) : f32 in f32\n"
                                  " %v6 = convert(%v5) : f16\n"
                                  " %v7 = fmod(%v5, %v0) : f32 in f32\n"  // a call
                                  " %v8 = ge(%v7, %v2) : bool in f32\n"   // a mask in memory
                                  " store %v6, %v8\n}\n"),
                       *widest);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

CpuKernels::CpuKernels(const KernelOptions& options, LogSink log, int workers)
    : options_(options),
      log_(std::move(log)),
      isa_(choose_isa(options.vector_bits)),
      workers_(workers),
      behind_(1, most_waiting,
              [this] {
                prepare();
                store_.claim();
              }),
      store_(behind_,
             {.no_code = "a group runs unfused", .log = log_, .most = options.most_kernels}) {}

// Before there are threads. Without a compiler there will be none.
void CpuKernels::prepare() {
  try {
    prepare_process();
  } catch (const ResourceError& e) {
    if (!told_.exchange(true) && log_)
      log_(LogLevel::warning, fmt::format("programs run unfused: {}", e.what()));
    throw;
  }
}

CpuKernels::~CpuKernels() {
  behind_.stop();
  // What the parent's thread held is left.
  if (store_.forked()) static_cast<void>(cache_.release());
}

KernelCache& CpuKernels::cache() {
  std::string why_not_kept;
  store_.claim();
  {
    std::lock_guard guard(mutex_);
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

void CpuKernels::suit(Nest& nest, const StatedRows& rows) const {
  const bool lowers = isa_ == Isa::avx512 && lowers_clock_for_512();
  nest.registers = lowers ? worthwhile_registers(nest) : 0;
  nest.row_size = worthwhile_row_size(nest, rows, machine().vector_bits);
}

bool CpuKernels::wants(const Nest& nest, const Frame& frame) const {
  return isa_ && (options_.always || estimate(nest, frame, machine()).worth());
}

Machine CpuKernels::machine() const { return {isa_ ? cpu::vector_bits(*isa_) : 0, workers_}; }

bool CpuKernels::takes_columns(int64_t rows, int64_t columns, DType dtype) const {
  return isa_ &&
         (options_.always || fusion::takes_columns(rows, columns, dtype, machine().vector_bits));
}

WholeStages CpuKernels::whole_stages() const {
  const bool groups = options_.always && options_.whole_stages == WholeStages::small;
  return !isa_ || groups ? WholeStages::off : options_.whole_stages;
}

std::shared_ptr<const fusion::Kernel> CpuKernels::get(const Nest& nest, const std::string& text) {
  return isa_ ? store_.get(text, [&] { return make(nest); }) : nullptr;
}

void CpuKernels::request(const Nest& nest, const std::string& text) {
  if (isa_) store_.request(text, [this, nest] { return make(nest); });
}

std::shared_ptr<const StageKernel> CpuKernels::get_stage(const StageProgram& stage,
                                                         const std::string& text) {
  return isa_ ? store_.get(text, [&] { return make(stage); }) : nullptr;
}

void CpuKernels::request_stage(const StageProgram& stage, const std::string& text) {
  if (isa_) store_.request(text, [this, stage] { return make(stage); });
}

KernelStatistics CpuKernels::statistics() const {
  KernelStatistics s = store_.statistics();
  if (store_.forked()) return s;
  std::lock_guard guard(mutex_);
  if (!cache_) return s;
  const CacheStatistics c = cache_->statistics();
  s.hits += c.hits;
  s.misses = c.misses;
  s.loaded = c.loaded;
  s.evicted = c.evicted;
  s.seconds = c.seconds;
  return s;
}

}  // namespace gradus::fusion::cpu

namespace gradus::fusion {

namespace {

std::shared_ptr<Kernels> make_kernels(Context& context, const KernelOptions& options) {
  return std::make_shared<cpu::CpuKernels>(options, context.log_sink(),
                                           context.workers().workers());
}

}  // namespace

std::shared_ptr<Kernels> kernels_of(Context& context) {
  return context.part<Kernels>([&] { return make_kernels(context, {}); });
}

}  // namespace gradus::fusion

namespace gradus {

void set_kernel_options(Context& context, const KernelOptions& options) {
  context.replace_part<fusion::Kernels>(fusion::make_kernels(context, options));
}

}  // namespace gradus
