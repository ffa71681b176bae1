// Planning: what a device has code for runs there, the rest on the host between copies.
#include "interpreter/plan/make.h"

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
  work::KernelFunction run;
  const void* parameters;
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
  Staging staging(*call.device, call.staging_bytes);
  SmallVector<std::byte*, 8> here;
  for (size_t a = 0; a < call.args.size(); ++a) {
    const HostArg& arg = call.args[a];
    here.push_back(arg.kind == HostArg::Kind::as_is ? const_cast<std::byte*>(arg.fixed)
                                                    : staging.at(arg.at));
    if (arg.kind == HostArg::Kind::in && arg.bytes)
      call.device->to_host(here.back(), args[a], arg.bytes);
  }
  work::KernelScope inner{scope.workers, staging.at(call.scratch_at)};
  call.run(call.parameters, here.data(), inner);
  for (size_t a = 0; a < call.args.size(); ++a)
    if (call.args[a].kind == HostArg::Kind::out && call.args[a].bytes)
      call.device->to_device(args[a], here[a], call.args[a].bytes);
}

class DeviceMaker {
 public:
  DeviceMaker(Draft& draft, CpuCode& host) : d(draft), host_(host) {}
  void run();

 private:
  bool has_results(uint32_t index) const;
  bool make_on_device(uint32_t index);
  void run_on_host(uint32_t index);

  Draft& d;
  CpuCode& host_;
};

void DeviceMaker::run() {
  for (uint32_t index = 0; index < d.bound.size(); ++index) {
    Bound& bound = d.bound[index];
    if (!bound.work || bound.kernel) continue;
    if (!has_results(index))
      bound.work = nullptr;
    else if (bound.later || !make_on_device(index))
      run_on_host(index);
  }
}

// Whether there is an element to be written, or an index to be checked.
bool DeviceMaker::has_results(uint32_t index) const {
  const Bound& bound = d.bound[index];
  if (bound.checks) return true;
  for (uint32_t k = d.instruction(index).operands; k < bound.args; ++k) {
    const BoundArg& arg = d.args[bound.first_arg + k];
    if (arg.kind == BoundArg::Kind::dropped && arg.bytes) return true;
    if (arg.kind == BoundArg::Kind::value && d.locals[d.local_number(arg.reg)].layout.numel())
      return true;
  }
  return false;
}

bool DeviceMaker::make_on_device(uint32_t index) {
  Bound& bound = d.bound[index];
  const bool wait = d.choice.mode != fusion::FusionMode::behind;
  devices::DeviceCode code = d.choice.device->make(*bound.work, static_cast<int>(bound.args), wait);
  d.plan->later.insert(d.plan->later.end(), code.later.begin(), code.later.end());
  if (!code.kernel.run) return false;
  bound.set_code(code.kernel);
  d.plan->kernels.push_back(std::move(code.kernel.parameters));
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
  for (auto& fault : code.faults)
    d.plan->faults.push_back({d.segment.first + index, std::move(fault)});
  return true;
}

void DeviceMaker::run_on_host(uint32_t index) {
  Bound& bound = d.bound[index];
  const work::Kernel& code = host_.of(bound.work);
  if (!code.run) return;
  HostCall call{d.choice.device, code.run, code.parameters.get(), {}, 0, 0};
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
  bound.scratch_bytes = 0;
  bound.host = true;
  d.plan->kernels.push_back(std::move(owned));
}

}  // namespace

void make_on_device(Draft& d, CpuCode& host) { DeviceMaker(d, host).run(); }

// Where the device reads a number of the plan's. They are sent when all are known.
const std::byte* DeviceOperands::number(const std::byte* number) {
  numbers_.resize(d.plan->numbers.size());
  for (size_t b = d.plan->numbers.size(); b-- > 0;) {
    const std::vector<std::byte>& block = d.plan->numbers[b];
    if (number < block.data() || number >= block.data() + block.size()) continue;
    if (!numbers_[b]) {
      d.plan->on_device.push_back(devices::device_storage(d.choice.device, block.size()));
      numbers_[b] = d.plan->on_device.back()->data();
    }
    return numbers_[b] + (number - block.data());
  }
  GRADUS_CHECK(false);
  return nullptr;
}

void DeviceOperands::send() {
  for (size_t b = 0; b < numbers_.size(); ++b)
    if (numbers_[b])
      d.choice.device->to_device(numbers_[b], d.plan->numbers[b].data(), d.plan->numbers[b].size());
}

const std::byte* DeviceOperands::constant(Register r) {
  auto [found, fresh] = constants_.try_emplace(r, nullptr);
  if (fresh) {
    const Tensor t = devices::to_device(d.choice.device, d.code.constant(r), true);
    d.plan->on_device.push_back(t.storage());
    found->second = t.data();
  }
  return found->second;
}

// Many launches of little work each, and no detour. Memory that is let go on the way is kept to the
// end when they are one, so there must be little of it.
bool is_recordable(const SegmentPlan& plan) {
  constexpr size_t least_launches = 4;
  constexpr int64_t most_bytes = 64 << 20;
  size_t launches = 0;
  for (const Step& s : plan.steps) {
    if (s.host) return false;
    launches += s.run != nullptr;
  }
  int64_t bytes = plan.buffer_bytes;
  for (const Event& e : plan.events)
    if (e.kind == Event::Kind::allocate)
      bytes += e.layout.numel() * static_cast<int64_t>(size_of(e.layout.dtype));
  return launches >= least_launches && bytes <= most_bytes;
}

}  // namespace gradus::interpreter
