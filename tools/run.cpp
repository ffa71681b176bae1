// gradus run
#include <algorithm>
#include <chrono>
#include <map>

#include "base/file.h"
#include "gradus/devices.h"
#include "gradus/files.h"
#include "gradus/inspect.h"
#include "gradus/messages.h"
#include "gradus/state.h"
#include "tools/cli.h"
#include "tools/device.h"
#include "tools/json.h"
#include "tools/output.h"
#include "tools/profile.h"
#include "tools/program.h"
#include "tools/ranks.h"

namespace gradus::cli {

namespace {

using Clock = std::chrono::steady_clock;

// One result of one stage.
struct NamedResult {
  const ir::Result* result;
  const ir::Type* type;  // null for a structural zero
  Tensor tensor;
};

// Notes when each instruction ran.
class Recorder final : public InstructionObserver {
 public:
  explicit Recorder(const Code& code) : code_(code), start_(Clock::now()) {}
  void before(size_t, size_t) override { begun_ = Clock::now(); }
  void after(size_t stage, size_t instruction) override {
    auto now = Clock::now();
    const Instruction& i = code_.stage(stage).instructions[instruction];
    TraceEvent e{.op = std::string(i.op->name),
                 .stage = stage,
                 .instruction = instruction,
                 .where = i.where,
                 .begin = microseconds(begun_),
                 .duration = std::chrono::duration<double, std::micro>(now - begun_).count(),
                 .group = std::move(group_),
                 .label = std::move(label_),
                 .host = host_};
    host_ = false;
    group_.clear();
    label_.clear();
    events_.push_back(std::move(e));
  }
  // The one event of a kernel names all its instructions, by line.
  void group(size_t stage, std::span<const uint32_t> instructions) override {
    group_.assign(instructions.begin(), instructions.end());
    for (uint32_t n : instructions) {
      const Instruction& i = code_.stage(stage).instructions[n];
      label_ += label_.empty() ? "" : ", ";
      label_ += i.op->name;
      if (i.where.known()) label_ += fmt::format(" @{}", i.where.line);
    }
  }
  void host(size_t, size_t) override { host_ = true; }
  void before_in_step(const StepPoint&) override { steps_begun_.push_back(Clock::now()); }
  void after_in_step(const StepPoint& at) override {
    const auto begun = steps_begun_.back();
    steps_begun_.pop_back();
    const double took = std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
    StepTime& all =
        steps_.try_emplace({&at.body, at.instruction}, &at.body, at.instruction).first->second;
    all.time += took;
    ++all.calls;
    if (step_events_ == most_step_events) return;
    ++step_events_;
    const Instruction& i = at.body.stage(0).instructions[at.instruction];
    events_.push_back({.op = std::string(i.op->name),
                       .instruction = at.instruction,
                       .where = i.where,
                       .begin = microseconds(begun),
                       .duration = took,
                       .body = at.body.graph().name,
                       .step = at.step});
  }
  void clear() {
    events_.clear();
    steps_.clear();
    steps_begun_.clear();
    step_events_ = 0;
  }
  const std::vector<TraceEvent>& events() const { return events_; }
  std::vector<StepTime> steps() const {
    std::vector<StepTime> all;
    for (const auto& [place, time] : steps_) all.push_back(time);
    return all;
  }

 private:
  // A trace shows the first of a long loop; the table has all.
  static constexpr size_t most_step_events = 100'000;

