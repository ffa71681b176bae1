#include "interpreter/whole_stage.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "fusion/cost.h"

namespace gradus::interpreter {

namespace {

using fusion::Frame;
using fusion::Nest;
using fusion::StageProgram;

// What a group of a stage will run by when the stage is compiled.
struct Part {
  mutable fusion::StageKernel::Loops loops = nullptr;  // set before anybody runs it
};

void run_part(const void* parameters, std::byte* const* args, work::KernelScope&) {
  static_cast<const Part*>(parameters)->loops(args);
}

struct PartKernel final : fusion::Kernel {
  work::Kernel bind(const Frame&) const override { return work::Kernel::of(run_part, Part{}); }
};

// Has a kernel for every nest that is small enough, and compiles none. Places are the stage's to
// tell: nests that compute alike are one.
class PartKernels final : public fusion::Kernels {
 public:
  explicit PartKernels(fusion::Kernels& of) : of_(of) {}
  uint64_t id() const override { return of_.id(); }
  // One function has registers of one width.
  void suit(Nest& nest, const fusion::StatedRows& rows) const override {
    Nest alone = nest;
    of_.suit(alone, rows);
    nest.row_size = alone.row_size;
  }
  bool wants(const Nest& nest, const Frame& frame) const override {
    return fusion::fits_into_stage(nest, frame);
  }
  bool reads_before_writing() const override { return true; }
  bool wants_single_steps() override { return true; }
  std::shared_ptr<const fusion::KernelSet> ready() override { return of_.ready(); }
  std::shared_ptr<const fusion::Kernel> get(const Nest&, const std::string&) override {
    return std::make_shared<const PartKernel>();
  }
  void request(const Nest&, const std::string&) override {}
  void wait() override {}
  KernelStatistics statistics() const override { return {}; }

 private:
  fusion::Kernels& of_;
};

// Elements of a type whose sizes are all numbers; nothing where one is not, or they are too many.
std::optional<int64_t> elements_of(const ir::Type& type) {
  constexpr int64_t most = 1 << 16;
  int64_t n = 1;
  for (const ir::Dim& d : type.dims) {
    if (!d.is_constant()) return std::nullopt;
    n *= d.value();
    if (n > most) return std::nullopt;
  }
  return n;
}

// A stage's program, made of the steps of its plan.
class Describer {
 public:
  StageProgram program;
  std::string text;
  SegmentPlan::Whole whole;

  Describer(const Code& code, size_t segment)
      : code_(code), stage_(code.stage(code.segment(segment).stage)) {}

  // False where a function is not worth it.
  bool describe(const SegmentPlan& plan, const fusion::Kernels& source) {
    for (const Step& s : plan.steps)
      if (s.run) add(s);
    if (!is_worth_it(source.whole_stages())) return false;
    const auto& read_from = code_.graph().source;
    if (source.wants_places() && read_from && !read_from->file.empty())
      program.program = std::filesystem::absolute(read_from->file).string();
    text = fusion::print(program);
    return true;
  }
  void set_loops(const fusion::StageKernel& code) const {
    for (auto [part, number] : parts_) part->loops = code.loops(number);
  }

 private:
  void add(const Step& step) {
    const bool is_piece = fusion::is_inline(*step.work);
    const uint32_t piece = is_piece ? number_of(*step.work) : StageProgram::call;
    program.items.push_back({piece, step.args, stage_.instructions[step.instruction].where});
    whole.instructions.push_back(step.instruction);
    whole.kinds.push_back(is_piece ? work::name_of(*step.work) : "");
    if (std::holds_alternative<work::Loops>(*step.work))
      parts_.emplace_back(static_cast<const Part*>(step.parameters), piece);
    if (!is_piece) whole.calls.push_back({step.run, step.parameters, step.args, step.scratch});
    whole.nanoseconds += is_piece ? fusion::nanoseconds_of_piece(*step.work, elements(step))
                                  : fusion::nanoseconds_of_call(*step.work, elements(step));
  }
  // A function with more calls than half of the rest would gain little.
  bool is_worth_it(WholeStages which) const {
    constexpr size_t least_items = 3;
    if (which == WholeStages::always) return program.items.size() > whole.calls.size();
    return program.items.size() >= least_items && 3 * whole.calls.size() <= program.items.size() &&
           whole.nanoseconds <= fusion::most_stage_nanoseconds;
  }
  uint32_t number_of(const work::Work& piece) {
    const auto next = static_cast<uint32_t>(program.pieces.size());
    auto [place, first] = pieces_.try_emplace(work::key_of(piece), next);
    if (first) program.pieces.push_back(piece);
    return place->second;
  }
  // That an instruction reads and writes.
  int64_t elements(const Step& step) const {
    const Instruction& i = stage_.instructions[step.instruction];
    int64_t n = 0;
    auto add = [&](Register r) {
      if (r != no_register) n += elements_of(code_.type_of(r)).value_or(0);
    };
    for (uint32_t k = 0; k < i.operands; ++k) add(stage_.operands[i.first_operand + k].reg);
    for (uint32_t k = 0; k < i.results; ++k) add(stage_.results[i.first_result + k]);
    return n;
  }

