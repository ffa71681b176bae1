// Makes plans.
#include <algorithm>
#include <cstring>
#include <deque>

#include "interpreter/bind_sizes.h"
#include "interpreter/plan.h"
#include "interpreter/slots.h"
#include "ops/evaluate.h"
#include "ops/kernel_memo.h"

namespace gradus::interpreter {

namespace {

constexpr uint32_t never = UINT32_MAX;

// A register while the segment is planned.
struct Local {
  enum class Kind : uint8_t { unknown, absent, constant, tensor, slot } kind = Kind::unknown;
  Register reg = no_register;
  Register root = no_register;  // whose memory it lies in; itself if it has its own
  int64_t offset = 0;           // bytes from the root's first element
  Layout layout;
  uint32_t last_use = never;  // of a root: the last instruction that touches its memory
  bool leaves = false;        // of a root: a tensor made in this segment that outlives it
  bool returned = false;
  bool before = false;  // there when the segment starts
  bool held = false;    // of a root: a later segment reads its memory
  int64_t slot = 0;     // offset in the buffer
  int64_t bytes() const { return layout.numel() * static_cast<int64_t>(size_of(layout.dtype)); }
};

// A kernel's pointer before memory is laid out.
struct BoundArg {
  enum class Kind : uint8_t { null, fixed, value, dropped } kind = Kind::null;
  Register reg = no_register;        // value
  const std::byte* fixed = nullptr;  // a number, or zeros
  int64_t bytes = 0;                 // dropped: of a result that nobody uses
};

// An instruction bound to layouts. Its parameters are kept alive by the plan.
struct Bound {
  ir::KernelFunction run = nullptr;
  const void* parameters = nullptr;
  size_t scratch_bytes = 0;
  uint32_t first_arg = 0, args = 0;  // slice of the planner's
};

class Planner {
 public:
  Planner(const Code& code, size_t segment, std::shared_ptr<const SegmentPlan> previous,
          std::span<const Tensor> inputs, std::vector<int64_t> key)
      : code_(code),
        number_(segment),
        segment_(code.segment(segment)),
        stage_code_(code.stage(segment_.stage)),
        plan_(std::make_shared<SegmentPlan>()),
        inputs_(inputs),
        input_registers_(inputs_of(code, segment)),
        sizes_(code, plan_->sizes),
        local_numbers_(code.registers(), never) {
    plan_->segment = segment;
    if (previous) plan_->sizes = previous->sizes;
    plan_->follow(std::move(previous));
    plan_->key = std::move(key);
  }

  std::shared_ptr<const SegmentPlan> run() {
    if (segment_.begins_stage) {
      bind_sizes(code_, segment_.stage, inputs_, plan_->sizes);
      check_equalities();
    }
    place_inputs();
    bound_.resize(segment_.end - segment_.first);
    reserve();
    for (uint32_t i = 0; i < bound_.size(); ++i) bind(i);
    find_leaving();
    for (uint32_t i = 0; i < bound_.size(); ++i) lay_out(i);
    plan_->buffer_bytes = slots_.end();
    plan_->least_buffer_bytes = slots_.peak();
    finish_patches();
    record_held();
    return plan_;
  }

 private:
  // Growing by halves would touch much memory twice in a large stage.
  void reserve() {
    size_t pointers = 0;
    for (uint32_t i = 0; i < bound_.size(); ++i)
      pointers += instruction(i).operands + instruction(i).results;
    args_.reserve(pointers);
    plan_->args.reserve(pointers);
    plan_->steps.reserve(bound_.size());
  }

  // By its number in the segment.
  const Instruction& instruction(uint32_t index) const {
    return stage_code_.instructions[segment_.first + index];
  }

  // Only what the segment meets: a program has many more registers. References stay
  // good.
  Local& local(Register r) {
    uint32_t& n = local_numbers_[index_of(r)];
    if (n == never) {
      n = static_cast<uint32_t>(locals_.size());
      locals_.emplace_back().reg = r;
    }
    return locals_[n];
  }

