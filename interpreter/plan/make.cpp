// Planning: code for work, and for groups at their frames. What the backend has no code for runs on
// the host, between copies.
#include <unordered_map>

#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

// A pointer of a host's kernel: as it is, or to a place in the staging memory of a call.
struct HostArg {
  enum class Kind : uint8_t { as_is, in, out, dropped } kind = Kind::as_is;
  const std::byte* fixed = nullptr;
  size_t at = 0, bytes = 0;
};

struct HostCall {
  std::shared_ptr<devices::Backend> device;
  // The device's code, for calls to which it applies. Null: there is none.
  bool (*applies)(const void* parameters, work::KernelScope& scope) = nullptr;
  work::KernelFunction run_there = nullptr;
  const void* parameters_there = nullptr;
  work::KernelFunction run = nullptr;
  const void* parameters = nullptr;
  std::vector<HostArg> args;
  size_t staging_bytes = 0, scratch_at = 0;
};

class Staging {
 public:
  Staging(devices::Backend& device, size_t bytes)
      : device_(device), bytes_(bytes), memory_(device.take_staging(bytes)) {}
  ~Staging() { device_.give_staging(memory_, bytes_); }
  Staging(const Staging&) = delete;
  std::byte* at(size_t offset) const { return memory_ + offset; }

 private:
  devices::Backend& device_;
  const size_t bytes_;
  std::byte* const memory_;
};

void run_between_copies(const void* parameters, std::byte* const* args, work::KernelScope& scope) {
  const auto& call = *static_cast<const HostCall*>(parameters);
  if (call.applies && call.applies(call.parameters_there, scope))
    return call.run_there(call.parameters_there, args, scope);
  Staging staging(*call.device, call.staging_bytes);
  SmallVector<std::byte*, 8> here;
  for (size_t a = 0; a < call.args.size(); ++a) {
    const HostArg& arg = call.args[a];
    here.push_back(arg.kind == HostArg::Kind::as_is ? const_cast<std::byte*>(arg.fixed)
                                                    : staging.at(arg.at));
    if (arg.kind == HostArg::Kind::in && arg.bytes)
      call.device->to_host(here.back(), args[a], arg.bytes);
  }
  work::KernelScope inner = scope.with(staging.at(call.scratch_at));
  call.run(call.parameters, here.data(), inner);
  for (size_t a = 0; a < call.args.size(); ++a)
    if (call.args[a].kind == HostArg::Kind::out && call.args[a].bytes)
      call.device->to_device(args[a], here[a], call.args[a].bytes);
}

bool calls_ranks(const work::Work& work) { return std::holds_alternative<work::Collective>(work); }

class Maker {
 public:
  explicit Maker(Draft& draft) : d(draft) {}
  void run();

 private:
  bool has_results(const Bound& bound, uint32_t index) const;
  bool make(Bound& bound, uint32_t index);
  void run_on_host(Bound& bound, uint32_t index, const devices::DeviceCode* there = nullptr);
  const devices::DeviceCode& code_of(const work::WorkRef& work, uint32_t args, bool host);

  Draft& d;
  std::unordered_map<const work::Work*, devices::DeviceCode> made_[2];  // by the backend, the host
};

void Maker::run() {
  for (uint32_t index = 0; index < d.bound.size(); ++index) {
    Bound& b = d.bound[index];
    if (b.kernel) {
      work::Kernel ready = b.kernel->bind(std::get<work::Loops>(*b.work).frame);
      b.set_code(ready);
      if (ready.parameters) d.plan->kernels.push_back(std::move(ready.parameters));
    } else if (b.run) {
      if (b.parameters) d.plan->kernels.push_back(b.work);  // of a loop, which keeps its code
    } else if (b.work && !has_results(b, index)) {
      b.work = nullptr;
    } else if (b.work && !make(b, index)) {
      run_on_host(b, index);
    }
  }
  for (Exchange& e : d.exchanges) e.kernel = code_of(e.end, 1, false).kernel;
  for (SharedPacking& c : d.copies) c.kernel = code_of(c.copy, 2, false).kernel;
}

// Made once for all instructions that share the work. The plan keeps both alive.
const devices::DeviceCode& Maker::code_of(const work::WorkRef& work, uint32_t args, bool host) {
  auto [made, first] = made_[host].try_emplace(work.get());
  devices::DeviceCode& code = made->second;
  if (!first) return code;
  code = (host ? devices::cpu() : d.choice.backend)
             ->make(*work, static_cast<int>(args), d.choice.mode != FusionMode::behind);
  d.plan->later.insert(d.plan->later.end(), code.later.begin(), code.later.end());
  d.plan->kernels.push_back(work);
  if (code.kernel.parameters) d.plan->kernels.push_back(code.kernel.parameters);
  return code;
}