  const Code& code_;
  const StageCode& stage_;
  std::vector<std::pair<const Part*, uint32_t>> parts_;  // and the numbers of their pieces
  std::map<std::string, uint32_t> pieces_;               // by key
};

}  // namespace

bool is_small_stage(const Code& code, size_t number, std::span<const Tensor> inputs,
                    const KernelChoice& choice) {
  constexpr uint32_t most_instructions = 4096;
  constexpr int64_t most_elements = 1 << 18;
  if (choice.mode == FusionMode::off || choice.source->whole_stages() == WholeStages::off)
    return false;
  const Segment& segment = code.segment(number);
  const StageCode& stage = code.stage(segment.stage);
  if (segment.counts || segment.end - segment.first > most_instructions) return false;
  int64_t elements = 0;
  auto count = [&](Register r) {
    if (r == no_register || code.is_handle(r)) return true;
    const auto n = elements_of(code.type_of(r));
    elements += n.value_or(0);
    return n && elements <= most_elements;
  };
  for (Register r : inputs_of(code, number))
    if (!count(r)) return false;
  for (uint32_t n = segment.first; n < segment.end; ++n) {
    const Instruction& i = stage.instructions[n];
    if (i.op->traits.collective) return false;
    for (uint32_t k = 0; k < i.results; ++k)
      if (!count(stage.results[i.first_result + k])) return false;
  }
  // However inputs lie: who passes views passes others the next time.
  return std::ranges::all_of(
      inputs, [](const Tensor& t) { return !t.defined() || t.layout().contiguous(); });
}

KernelChoice parts_of(const KernelChoice& choice) {
  KernelChoice parts = choice;
  parts.mode = FusionMode::first;
  parts.source = std::make_shared<PartKernels>(*choice.source);
  parts.dump = nullptr;
  parts.weighed = nullptr;
  parts.planned = nullptr;
  parts.bodies = &choice;
  return parts;
}

bool join_parts(const Code& code, SegmentPlan& plan, const KernelChoice& choice) {
  Describer stage(code, plan.segment);
  if (!stage.describe(plan, *choice.source)) return false;
  stage.whole.code = choice.mode == FusionMode::behind
                         ? choice.set->find_stage(stage.text)
                         : choice.source->get_stage(stage.program, stage.text);
  if (!stage.whole.code) return false;
  stage.set_loops(*stage.whole.code);
  plan.whole = std::move(stage.whole);
  return true;
}

void request_whole(const Code& code, const SegmentPlan& plan, std::span<const Tensor> inputs,
                   const KernelChoice& choice) {
  const auto parts =
      plan_steps(code, plan.segment, plan.previous, inputs, plan.key, parts_of(choice));
  if (Describer stage(code, plan.segment); stage.describe(*parts, *choice.source))
    choice.source->request_stage(stage.program, stage.text);
}

void count_run(const Code& code, const SegmentPlan& plan, std::span<const Tensor> inputs,
               const KernelChoice& choice) {
  // Later runs are not counted, so that states on many threads write nothing that they share.
  if (plan.runs.load(std::memory_order_relaxed) >= fusion::runs_before_stage ||
      plan.runs.fetch_add(1, std::memory_order_relaxed) + 1 != fusion::runs_before_stage)
    return;
  request_whole(code, plan, inputs, choice);
}

}  // namespace gradus::interpreter