  Error error_at(uint32_t index, const std::string& message) const {
    return code_.graph().error_at(instruction(index).where, message);
  }

  void check_equalities() const {
    for (size_t e = 0; e < stage_code_.equalities.size(); ++e) {
      const ir::DimEquality& q = stage_code_.equalities[e];
      if (!known(q.a) || !known(q.b)) continue;  // of an absent cotangent alone
      int64_t a = q.a.evaluate(sizes_), b = q.b.evaluate(sizes_);
      if (a == b) continue;
      auto text = [](const ir::Dim& d, int64_t n) {
        return d.is_constant() ? fmt::format("{}", n) : fmt::format("{} = {}", d.to_string(), n);
      };
      throw code_.graph().error_at(
          stage_code_.equality_places[e],
          fmt::format("sizes {} and {} differ: {}", text(q.a, a), text(q.b, b), q.what));
    }
  }

  bool known(const ir::Dim& d) const {
    bool all = true;
    d.for_each_symbol([&](std::string_view name) { all &= sizes_.find(name).has_value(); });
    return all;
  }

  void place_inputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Register r = input_registers_[i];
      if (r != no_register)
        place_tensor(r, !inputs_[i].defined(),
                     inputs_[i].defined() ? inputs_[i].layout() : Layout());
    }
  }

  void place_tensor(Register r, bool absent, const Layout& layout) {
    Local& l = local(r);
    l.kind = absent ? Local::Kind::absent : Local::Kind::tensor;
    l.layout = layout;
    l.root = r;
    l.before = true;
  }

  // Finds a register of an earlier segment or a constant the first time it is met.
  Local& find(Register r) {
    Local& l = local(r);
    if (l.kind != Local::Kind::unknown) return l;
    if (code_.constant(r).defined()) {
      l.kind = Local::Kind::constant;
      l.root = r;
      l.layout = code_.constant(r).layout();
      return l;
    }
    uint32_t from = code_.made_in(r);
    GRADUS_CHECK(from < number_);
    const Held& held = plan_->previous->of_segment(from).find_held(r);
    place_tensor(r, held.absent, held.layout);
    return l;
  }

  Sizes sizes_of(const ir::Type& type) const {
    Sizes s;
    for (const ir::Dim& d : type.dims) {
      int64_t n = d.evaluate(sizes_);
      if (n < 0) throw Error("the size {} of a result is {}, which is negative", d.to_string(), n);
      s.push_back(n);
    }
    if (!checked_numel(s) || *checked_numel(s) > INT64_MAX / 16)
      throw Error("a result {} has more elements than can be counted", gradus::to_string(s));
    return s;
  }

  const ir::Type& result_type(const Instruction& i, uint32_t k) const {
    const ir::Node& node = code_.graph().stages[segment_.stage].nodes[i.node];
    return code_.graph()[node.results[k]].type;
  }

  void bind(uint32_t index) {
    const Instruction& i = instruction(index);
    if (i.kind == Instruction::Kind::constant) return;  // found when used
    if (i.kind == Instruction::Kind::undefined) {
      Register r = stage_code_.results[i.first_result];
      if (r != no_register) local(r).kind = Local::Kind::absent;
      return;
    }
    try {
      if (!absent_sum(i, index)) bind_kernel(i, index);
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw error_at(index, e.bare());
    }
  }

  // x + absent is x, absent + absent is absent.
  bool absent_sum(const Instruction& i, uint32_t index) {
    if (!i.op->traits.accumulates || !i.op->write(i.attributes).empty()) return false;
    Register a = stage_code_.operands[i.first_operand].reg;
    Register b = stage_code_.operands[i.first_operand + 1].reg;
    if (a == no_register || b == no_register) return false;
    bool absent_a = find(a).kind == Local::Kind::absent,
         absent_b = find(b).kind == Local::Kind::absent;
    if (!absent_a && !absent_b) return false;
    const ir::Type &type = result_type(i, 0), &type_a = code_.type_of(a),
                   &type_b = code_.type_of(b);
    if (!(type_a == type && type_b == type)) return false;
    Register y = stage_code_.results[i.first_result];
    if (absent_a && absent_b) {
      if (y != no_register) local(y).kind = Local::Kind::absent;
      return true;
    }
    Register x = absent_a ? b : a;
    if (y != no_register) make_view(y, x, find(x).layout, 0, index);
    touch(x, index);
    return true;
  }

