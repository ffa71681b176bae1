#include "interpreter/plan/bind_sizes.h"
#include "interpreter/run/limits.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  auto end = [](const Tensor& t) {
    return t.data() + t.layout().extent() * static_cast<int64_t>(size_of(t.dtype()));
  };
  return a.data() < end(b) && b.data() < end(a);
}

}  // namespace

void check_runnable(const Snapshot& s, std::span<const Tensor> inputs) {
  if (s.poisoned)
    throw Error(
        "this state cannot go on, because an earlier run failed: {}; restart it or use a "
        "clone taken before",
        s.poison);
  if (s.stage == s.code->stages())
    throw Error(
        "all stages of '{}' have run ({} in all); restart the state, or run a clone taken earlier",
        s.code->graph().name, s.code->stages());
  if (inputs.size() != s.code->inputs(s.stage)) {
    std::string names;
    for (size_t i = 0; i < s.code->inputs(s.stage); ++i)
      names += fmt::format("{}{}: {}", i ? ", " : "", s.code->input_name(s.stage, i),
                           to_string(s.code->input_type(s.stage, i)));
    const size_t takes = s.code->inputs(s.stage);
    throw Error("stage {} takes {} input{} ({}), and {} {} given", s.stage, takes,
                takes == 1 ? "" : "s", takes ? names : "none", inputs.size(),
                inputs.size() == 1 ? "is" : "are");
  }
}

void check_version(const Snapshot& s, Register r, const SegmentPlan& plan) {
  const Tensor& t = s.registers[index_of(r)];
  if (!t.defined() || t.version() == s.versions[index_of(r)]) return;
  // What was written is the tensor that the user knows, not a view of it.
  Register owner = plan.of_segment(s.code->made_in(r)).find_held(r).owner;
  size_t made = s.code->segment(s.code->made_in(r)).stage;
  if (made == s.stage)
    throw Error(
        "'{}' was changed in place by an opaque function; functions must not write operands",
        s.code->name_of(owner));
  throw Error(
      "'{}' of stage {} was changed in place after that stage ran, and stage {} needs "
      "its values; leave it as it was, or run with copied inputs",
      s.code->name_of(owner), s.code->graph()[s.code->value_of(owner)].stage, s.stage);
}

void check_versions(const Snapshot& s, const SegmentPlan& plan) {
  for (size_t e = 0; e < plan.externals.size(); ++e)
    if (Register r = plan.externals[e];
        plan.external_before[e] && s.code->made_in(r) != plan.segment)
      check_version(s, r, plan);
}

void check_outer(const Snapshot& s, const SegmentPlan& plan) {
  for (Register r : s.code->stage(s.stage).outer) check_version(s, r, plan);
}

void check_buffers(const Snapshot& s, const SegmentPlan& plan, std::span<const Tensor> inputs,
                   std::span<Tensor> results) {
  const StageCode& stage_code = s.code->stage(s.stage);
  if (results.size() != stage_code.returns.size())
    throw Error("stage {} gives {} results, {} entries are there for them", s.stage,
                stage_code.returns.size(), results.size());
  const SizesByName sizes(*s.code, plan.sizes);
  auto refuse = [&](size_t i, const std::string& why) {
    throw Error("the buffer for result '{}' {}", s.code->name_of(stage_code.returns[i]), why);
  };
  bool any = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& buffer = results[i];
    const Register r = stage_code.returns[i];
    if (!buffer.defined() || r == no_register) continue;
    any = true;
    const ir::Type& type = s.code->type_of(r);
    bool fits = buffer.dtype() == type.dtype && buffer.rank() == type.rank();
    for (int d = 0; fits && d < type.rank(); ++d)
      fits = !type.dims[d].is_constant() || type.dims[d].value() == buffer.shape()[d];
    if (!fits) refuse(i, fmt::format("is {}, the result {}", describe(buffer), to_string(type)));
    if (buffer.device() != Device()) refuse(i, "lies on a device; give one of the host's memory");
    if (!buffer.layout().contiguous()) refuse(i, "is not contiguous");
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].defined() && overlap(buffer, inputs[k]))
        refuse(i, fmt::format("lies in the memory of input '{}'", s.code->input_name(s.stage, k)));
    auto refuse_if_read = [&](Register held) {
      if (const Tensor& t = s.registers[index_of(held)]; t.defined() && overlap(buffer, t))
        refuse(i, fmt::format("lies in the memory of '{}', which the stage reads",
                              s.code->name_of(held)));
    };
    for (Register held : plan.externals) refuse_if_read(held);
    for (Register held : stage_code.outer) refuse_if_read(held);
    // One value returned twice may lie in one buffer.
    for (size_t k = 0; k < i; ++k)
      if (results[k].defined() && overlap(buffer, results[k]) &&
          !(stage_code.returns[k] == r && buffer.same_as(results[k])))
        refuse(i, fmt::format("lies in that for '{}'", s.code->name_of(stage_code.returns[k])));
  }
  if (!any) return;
  for (Tensor& buffer : results)
    if (buffer.defined()) buffer.mutable_data();  // who else reads it there notices
}

void check_limits(const StageRun& run) {
  const RunOptions& options = run.options;
  const char* what = options.cancel && options.cancel->cancelled() ? "was cancelled"
                     : options.deadline && std::chrono::steady_clock::now() >= *options.deadline
                         ? "passed its deadline"
                         : nullptr;
  if (what)
    throw Error("the run {} in stage {}, before instruction {} of {}", what, run.s.stage, run.at,
                run.s.code->stage(run.s.stage).instructions.size());
}

namespace {
thread_local const StageRun* run_here = nullptr;
}  // namespace

CurrentRun::CurrentRun(const StageRun& run) : before_(std::exchange(run_here, &run)) {}
CurrentRun::~CurrentRun() { run_here = before_; }

const StageRun* current_run() { return run_here; }

void check_current_limits() {
  if (run_here) check_limits(*run_here);
}

}  // namespace gradus::interpreter