  double microseconds(Clock::time_point t) const {
    return std::chrono::duration<double, std::micro>(t - start_).count();
  }
  const Code& code_;
  Clock::time_point start_, begun_;
  std::vector<TraceEvent> events_;
  std::vector<size_t> group_;
  std::string label_;
  bool host_ = false;
  std::vector<Clock::time_point> steps_begun_;  // of the instructions that run now, outermost first
  std::map<std::pair<const Code*, size_t>, StepTime> steps_;
  size_t step_events_ = 0;
};

void check_command(const RunCommand& c) {
  if (device_number("run", c.device) && c.fusion == "off")
    throw UsageError("gradus run: {} runs compiled kernels only; leave out --fusion off", c.device);
  const bool fused = c.fusion == "first" || c.fusion == "behind";
  if (fused && !device_number("run", c.device)) open_compiler("--fusion off runs without");
  if (c.repeat > 1 && !c.resume.empty())
    throw UsageError(
        "gradus run: --repeat begins every round at stage 0, and --resume at a later one; give one "
        "of the two");
}

size_t stages_to_run(const RunCommand& c, const ir::Graph& program) {
  if (!c.stages) return program.stages.size();
  if (*c.stages > program.stages.size())
    throw Error("--stages {}: the program has {} stages", *c.stages, program.stages.size());
  return static_cast<size_t>(*c.stages);
}

// Results of several stages go to one file.
void check_names(const ir::Graph& program, size_t stages) {
  std::map<std::string_view, size_t> seen;
  for (size_t s = 0; s < stages; ++s)
    for (const ir::Result& r : program.stages[s].results) {
      if (r.value == ir::no_value) continue;
      auto [it, fresh] = seen.emplace(r.name, s);
      if (!fresh)
        throw Error(
            "stages {} and {} both return '{}', which --outputs cannot keep apart; rename "
            "one (return name = %value)",
            it->second, s, r.name);
    }
}

std::string report(const std::vector<std::vector<NamedResult>>& stages, size_t first) {
  std::string text;
  for (size_t s = first; s < stages.size(); ++s) {
    text += fmt::format("stage {}\n", s);
    for (const NamedResult& r : stages[s]) {
      if (r.tensor.defined())
        text += fmt::format("  {}: {}\n", r.result->name, summary(r.tensor));
      else if (r.type)
        text += fmt::format("  {}: {}  undefined\n", r.result->name, to_string(*r.type));
      else
        text += fmt::format("  {}: none\n", r.result->name);
    }
  }
  return text;
}

void write_outputs(const std::string& path, const std::vector<std::vector<NamedResult>>& stages) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& stage : stages)
    for (const NamedResult& r : stage)
      if (r.tensor.defined()) tensors.emplace_back(r.result->name, r.tensor);
  write_tensors(path, tensors);
}

FusionMode fusion_mode(const RunCommand& c, bool on_device) {
  if (c.fusion == "behind") return FusionMode::behind;
  if (c.fusion == "first" || (c.fusion.empty() && on_device)) return FusionMode::first;
  return FusionMode::off;
}

std::string kernels_report(const KernelStatistics& s) {
  return fmt::format(
      "kernels: {} compiled in {:.3f} s, {} loaded, {} used again, {} failed, {} left out, {} "
      "waiting\n",
      s.misses, s.seconds, s.loaded, s.hits, s.failed, s.evicted + s.dropped, s.waiting);
}

// What --set says, and the sizes that the first stage's inputs settle.
DimSizes sizes_of_inputs(const std::shared_ptr<const Code>& code, const InputSources& sources,
                         const std::shared_ptr<Context>& context) {
  DimSizes sizes = sources.sizes;
  const std::vector<Tensor> inputs = find_inputs(State(code, context), sources);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Dims& dims = code->input_type(0, i).dims;
    for (size_t d = 0; d < dims.size(); ++d)
      if (const std::string_view name = dims[d].symbol_name(); !name.empty())
        sizes.emplace(name, inputs[i].shape()[d]);
  }
  return sizes;
}

std::string list_of(std::span<const std::string_view> operators,
                    std::span<const SourceLocation> places) {
  std::string names;
  for (size_t i = 0; i < operators.size(); ++i) {
    names += fmt::format("{}{}", i ? ", " : "", operators[i]);
    if (places[i].known()) names += fmt::format(" @{}:{}", places[i].line, places[i].column);
  }
  return names;
}

// The name of a size that is not among those that are known; empty: there is none.
std::string size_by_data(const Code& code, const DimSizes& sizes) {
  for (const auto& name : code.dimensions())
    if (!sizes.contains(name)) return std::string(name);
  return "";
}

std::string slow_report(const Code& code, const DimSizes& sizes) {
  if (std::string name = size_by_data(code, sizes); !name.empty())
    return fmt::format("slow paths are not known before the run: data decide the size {}\n", name);
  std::string text;
  for (const SlowPath& path : slow_paths(code, sizes))
    text += fmt::format("slow: {}: {}\n", list_of(path.operators, path.places), path.reason);
  return text;
}