  void make_view(Register y, Register of, const Layout& layout, int64_t elements, uint32_t index) {
    const Local& base = local(of);
    Local& l = local(y);
    l.kind = base.kind;
    l.root = base.root;
    l.offset = base.offset + elements * static_cast<int64_t>(size_of(layout.dtype));
    l.layout = layout;
    touch(y, index);
  }

  void touch(Register r, uint32_t index) {
    Local& l = local(r);
    if (l.kind != Local::Kind::absent) local(l.root).last_use = index;
  }

  void bind_kernel(const Instruction& i, uint32_t index) {
    Bound& bound = bound_[index];
    bound.first_arg = static_cast<uint32_t>(args_.size());
    SmallVector<Layout, 4> in(i.operands);
    SmallVector<bool, 4> present(i.operands), number(i.operands);
    for (uint32_t k = 0; k < i.operands; ++k) {
      const CodeOperand& o = stage_code_.operands[i.first_operand + k];
      if (o.reg != no_register) {
        in[k] = bind_register(o.reg, index);
        present[k] = true;
      } else {
        present[k] = number[k] = bind_constant(stage_code_.constants[o.constant], in[k]);
      }
    }
    ir::BindCall call{*i.op, in, present, number, i.attributes, sizes_, {}, {}, {}};
    for (uint32_t k = 0; k < i.results; ++k) {
      const ir::Type& type = result_type(i, k);
      call.out.emplace_back(type.dtype, sizes_of(type));
    }
    call.views.resize(i.results);
    auto [memo, fresh] = kernels_.bind(call);
    if (fresh && memo.kernel.parameters) plan_->kernels.push_back(memo.kernel.parameters);
    bound.run = memo.kernel.run;
    bound.parameters = memo.kernel.parameters.get();
    bound.scratch_bytes = memo.kernel.scratch_bytes;
    place_results(i, index, memo);
    bound.args = static_cast<uint32_t>(args_.size()) - bound.first_arg;
  }

  // An operand that is a value: adds its pointer, returns its layout.
  Layout bind_register(Register r, uint32_t index) {
    const Local& l = find(r);
    if (l.kind != Local::Kind::absent) {
      args_.push_back({BoundArg::Kind::value, r});
      touch(r, index);
      return l.layout;
    }
    Sizes shape = sizes_of(code_.type_of(r));
    size_t rank = shape.size();
    // Zero bits are zero in every dtype.
    args_.push_back({BoundArg::Kind::fixed, no_register, number_memory()});
    return Layout(code_.type_of(r).dtype, std::move(shape), Sizes(rank, 0));
  }

  // An operand that is a number, a size or `none`: adds its pointer. False for `none`.
  bool bind_constant(const ir::Operand& o, Layout& layout) {
    if (is_none(o)) {
      args_.emplace_back();
      return false;
    }
    ir::Number n = std::holds_alternative<ir::Dim>(o)
                       ? ir::Number::of(std::get<ir::Dim>(o).evaluate(sizes_))
                       : std::get<ir::Number>(o);
    layout = ops::number_layout(n);
    std::byte* memory = number_memory();
    ops::store_number(n, memory);
    args_.push_back({BoundArg::Kind::fixed, no_register, memory});
    return true;
  }