// Whether there is an element to be written, an index to be checked or another rank to be met. The
// CPU's code sees to it.
bool Maker::has_results(const Bound& bound, uint32_t index) const {
  if (d.choice.traits().host_memory || bound.checks || calls_ranks(*bound.work)) return true;
  for (uint32_t k = d.instruction(index).operands; k < bound.args; ++k) {
    const BoundArg& arg = d.args[bound.first_arg + k];
    if (arg.kind == BoundArg::Kind::dropped && arg.bytes) return true;
    if (arg.kind == BoundArg::Kind::value && d.locals[d.local_number(arg.reg)].layout.numel())
      return true;
  }
  return false;
}

// Ranks that run different programs have not agreed how their devices exchange: the host does it.
bool Maker::make(Bound& bound, uint32_t index) {
  if (bound.later) return false;
  const bool calls = calls_ranks(*bound.work);
  const RankProgram* program = d.code.rank_program();
  if (calls && !d.choice.traits().host_memory && (!program || program->messages)) return false;
  const devices::DeviceCode& code = code_of(bound.work, bound.args, false);
  if (!code.kernel.run) return false;
  if (calls) d.plan->loop_launches.reset();  // other ranks are not waited for by what is recorded
  if (code.applies) {
    run_on_host(bound, index, &code);
    return true;
  }
  bound.set_code(code.kernel);
  if (code.faults.empty()) return true;
  // The pointers once more, and one to where faults are told.
  const auto first = static_cast<uint32_t>(d.args.size());
  for (uint32_t a = 0; a < bound.args; ++a) d.args.push_back(BoundArg(d.args[bound.first_arg + a]));
  BoundArg faults;
  faults.kind = BoundArg::Kind::faults;
  faults.packing = d.plan->faults.size();
  d.args.push_back(faults);
  bound.first_arg = first;
  ++bound.args;
  for (const auto& fault : code.faults) d.plan->faults.push_back({d.segment.first + index, fault});
  return true;
}

// By the host, where `there` does not apply.
void Maker::run_on_host(Bound& bound, uint32_t index, const devices::DeviceCode* there) {
  const work::Kernel& code = code_of(bound.work, bound.args, true).kernel;
  if (!code.run) return;
  HostCall call;
  call.device = d.choice.backend;
  call.run = code.run;
  call.parameters = code.parameters.get();
  if (there) {
    call.applies = there->applies;
    call.run_there = there->kernel.run;
    call.parameters_there = there->kernel.parameters.get();
  }
  auto place = [&](size_t bytes) {
    const size_t at = call.staging_bytes;
    call.staging_bytes += static_cast<size_t>(SlotAllocator::rounded(static_cast<int64_t>(bytes)));
    return at;
  };
  for (uint32_t k = 0; k < bound.args; ++k) {
    const BoundArg& from = d.args[bound.first_arg + k];
    HostArg arg;
    arg.fixed = from.fixed;
    if (from.kind == BoundArg::Kind::dropped) {
      arg.kind = HostArg::Kind::dropped;
      arg.bytes = static_cast<size_t>(from.bytes);
    } else if (from.kind == BoundArg::Kind::value) {
      const Local& l = d.local(from.reg);
      if (l.kind == Local::Kind::constant) {
        arg.fixed = d.code.constant(l.root).data() + l.offset;
      } else {
        arg.kind = k < d.instruction(index).operands ? HostArg::Kind::in : HostArg::Kind::out;
        arg.bytes = static_cast<size_t>(l.layout.extent()) * size_of(l.layout.dtype);
      }
    }
    if (arg.kind != HostArg::Kind::as_is) arg.at = place(arg.bytes);
    call.args.push_back(arg);
  }
  call.scratch_at = place(code.scratch_bytes);
  auto owned = std::make_shared<const HostCall>(std::move(call));
  bound.run = run_between_copies;
  bound.parameters = owned.get();
  bound.scratch_bytes = there ? there->kernel.scratch_bytes : 0;
  bound.host = !there;  // its arguments are addresses of the device's
  d.plan->kernels.push_back(std::move(owned));
}

}  // namespace

void make(Draft& d) { Maker(d).run(); }

}  // namespace gradus::interpreter
