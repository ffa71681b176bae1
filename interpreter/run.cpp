// Running a state: a stage is segments of kernels (run_segment.cpp) and opaque instructions.
#include <algorithm>

#include "interpreter/state_impl.h"
#include "interpreter/whole_stage.h"
#include "tensor/read_watch.h"

namespace gradus {

using interpreter::OpaqueResults;
using interpreter::SegmentPlan;

namespace {

// Buffers up to this size are kept between stages; larger ones go back at the end of a stage.
constexpr size_t kept_buffer_bytes = size_t{1} << 20;

}  // namespace

void State::Impl::check_runnable(std::span<const Tensor> inputs) const {
  if (poisoned)
    throw Error(
        "this state cannot go on, because an earlier run failed: {}; restart it or use a "
        "clone taken before",
        poison);
  if (stage == code->stages())
    throw Error("all {} stages of '{}' have run; restart the state, or run a clone taken earlier",
                code->stages(), code->graph().name);
  if (inputs.size() != code->inputs(stage)) {
    std::string names;
    for (size_t i = 0; i < code->inputs(stage); ++i)
      names += fmt::format("{}{}: {}", i ? ", " : "", code->input_name(stage, i),
                           to_string(code->input_type(stage, i)));
    throw Error("stage {} takes {} inputs ({}), {} are given", stage, code->inputs(stage), names,
                inputs.size());
  }
}

std::shared_ptr<const SegmentPlan> State::Impl::find_plan(size_t segment,
                                                          std::span<const Tensor> inputs,
                                                          std::optional<int64_t> count) {
  key.clear();
  for (const Tensor& t : inputs) interpreter::append_input_key(t, key);
  if (count) key.push_back(*count);
  const std::shared_ptr<const SegmentPlan> previous = segment ? plans[segment - 1] : nullptr;
  const auto& last = plans[segment];
  if (last && last->previous == previous && last->key == key) {
    if (last->may_be_whole) interpreter::count_run(*code, *last, inputs, kernels);
    return last;
  }
  auto plan = code->plans().find(segment, previous.get(), key, kernels);
  if (!plan) {
    plan = interpreter::make_plan(*code, segment, previous, inputs, key, kernels);
    code->plans().insert(segment, plan);
  }
  if (plan->may_be_whole) interpreter::count_run(*code, *plan, inputs, kernels);
  // For the states to come.
  for (const auto& [nest, text] : plan->missing) kernels.source->request(nest, text);
  return plan;
}

// Of a register that an earlier segment than the plan's made.
void State::Impl::check_version(Register r, const SegmentPlan& plan) const {
  const Tensor& t = registers[index_of(r)];
  if (!t.defined() || t.version() == versions[index_of(r)]) return;
  // What was written is the tensor that the user knows, not a view of it.
  Register owner = plan.of_segment(code->made_in(r)).find_held(r).owner;
  size_t made = code->segment(code->made_in(r)).stage;
  if (made == stage)
    throw Error(
        "'{}' was changed in place by an opaque function; functions must not write operands",
        code->name_of(owner));
  throw Error(
      "'{}' of stage {} was changed in place after that stage ran, and stage {} needs "
      "its values; leave it as it was, or run with copied inputs",
      code->name_of(owner), code->graph()[code->value_of(owner)].stage, stage);
}

void State::Impl::check_versions(const SegmentPlan& plan) const {
  for (size_t e = 0; e < plan.externals.size(); ++e)
    if (Register r = plan.externals[e]; plan.external_before[e] && code->made_in(r) != plan.segment)
      check_version(r, plan);
}

// Of all that the stage reads, also where only opaque instructions do.
void State::Impl::check_outer(const SegmentPlan& plan) const {
  for (Register r : code->stage(stage).outer) check_version(r, plan);
}

Tensor State::Impl::copy_of(const Tensor& t) const {
  Tensor copy = Tensor::empty(t.dtype(), t.shape(), *context);
  if (t.numel()) copy_elements(t.layout(), t.data(), copy.layout(), copy.mutable_data());
  return copy;
}

Ref<Storage> State::Impl::memory_there(size_t bytes) const {
  return kernels.device ? devices::device_storage(kernels.device, bytes)
                        : make_ref<Storage>(context->allocator(), bytes);
}

Tensor State::Impl::empty_there(const Layout& layout) const {
  return kernels.device ? devices::device_tensor(kernels.device, layout)
                        : Tensor::empty(layout.dtype, layout.shape, *context);
}

Tensor State::Impl::there(const Tensor& t, bool exactly) const {
  if (!kernels.device || !t.defined() || t.device() != Device()) return t;
  return devices::to_device(kernels.device, t, exactly);
}

Tensor State::Impl::here(const Tensor& t) const {
  return kernels.device ? devices::to_host(*kernels.device, t, *context) : t;
}

void State::Impl::run(std::span<const Tensor> inputs, std::span<Tensor> results,
                      const RunOptions& options) {
  check_runnable(inputs);
  join_stream();
  if (const ReadWatch* watch = ReadWatch::current()) [[unlikely]]
    for (const Tensor& t : inputs)
      if (t.defined()) watch->reads(t);
  const StageCode& stage_code = code->stage(stage);
  size_t segment = stage_code.first_segment;
  std::vector<Tensor> copies;
  if (kernels.device) {
    for (const Tensor& t : inputs) {
      copies.push_back(there(t));
      if (t.defined()) record_use(t.storage());
    }
    inputs = copies;
  }
  auto plan = find_plan(segment, inputs);
  if (options.copy_inputs && std::ranges::count(plan->held_inputs, true)) {
    std::vector<Tensor> owned(inputs.begin(), inputs.end());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (plan->held_inputs[i] && inputs[i].defined()) owned[i] = there(copy_of(here(inputs[i])));
    copies = std::move(owned);
    inputs = copies;
    plan = find_plan(segment, inputs);  // copies may lie otherwise
  }
  check_versions(*plan);
  check_outer(*plan);
  check_buffers(*plan, inputs, results);
  struct Lend {  // for as long as the stage runs
    std::span<Tensor>& into;
    ~Lend() { into = {}; }
  } lend{into};
  into = results;
  uint32_t at = no_instruction;
  try {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (Register r = stage_code.inputs[i]; r != no_register) registers[index_of(r)] = inputs[i];
    run_segment(plan, at, options);
    while (!code->segment(segment).ends_stage) {
      ++segment;
      plan = code->segment(segment).counts ? count(segment, at) : run_opaque(segment, at, options);
      run_segment(plan, at, options);
    }
    at = no_instruction;
    finish(*plan, results, options);
  } catch (const Error& e) {
    set_poison(no_instruction, e.what());
    if (at == no_instruction || e.where().known()) throw;
    Error placed = code->graph().error_at(stage_code.instructions[at].where, e.bare());
    set_poison(no_instruction, placed.what());
    throw placed;
  } catch (const ResourceError& e) {
    set_poison(at, e.what());
    if (at == no_instruction) throw;
    const std::string message = e.what() + lines_of_group(*plan, at);
    throw ResourceError(
        std::string(code->graph().error_at(stage_code.instructions[at].where, message).what()));
  } catch (const std::exception& e) {
    set_poison(at, e.what());
    throw;
  } catch (...) {
    set_poison(at, "an exception that is not a std::exception");
    throw;
  }
}

// Of an instruction that runs as one kernel with others, their lines; else nothing.
std::string State::Impl::lines_of_group(const SegmentPlan& plan, uint32_t at) const {
  for (const SegmentPlan::Group& g : plan.groups) {
    if (g.instructions.back() != at) continue;
    std::string lines;
    for (uint32_t n : g.instructions) {
      const Instruction& i = code->stage(stage).instructions[n];
      lines += fmt::format("{}{}{}", lines.empty() ? "" : ", ", i.op->name,
                           i.where.known() ? fmt::format(" @{}", i.where.line) : "");
    }
    return " (in the kernel of " + lines + ")";
  }
  return "";
}

std::shared_ptr<const SegmentPlan> State::Impl::count(size_t segment, uint32_t& at) {
  const StageCode& stage_code = code->stage(stage);
  at = code->segment(segment).first;
  const Instruction& i = stage_code.instructions[at];
  Register r = stage_code.operands[i.first_operand].reg;
  const Tensor& constant = code->constant(r);
  const Tensor* x = constant.defined() ? &constant : &registers[index_of(r)];
  const Tensor counted = here(*x);
  x = &counted;
  // What is absent is zeros.
  auto plan = find_plan(segment, {}, x->defined() ? i.op->count({&x, 1}) : 0);
  check_versions(*plan);
  return plan;
}

void State::Impl::finish(const SegmentPlan& plan, std::span<Tensor> results,
                         const RunOptions& options) {
  const StageCode& stage_code = code->stage(stage);
  for (size_t i = 0; i < results.size(); ++i) {
    if (plan.absent_returns[i]) {
      results[i] = Tensor();
      continue;
    }
    Register r = stage_code.returns[i];
    const Tensor& constant = code->constant(r);
    const Tensor& value = constant.defined() ? constant : registers[index_of(r)];
    if (results[i].defined()) {
      fill_buffer(i, value, results[i]);
      continue;
    }
    results[i] = constant.defined() ? copy_of(constant) : value;
    // A result whose type names the device stays there, too.
    const bool stays = options.results_on_device || code->type_of(r).device == kernels.place();
    if (kernels.device) results[i] = stays ? there(results[i]) : here(results[i]);
  }
  for (Register r : stage_code.returns)
    if (r != no_register && !code->outlives_stage(r, stage)) registers[index_of(r)] = Tensor();
  for (Register r : stage_code.inputs)
    if (r != no_register && !code->outlives_stage(r, stage)) registers[index_of(r)] = Tensor();
  if (buffer->bytes() > kept_buffer_bytes && !prepared) buffer = nullptr;
  ++stage;
}

void State::Impl::release_all() {
  for (Tensor& t : registers) t = Tensor();
  for (auto& h : handles) h = nullptr;
  for (Frame& f : frames) f = Frame();
  for (auto& b : blocks) b = nullptr;
  for (Tensor& t : spare_tensors) t = Tensor();
  for (auto& b : spare_blocks) b = nullptr;
  buffer = nullptr;
}

void State::Impl::set_poison(uint32_t at, const char* why) noexcept {
  release_all();
  poisoned = true;
  try {
    poison = why;
    if (at == no_instruction) return;
    const Instruction& i = code->stage(stage).instructions[at];
    if (!i.is_opaque()) return;
    const std::string& what = code->stage(stage).opaque[i.opaque].what;
    poison = code->graph().error_at(i.where, fmt::format("{}: {}", what, poison)).what();
  } catch (...) {
    poison.clear();
  }
}

}  // namespace gradus