  // A view of an absent operand is a tensor of zeros like any other result: its kernel.
  bool is_view_of_absent(const Instruction& i, const ir::BindCall::View& view) {
    if (view.operand < 0) return false;
    Register of = stage_code_.operands[i.first_operand + static_cast<uint32_t>(view.operand)].reg;
    return of == no_register || local(of).kind == Local::Kind::absent;
  }
  void zero_views_of_absent(Bound& bound, std::vector<std::pair<size_t, size_t>> fills) {
    if (fills.empty()) return;
    GRADUS_CHECK(!bound.run);  // results are views, or a kernel makes them: not both
    bound.run = [](const void* parameters, std::byte* const* args, ir::KernelScope&) {
      for (auto [arg, bytes] : *static_cast<const decltype(fills)*>(parameters))
        std::memset(args[arg], 0, bytes);
    };
    auto owned = std::make_shared<const decltype(fills)>(std::move(fills));
    bound.parameters = owned.get();
    plan_->kernels.push_back(std::move(owned));
  }

  void place_results(const Instruction& i, uint32_t index, const ops::KernelMemo::Entry& memo) {
    std::vector<std::pair<size_t, size_t>> fills;  // pointers of results and their bytes
    for (uint32_t k = 0; k < i.results; ++k) {
      Register y = stage_code_.results[i.first_result + k];
      const auto& view = memo.views[k];
      const Layout& out = memo.out[k];
      auto bytes = static_cast<size_t>(out.numel()) * size_of(out.dtype);
      bool zeros = is_view_of_absent(i, view);
      if (zeros) fills.emplace_back(i.operands + k, bytes);
      if (view.operand >= 0 && !zeros) {
        Register of =
            stage_code_.operands[i.first_operand + static_cast<uint32_t>(view.operand)].reg;
        if (y != no_register) make_view(y, of, out, view.offset, index);
        args_.emplace_back();
        continue;
      }
      if (y == no_register) {
        args_.push_back(
            {BoundArg::Kind::dropped, no_register, nullptr, static_cast<int64_t>(bytes)});
        continue;
      }
      args_.push_back({BoundArg::Kind::value, y});
      Local& l = local(y);
      l.kind = Local::Kind::slot;
      l.root = y;
      l.layout = zeros ? Layout(out.dtype, out.shape) : out;
      l.last_use = index;
    }
    zero_views_of_absent(bound_[index], std::move(fills));
  }

  // A root made here leaves if it, or a view of it, is returned or read later.
  void find_leaving() {
    auto leave = [&](Register r) {
      Local& l = local(r);
      if (l.kind == Local::Kind::absent || l.kind == Local::Kind::unknown) return;
      if (local(l.root).kind == Local::Kind::slot) local(l.root).leaves = true;
      l.leaves = true;
    };
    for (uint32_t n = 0; n < bound_.size(); ++n) {
      const Instruction& i = instruction(n);
      for (uint32_t k = 0; k < i.results; ++k) {
        Register r = stage_code_.results[i.first_result + k];
        if (r != no_register && code_.last_segment(r) > number_) leave(r);
      }
    }
    for (Register r : returns()) {
      plan_->absent_returns.push_back(r == no_register || find(r).kind == Local::Kind::absent);
      if (r == no_register) continue;
      leave(r);
      local(r).returned = true;
    }
    for (Local& l : locals_)
      if (l.kind == Local::Kind::slot && local(l.root).leaves) l.kind = Local::Kind::tensor;
    sort_deaths();
  }

  std::span<const Register> returns() const {
    return segment_.ends_stage ? std::span(stage_code_.returns) : std::span<const Register>();
  }

  // What dies after each instruction: memory by root, grouped by the last use.
  void sort_deaths() {
    auto dies = [](const Local& l) {
      return l.kind != Local::Kind::unknown && l.kind != Local::Kind::constant && l.root == l.reg &&
             l.last_use != never;
    };
    first_death_.assign(bound_.size() + 1, 0);
    for (const Local& l : locals_)
      if (dies(l)) ++first_death_[l.last_use + 1];
    for (size_t i = 0; i < bound_.size(); ++i) first_death_[i + 1] += first_death_[i];
    deaths_.resize(first_death_.back());
    std::vector<uint32_t> next(first_death_.begin(), first_death_.end() - 1);
    for (const Local& l : locals_)
      if (dies(l)) deaths_[next[l.last_use]++] = l.reg;
  }

