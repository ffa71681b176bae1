#include <algorithm>
#include <tuple>

#include "gradus/communicator.h"
#include "gradus/read_watch.h"
#include "interpreter/run/steps.h"
#include "interpreter/whole_stage.h"

namespace gradus::interpreter {

namespace {

// Buffers up to this size are kept between stages; larger ones go back at the end of a stage.
constexpr size_t kept_buffer_bytes = size_t{1} << 20;

// Of an instruction that runs as one kernel with others, their lines; else nothing.
std::string lines_of_group(const StageCode& stage, const SegmentPlan& plan, uint32_t at) {
  for (const SegmentPlan::Group& g : plan.groups) {
    if (g.place != at) continue;
    std::string lines;
    for (uint32_t n : g.instructions) {
      const Instruction& i = stage.instructions[n];
      lines += fmt::format("{}{}{}", lines.empty() ? "" : ", ", i.op->name,
                           i.where.known() ? fmt::format(" @{}", i.where.line) : "");
    }
    return " (in the kernel of " + lines + ")";
  }
  return "";
}

// Holds also where there is no memory for the reason.
// Calls of ranks that have begun may still read and write.
void keep_memory_of_calls(const StateData& s) noexcept {
  const RankProgram* program = s.code->rank_program();
  if (!program) return;
  using Memory = std::tuple<Ref<Storage>, std::vector<Tensor>, std::vector<Ref<Storage>>>;
  const auto memory = std::make_shared<const Memory>(s.buffer, s.registers, s.blocks);
  for (const std::string& group : program->groups) try {
      rank_groups(*s.place.context).find(group)->forget_calls(memory);
    } catch (...) {  // the group is gone, and its calls with it
    }
}

void poison(StateData& s, uint32_t at, const char* why) noexcept {
  keep_memory_of_calls(s);
  s.release_all();
  s.poisoned = true;
  try {
    s.poison = why;
    if (at == StageRun::no_instruction) return;
    const StageCode& stage = s.code->stage(s.stage);
    const Instruction& i = stage.instructions[at];
    if (!i.is_opaque()) return;
    const std::string& what = stage.opaque[i.opaque].what;
    s.poison = s.code->graph().error_at(i.where, fmt::format("{}: {}", what, s.poison)).what();
  } catch (...) {
    s.poison.clear();
  }
}

// The inputs where the state runs; `copies` keeps those that are not the caller's.
std::span<const Tensor> move_inputs(const Place& place, std::span<const Tensor> inputs,
                                    std::vector<Tensor>& copies) {
  if (place.on_host()) return inputs;
  for (const Tensor& t : inputs) {
    copies.push_back(place.there(t));
    if (t.defined()) place.record_use(t.storage());
  }
  return copies;
}

// Copies of the inputs that later stages read.
std::vector<Tensor> own_inputs(const Place& place, std::span<const Tensor> inputs,
                               const SegmentPlan& plan) {
  std::vector<Tensor> owned(inputs.begin(), inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (plan.held_inputs[i] && inputs[i].defined())
      owned[i] = place.there(place.copy_of(place.here(inputs[i])));
  return owned;
}

// The result, in its buffer.
void fill_buffer(const Snapshot& s, size_t result, const Tensor& value, Tensor& buffer) {
  if (value.same_as(buffer)) return;
  const Tensor& from = s.place.here(value);
  if (!std::ranges::equal(from.shape(), buffer.shape()))
    throw Error("the buffer for result '{}' is {}, the result {}",
                s.code->name_of(s.code->stage(s.stage).returns[result]), describe(buffer),
                describe(from));
  if (from.numel())
    copy_elements(from.layout(), from.data(), buffer.layout(), buffer.mutable_data());
}

void give_results(StageRun& run, const SegmentPlan& plan) {
  const StateData& s = run.s;
  const Place& place = s.place;
  for (size_t i = 0; i < run.results.size(); ++i) {
    Tensor& result = run.results[i];
    if (plan.absent_returns[i]) {
      result = Tensor();
      continue;
    }
    const Register r = s.code->stage(s.stage).returns[i];
    const Tensor& value = s.value(r);
    if (result.defined()) {
      fill_buffer(s, i, value, result);
      continue;
    }
    result = s.code->constant(r).defined() ? place.copy_of(value) : value;
    if (place.on_host()) continue;
    // A result whose type names the device stays there, too.
    const bool stays =
        run.options.results_on_device || s.code->type_of(r).device == place.kernels.place();
    result = stays ? place.there(result) : place.here(result);
  }
}

void finish(StageRun& run, const SegmentPlan& plan) {
  give_results(run, plan);
  StateData& s = run.s;
  const StageCode& stage = s.code->stage(s.stage);
  for (const std::vector<Register>* list : {&stage.returns, &stage.inputs})
    for (Register r : *list)
      if (r != no_register && !s.code->outlives_stage(r, s.stage))
        s.registers[index_of(r)] = Tensor();
  if (s.buffer->bytes() > kept_buffer_bytes && !s.left.prepared) s.buffer = nullptr;
  ++s.stage;
}

// The segments of a stage from the first on. `plan`: of the one that runs, for who catches what it
// throws.
void run_segments(StageRun& run, std::shared_ptr<const SegmentPlan>& plan) {
  const Code& code = *run.s.code;
  run_segment(run, plan);
  for (size_t n = plan->segment; !code.segment(n).ends_stage;) {
    ++n;
    plan = code.segment(n).counts ? run_count(run, n) : run_opaque(run, n);
    run_segment(run, plan);
  }
}

// From the first segment's plan on.
void run_planned(StageRun& run, std::span<const Tensor> inputs,
                 std::shared_ptr<const SegmentPlan>& plan) {
  const StageCode& stage = run.s.code->stage(run.s.stage);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (Register r = stage.inputs[i]; r != no_register) run.s.registers[index_of(r)] = inputs[i];
  run_segments(run, plan);
  run.at = StageRun::no_instruction;
  finish(run, *plan);
}

}  // namespace

void run_round(StageRun& run, std::span<const Tensor> inputs) {
  auto plan = find_plan(run.s, run.s.code->stage(run.s.stage).first_segment, inputs);
  run_planned(run, inputs, plan);
}

std::shared_ptr<const SegmentPlan> find_plan(StateData& s, size_t segment,
                                             std::span<const Tensor> inputs,
                                             std::optional<int64_t> count) {
  const KernelChoice& kernels = s.place.kernels;
  s.key.clear();
  for (const Tensor& t : inputs) append_input_key(t, s.key);
  if (count) s.key.push_back(*count);
  const std::shared_ptr<const SegmentPlan> previous = segment ? s.plans[segment - 1] : nullptr;
  const auto& last = s.plans[segment];
  if (last && last->previous == previous && last->key == s.key) {
    if (last->may_be_whole) count_run(*s.code, *last, inputs, kernels);
    return last;
  }
  auto plan = find_or_make_plan(*s.code, segment, previous, inputs, s.key, kernels);
  if (plan->may_be_whole) count_run(*s.code, *plan, inputs, kernels);
  for (const auto& [nest, text] : plan->missing) kernels.source->request(nest, text);
  return plan;
}

void run_stage(StateData& s, std::span<const Tensor> inputs, std::span<Tensor> results,
               const RunOptions& options) {
  check_runnable(s, inputs);
  s.join_stream();
  agree_on_program(s);
  if (const ReadWatch* watch = ReadWatch::current()) [[unlikely]]
    for (const Tensor& t : inputs)
      if (t.defined()) watch->reads(t);
  const StageCode& stage = s.code->stage(s.stage);
  std::vector<Tensor> copies;
  inputs = move_inputs(s.place, inputs, copies);
  auto plan = find_plan(s, stage.first_segment, inputs);
  if (options.copy_inputs && std::ranges::count(plan->held_inputs, true)) {
    copies = own_inputs(s.place, inputs, *plan);
    inputs = copies;
    plan = find_plan(s, stage.first_segment, inputs);  // copies may lie otherwise
  }
  check_versions(s, *plan);
  check_outer(s, *plan);
  check_buffers(s, *plan, inputs, results);
  StageRun run{s, results, options};
  run_or_poison(run, plan, [&] { run_planned(run, inputs, plan); });
}

void run_or_poison(StageRun& run, const std::shared_ptr<const SegmentPlan>& plan,
                   FunctionRef<void()> f) {
  StateData& s = run.s;
  const StageCode& stage = s.code->stage(s.stage);
  try {
    f();
  } catch (const Error& e) {
    poison(s, StageRun::no_instruction, e.what());
    if (run.at == StageRun::no_instruction || e.where().known()) throw;
    Error placed = s.code->graph().error_at(stage.instructions[run.at].where, e.bare());
    poison(s, StageRun::no_instruction, placed.what());
    throw placed;
  } catch (const ResourceError& e) {
    poison(s, run.at, e.what());
    if (run.at == StageRun::no_instruction) throw;
    const std::string message = e.what() + lines_of_group(stage, *plan, run.at);
    throw ResourceError(
        std::string(s.code->graph().error_at(stage.instructions[run.at].where, message).what()));
  } catch (const std::exception& e) {
    poison(s, run.at, e.what());
    throw;
  } catch (...) {
    poison(s, run.at, "an exception that is not a std::exception");
    throw;
  }
}

}  // namespace gradus::interpreter