// What the cost model expects of each group, beside what the group takes.
std::string groups_report(const Code& code, const DimSizes& sizes) {
  std::string text = "groups as the cost model weighs them, in us on one thread:\n";
  for (const WeighedGroup& g : weigh_groups(code, sizes)) {
    text += fmt::format("  {}\n    {}: saves {:.3f}, costs {:.3f}", list_of(g.operators, g.places),
                        g.is_kernel ? "one kernel" : "no kernel", g.saved / 1e3, g.lost / 1e3);
    if (!g.refused.empty()) text += "; " + g.refused;
    try {
      const GroupTimes t = measure_group(g);
      text += fmt::format("; measured {:.3f} apart, {:.3f} as a kernel\n", t.apart, t.as_kernel);
    } catch (const Error& e) {
      text += fmt::format("; not measured: {}\n", e.what());
    }
  }
  return text;
}

std::string times_report(std::vector<std::vector<double>>& times) {
  std::string text;
  for (size_t s = 0; s < times.size(); ++s) {
    std::vector<double>& t = times[s];
    std::sort(t.begin(), t.end());
    size_t n = t.size();
    double median = n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
    text += fmt::format("stage {}: median {:.3f} us of {} runs\n", s, median, n);
  }
  return text;
}

}  // namespace

namespace {

void run_rank(const RunCommand& command) {
  ImportedProgram loaded = load_program(command.program, command.from);
  const ir::Graph& program = loaded.module.program();
  size_t stages = stages_to_run(command, program);
  // What cannot be written is said before the work is done.
  const std::string outputs = written_by_rank(command.outputs, command.from.ranks);
  const std::string profile = written_by_rank(command.profile, command.from.ranks);
  const std::string save_state = file_of_rank(command.save_state, command.from.ranks);
  const std::string resume = file_of_rank(command.resume, command.from.ranks);
  if (command.from.ranks && command.from.ranks->size() > 1)
    for (const auto& [option, file] :
         {std::pair("--save-state", command.save_state), std::pair("--resume", command.resume)})
      if (!file.empty() && file.find("%r") == file.npos)
        throw UsageError(
            "gradus run: {} {}: each rank has a state of its own; write %r for its "
            "number",
            option, file);
  if (!outputs.empty()) {
    check_names(program, stages);
    AtomicFile probe(outputs);
  }
  if (!profile.empty()) AtomicFile probe(profile);
  if (!save_state.empty()) AtomicFile probe(save_state);

  ContextOptions context_options;
  context_options.workers = command.threads;
  context_options.log = [](LogLevel level, std::string_view message) {
    if (level >= LogLevel::warning) fmt::print(stderr, "warning: {}\n", message);
  };
  auto context = std::make_shared<Context>(context_options);
  InputSources sources = open_sources(command.from, loaded, context);
  std::shared_ptr<const Code> code =
      Code::compile(program, compile_options({}, command.fast_functions, {}));
  if (command.memory_budget) {
    // The inputs of a stage that ran already need not be there.
    const DimSizes sizes = resume.empty() ? sizes_of_inputs(code, sources, context) : sources.sizes;
    code = Code::compile(program,
                         compile_options(command.memory_budget, command.fast_functions, sizes));
  }
  const std::optional<int> device = device_number("run", command.device, program);
  if (command.atomics && !device)
    throw UsageError("gradus run: --atomics is about a device's sums; add --device cuda:0");
  StateOptions state_options{.fusion = fusion_mode(command, device.has_value())};
  std::string plans;
  if (std::ranges::count(plan_step_names, command.dump_after) > 0)
    state_options.dump_plans = [&](std::string_view step, size_t, const std::string& plan) {
      if (step == command.dump_after) plans += plan;
    };
  if (command.times && command.dump_after != "group")
    throw UsageError("gradus run: --times is about groups; add --dump-after group");
  if (command.times && device)
    throw UsageError("gradus run: --times is about groups on the CPU; leave out --device");
  if (command.times && !resume.empty())
    throw UsageError("gradus run: --times needs the inputs of stage 0; leave out --resume");
  if (command.symbols && state_options.fusion == FusionMode::off)
    throw UsageError(
        "gradus run: --symbols: there are no kernels without fusion; add --fusion first");
  const bool shows_code = std::ranges::count(code_targets(), command.dump_after) > 0;
  if ((shows_code || command.dump_after == "fusion") && state_options.fusion == FusionMode::off)
    throw UsageError(
        "gradus run: --dump-after {}: there are no kernels without fusion; add --fusion first",
        command.dump_after);
  // Sources are shown of all groups, also of those that the CPU runs better without.
  const KernelOptions kernel_options{.folder = command.kernels,
                                     .always = shows_code,
                                     .symbols = command.symbols,
                                     .atomics = command.atomics};
  if (device)
    use_device(*context, cuda_device(*device), kernel_options);
  else if (!command.kernels.empty() || command.symbols || kernel_options.always)
    set_kernel_options(*context, kernel_options);
  State state = resume.empty() ? State(code, context, state_options)
                               : State::resume(code, resume, context, state_options);
  const size_t first = state.next_stage();
  if (first >= stages)
    throw Error("--resume {}: stage {} is next, and {}", resume, first,
                first < program.stages.size()
                    ? fmt::format("--stages {} ends before it; give a greater number", stages)
                    : fmt::format("the program has {} stages; give a state that was saved before",
                                  program.stages.size()));
  Recorder recorder(*code);
  RunOptions options;
  if (!profile.empty()) options.observer = &recorder;

  std::vector<std::vector<Tensor>> inputs(stages);
  std::vector<std::vector<NamedResult>> results(stages);
  std::vector<std::vector<double>> times(stages);
  Progress progress;
  for (int round = 0; round < command.repeat; ++round) {
    if (command.repeat > 1) progress.show(static_cast<double>(round) / command.repeat, "rounds");
    // A new state has the kernels that came meanwhile.
    if (round > 0 && state_options.fusion == FusionMode::behind)
      state = State(code, context, state_options);
    if (round > 0) state.restart();
    recorder.clear();
    for (size_t s = first; s < stages; ++s) {
      if (round == 0) inputs[s] = find_inputs(state, sources);
      results[s].clear();
      auto begin = Clock::now();
      std::vector<Tensor> out = state.run(inputs[s], options);
      times[s].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      if (device)
        for (Tensor& t : out) t = to_host(t, *context);
      for (size_t r = 0; r < out.size(); ++r) {
        const ir::Result& result = code->results(s)[r];
        const ir::Type* type =
            result.value == ir::no_value ? nullptr : &code->graph()[result.value].type;
        results[s].push_back({&result, type, std::move(out[r])});
      }
    }
  }

  progress.clear();
  if (!save_state.empty()) state.save(save_state);
  if (!outputs.empty()) write_outputs(outputs, results);
  if (!profile.empty()) write_file(profile, trace_json(recorder.events(), program.source.get()));
  if (command.from.ranks && command.from.ranks->rank() > 0) return;
  put(report(results, first));
  if (!profile.empty()) put(profile_report(recorder.events(), *code, recorder.steps()));
  if (command.repeat > 1) put(times_report(times));
  put(plans);
  if (command.times) put(groups_report(*code, sizes_of_inputs(code, sources, context)));
  if (command.dump_after == "fusion") put(describe_groups(state));
  if (shows_code) put(describe_code(state, command.dump_after));
  if (command.stats && device) put(host_report(state));
  if (command.stats) put(kernels_report(kernel_statistics(*context)));
  if (command.stats && !device && state_options.fusion != FusionMode::off && resume.empty())
    put(slow_report(*code, sizes_of_inputs(code, sources, context)));
}

}  // namespace

void run(const RunCommand& command) {
  check_command(command);
  RunCommand own = command;
  own.from.ranks = ranks_of(command.ranks);
  try {
    run_rank(own);
  } catch (const std::exception& e) {
    if (own.from.ranks) own.from.ranks->abandon(e.what());
    throw;
  }
}

}  // namespace gradus::cli