  void lay_out(uint32_t index) {
    const Instruction& i = instruction(index);
    Step step;
    step.instruction = segment_.first + index;
    step.first_event = static_cast<uint32_t>(plan_->events.size());
    for (uint32_t k = 0; k < i.results && i.kind == Instruction::Kind::kernel; ++k) {
      Register y = stage_code_.results[i.first_result + k];
      if (y != no_register) place_result(y);
    }
    step.before = static_cast<uint32_t>(plan_->events.size()) - step.first_event;
    if (bound_[index].run) lay_out_kernel(bound_[index], step);
    for (uint32_t d = first_death_[index]; d < first_death_[index + 1]; ++d) die(deaths_[d]);
    step.after = static_cast<uint32_t>(plan_->events.size()) - step.first_event - step.before;
    if (step.run || step.before || step.after) plan_->steps.push_back(step);
  }

  void lay_out_kernel(const Bound& bound, Step& step) {
    SmallVector<std::pair<int64_t, int64_t>, 2> temporary;
    auto allocate = [&](int64_t bytes) {
      temporary.emplace_back(slots_.allocate(bytes), bytes);
      return temporary.back().first;
    };
    step.run = bound.run;
    step.parameters = bound.parameters;
    if (bound.scratch_bytes) step.scratch = allocate(static_cast<int64_t>(bound.scratch_bytes));
    step.args = static_cast<uint32_t>(plan_->args.size());
    for (uint32_t a = bound.first_arg; a < bound.first_arg + bound.args; ++a) {
      const BoundArg& from = args_[a];
      Arg arg;
      switch (from.kind) {
        case BoundArg::Kind::null:
          break;
        case BoundArg::Kind::fixed:
          arg.kind = Arg::Kind::fixed;
          arg.fixed = from.fixed;
          break;
        case BoundArg::Kind::value:
          arg = arg_of(from.reg);
          break;
        case BoundArg::Kind::dropped:
          arg.kind = Arg::Kind::slot;
          arg.offset = allocate(from.bytes);
          break;
      }
      plan_->args.push_back(arg);
    }
    for (auto [offset, bytes] : temporary) slots_.release(offset, bytes);
  }

  void place_result(Register y) {
    Local& l = local(y);
    if (l.kind == Local::Kind::absent) return;
    if (l.root != y) {
      if (!l.leaves) return;
      Event e{Event::Kind::view, y, l.root,
              l.offset / static_cast<int64_t>(size_of(l.layout.dtype)), l.layout};
      plan_->events.push_back(std::move(e));
    } else if (l.kind == Local::Kind::slot) {
      l.slot = slots_.allocate(l.bytes());
    } else if (l.kind == Local::Kind::tensor) {
      plan_->events.push_back({Event::Kind::allocate, y, no_register, 0, l.layout});
    }
  }

  Arg arg_of(Register r) {
    const Local& l = local(r);
    const Local& root = local(l.root);
    Arg arg;
    if (l.kind == Local::Kind::constant) {
      arg.kind = Arg::Kind::fixed;
      arg.fixed = code_.constant(l.root).data() + l.offset;
    } else if (root.kind == Local::Kind::slot) {
      arg.kind = Arg::Kind::slot;
      arg.offset = root.slot + l.offset;
    } else {
      arg.kind = Arg::Kind::tensor;
      arg.base = l.root;
      arg.offset = l.offset;
    }
    return arg;
  }

  void die(Register r) {
    Local& l = local(r);
    if (l.kind == Local::Kind::slot) slots_.release(l.slot, l.bytes());
    if (l.kind != Local::Kind::tensor) return;
    if (code_.last_segment(r) > number_ || l.returned) return;
    plan_->events.push_back({Event::Kind::release, r, no_register, 0, {}});
  }

  // Groups the pointers that follow from each external tensor.
  void finish_patches() {
    std::vector<uint32_t> external_of(code_.registers(), never);
    std::vector<uint32_t> counts;
    auto external = [&](Register r) {
      uint32_t& e = external_of[index_of(r)];
      if (e == never) {
        e = static_cast<uint32_t>(plan_->externals.size());
        plan_->externals.push_back(r);
        plan_->external_before.push_back(local(r).before);
        counts.push_back(0);
      }
      return e;
    };
    for (const Event& e : plan_->events)
      if (e.kind == Event::Kind::view && local(e.base).kind != Local::Kind::constant)
        external(e.base);
    for (const Arg& a : plan_->args)
      if (a.kind == Arg::Kind::tensor) ++counts[external(a.base)];
    for (Register r : returns())
      if (r != no_register && local(r).kind == Local::Kind::tensor && local(r).before) external(r);
    plan_->patch_begin.assign(1, 0);
    for (uint32_t n : counts) plan_->patch_begin.push_back(plan_->patch_begin.back() + n);
    plan_->patches.resize(plan_->patch_begin.back());
    std::vector<uint32_t> at(plan_->patch_begin.begin(), plan_->patch_begin.end() - 1);
    for (uint32_t a = 0; a < plan_->args.size(); ++a) {
      const Arg& arg = plan_->args[a];
      if (arg.kind == Arg::Kind::tensor)
        plan_->patches[at[external_of[index_of(arg.base)]]++] = {a, arg.offset};
    }
    plan_->external_of_event.reserve(plan_->events.size());
    for (const Event& e : plan_->events)
      plan_->external_of_event.push_back(external_of[index_of(e.reg)]);
  }

  void record_held() {
    plan_->held_inputs.assign(inputs_.size(), false);
    for (Register r : input_registers_) hold(r);
    for (uint32_t n = 0; n < bound_.size(); ++n)
      for (uint32_t k = 0; k < instruction(n).results; ++k)
        hold(stage_code_.results[instruction(n).first_result + k]);
    std::sort(plan_->held.begin(), plan_->held.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (Register r = input_registers_[i]; r != no_register) plan_->held_inputs[i] = local(r).held;
  }

  void hold(Register r) {
    if (r == no_register || code_.last_segment(r) <= number_ || code_.constant(r).defined()) return;
    const Local& l = local(r);
    Held held{l.kind == Local::Kind::absent, l.layout, r};
    if (l.kind == Local::Kind::constant) {
      // A view of a constant is copied when it leaves.
      held.layout = Layout(l.layout.dtype, l.layout.shape);
    } else if (!held.absent) {
      Local& root = local(l.root);
      root.held = true;
      uint32_t from = code_.made_in(l.root);
      held.owner =
          from == number_ ? l.root : plan_->previous->of_segment(from).find_held(l.root).owner;
    }
    plan_->held.emplace_back(r, std::move(held));
  }

  std::byte* number_memory() {
    constexpr size_t block = 4096;
    if (plan_->numbers.empty() || number_at_ == block) {
      plan_->numbers.push_back(std::make_unique<std::byte[]>(block));
      number_at_ = 0;
    }
    std::byte* p = plan_->numbers.back().get() + number_at_;
    number_at_ += 8;
    return p;
  }

  const Code& code_;
  size_t number_;
  const Segment& segment_;
  const StageCode& stage_code_;
  std::shared_ptr<SegmentPlan> plan_;
  std::span<const Tensor> inputs_;
  std::span<const Register> input_registers_;
  SizesByName sizes_;
  std::vector<uint32_t> local_numbers_;  // by register: index into locals_
  std::deque<Local> locals_;
  std::vector<Bound> bound_;  // by instruction of the segment, as all `index`es here
  std::vector<BoundArg> args_;
  std::vector<uint32_t> first_death_;  // by instruction, one more at the end: slices of deaths_
  std::vector<Register> deaths_;
  ops::KernelMemo kernels_;
  SlotAllocator slots_;
  size_t number_at_ = 0;
};

}  // namespace

std::shared_ptr<const SegmentPlan> make_plan(const Code& code, size_t segment,
                                             std::shared_ptr<const SegmentPlan> previous,
                                             std::span<const Tensor> inputs,
                                             std::vector<int64_t> key) {
  return Planner(code, segment, std::move(previous), inputs, std::move(key)).run();
}

}  // namespace gradus::interpreter
