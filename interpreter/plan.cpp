#include "interpreter/plan.h"

#include <algorithm>
#include <cstring>

#include "interpreter/bind_sizes.h"
#include "interpreter/slots.h"
#include "ops/evaluate.h"

namespace gradus::interpreter {

namespace {

constexpr uint32_t never = UINT32_MAX;

// A register while the stage is planned.
struct Local {
  enum class Kind : uint8_t { unknown, absent, constant, tensor, slot } kind = Kind::unknown;
  Register root = no_register;  // whose memory it lies in; itself if it has its own
  int64_t offset = 0;           // bytes from the root's first element
  Layout layout;
  uint32_t last_use = never;    // of a root: the last instruction that touches its memory
  bool leaves = false;          // of a root: a tensor made in this stage that outlives it
  bool before = false;          // there when the stage starts
  int64_t slot = 0;             // offset in the buffer
  int64_t bytes() const {
    return layout.numel() * static_cast<int64_t>(size_of(layout.dtype));
  }
};

// An instruction bound to layouts.
struct Bound {
  ir::Kernel kernel;
  SmallVector<Arg, 4> args;  // tensors and slots still by register
  SmallVector<Register, 4> arg_registers;
  SmallVector<int64_t, 2> dropped;  // bytes of results that nobody uses
};

class Planner {
 public:
  Planner(const Code& code, size_t stage, std::shared_ptr<const StagePlan> previous,
          std::span<const Tensor> inputs, std::vector<int64_t> key)
      : code_(code),
        stage_(stage),
        stage_code_(code.stage(stage)),
        plan_(std::make_shared<StagePlan>()),
        inputs_(inputs),
        sizes_(code, plan_->sizes) {
    if (previous) plan_->sizes = previous->sizes;
    plan_->previous = std::move(previous);
    plan_->key = std::move(key);
  }

  std::shared_ptr<const StagePlan> run() {
    bind_sizes(code_, stage_, inputs_, plan_->sizes);
    check_equalities();
    locals_.resize(code_.registers());
    place_inputs();
    bound_.resize(stage_code_.instructions.size());
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
  Local& local(Register r) { return locals_[index_of(r)]; }

  Error error_at(uint32_t instruction, const std::string& message) const {
    return code_.graph().error_at(stage_code_.instructions[instruction].where, message);
  }

  void check_equalities() const {
    for (size_t e = 0; e < stage_code_.equalities.size(); ++e) {
      const ir::DimEquality& q = stage_code_.equalities[e];
      int64_t a = q.a.evaluate(sizes_), b = q.b.evaluate(sizes_);
      if (a == b) continue;
      auto text = [](const ir::Dim& d, int64_t n) {
        return d.is_constant() ? fmt::format("{}", n) : fmt::format("{} = {}", d.to_string(), n);
      };
      throw error_at(stage_code_.equality_nodes[e],
                     fmt::format("sizes {} and {} differ: {}", text(q.a, a), text(q.b, b), q.what));
    }
  }

  void place_inputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Register r = stage_code_.inputs[i];
      if (r != no_register) place_tensor(r, !inputs_[i].defined(),
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

  // Finds a register of an earlier stage or a constant the first time it is met.
  Local& find(Register r) {
    Local& l = local(r);
    if (l.kind != Local::Kind::unknown) return l;
    if (code_.constant(r).defined()) {
      l.kind = Local::Kind::constant;
      l.root = r;
      l.layout = code_.constant(r).layout();
      return l;
    }
    uint32_t from = code_.graph()[code_.value_of(r)].stage;
    GRADUS_CHECK(from < stage_);
    const StagePlan* p = plan_->previous.get();
    for (size_t s = stage_ - 1; s > from; --s) p = p->previous.get();
    const Held& held = p->find_held(r);
    place_tensor(r, held.absent, held.layout);
    return l;
  }

  Sizes sizes_of(const ir::Type& type) const {
    Sizes s;
    for (const ir::Dim& d : type.dims) {
      int64_t n = d.evaluate(sizes_);
      if (n < 0)
        throw Error("the size {} of a result is {}, which is negative", d.to_string(), n);
      s.push_back(n);
    }
    if (!checked_numel(s) || *checked_numel(s) > INT64_MAX / 16)
      throw Error("a result {} has more elements than can be counted", gradus::to_string(s));
    return s;
  }

  const ir::Type& result_type(const Instruction& i, uint32_t k) const {
    const ir::Node& node = code_.graph().stages[stage_].nodes[i.node];
    return code_.graph()[node.results[k]].type;
  }

  void bind(uint32_t index) {
    const Instruction& i = stage_code_.instructions[index];
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
    bool absent_a = find(a).kind == Local::Kind::absent, absent_b = find(b).kind == Local::Kind::absent;
    if (!absent_a && !absent_b) return false;
    const ir::Type &type = result_type(i, 0), &type_a = code_.type_of(a), &type_b = code_.type_of(b);
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
    SmallVector<Layout, 4> in(i.operands);
    SmallVector<bool, 4> present(i.operands), number(i.operands);
    for (uint32_t k = 0; k < i.operands; ++k) {
      const CodeOperand& o = stage_code_.operands[i.first_operand + k];
      Arg arg;
      if (o.reg != no_register) {
        Local& l = find(o.reg);
        present[k] = true;
        if (l.kind == Local::Kind::absent) {
          Sizes shape = sizes_of(code_.type_of(o.reg));
          size_t rank = shape.size();
          in[k] = Layout(code_.type_of(o.reg).dtype, std::move(shape), Sizes(rank, 0));
          arg.kind = Arg::Kind::fixed;
          arg.fixed = number_memory();  // zero bits are zero in every dtype
          bound.arg_registers.push_back(no_register);
        } else {
          in[k] = l.layout;
          arg.kind = Arg::Kind::tensor;
          bound.arg_registers.push_back(o.reg);
          touch(o.reg, index);
        }
      } else {
        bound.arg_registers.push_back(no_register);
        if (!is_none(o.constant)) {
          present[k] = number[k] = true;
          ir::Number n = std::holds_alternative<ir::Dim>(o.constant)
                             ? ir::Number::of(std::get<ir::Dim>(o.constant).evaluate(sizes_))
                             : std::get<ir::Number>(o.constant);
          in[k] = ops::number_layout(n);
          std::byte* memory = number_memory();
          ops::store_number(n, memory);
          arg.kind = Arg::Kind::fixed;
          arg.fixed = memory;
        }
      }
      bound.args.push_back(arg);
    }
    ir::BindCall call{*i.op, in, present, number, i.attributes, sizes_, {}, {}, {}};
    for (uint32_t k = 0; k < i.results; ++k) {
      const ir::Type& type = result_type(i, k);
      call.out.emplace_back(type.dtype, sizes_of(type));
    }
    call.views.resize(i.results);
    i.op->bind(call);
    store_views_of_absent(i, call);
    place_results(i, index, call);
    bound.kernel = std::move(call.kernel);
    if (bound.kernel.parameters) plan_->kernels.push_back(bound.kernel.parameters);
  }

  // A view of an absent operand is a tensor of zeros like any other result.
  void store_views_of_absent(const Instruction& i, ir::BindCall& call) {
    std::vector<std::pair<size_t, size_t>> fills;  // pointer and bytes
    for (uint32_t k = 0; k < i.results; ++k) {
      if (call.views[k].operand < 0) continue;
      Register of = stage_code_.operands[i.first_operand + static_cast<uint32_t>(call.views[k].operand)].reg;
      if (of != no_register && local(of).kind != Local::Kind::absent) continue;
      call.views[k] = {};
      call.out[k] = Layout(call.out[k].dtype, call.out[k].shape);
      fills.emplace_back(i.operands + k, static_cast<size_t>(call.out[k].numel()) * size_of(call.out[k].dtype));
    }
    if (fills.empty()) return;
    GRADUS_CHECK(!call.kernel.run);  // results are views, or a kernel makes them: not both
    call.set_kernel(
        [](const void* parameters, std::byte* const* args, ir::KernelScope&) {
          for (auto [arg, bytes] : *static_cast<const decltype(fills)*>(parameters))
            std::memset(args[arg], 0, bytes);
        },
        std::move(fills));
  }

  void place_results(const Instruction& i, uint32_t index, const ir::BindCall& call) {
    Bound& bound = bound_[index];
    for (uint32_t k = 0; k < i.results; ++k) {
      Register y = stage_code_.results[i.first_result + k];
      const auto& view = call.views[k];
      Arg arg;
      if (view.operand >= 0) {
        Register of = stage_code_.operands[i.first_operand + static_cast<uint32_t>(view.operand)].reg;
        if (y != no_register) make_view(y, of, call.out[k], view.offset, index);
        bound.arg_registers.push_back(no_register);
        bound.args.push_back(arg);
        continue;
      }
      arg.kind = Arg::Kind::slot;
      bound.arg_registers.push_back(y);
      bound.args.push_back(arg);
      if (y == no_register) {
        bound.dropped.push_back(call.out[k].numel() * static_cast<int64_t>(size_of(call.out[k].dtype)));
        continue;
      }
      Local& l = local(y);
      l.kind = Local::Kind::slot;
      l.root = y;
      l.layout = call.out[k];
      l.last_use = index;
    }
  }

  // A root made here leaves if it, or a view of it, is returned or read later.
  void find_leaving() {
    auto leave = [&](Register r) {
      Local& l = local(r);
      if (l.kind == Local::Kind::absent || l.kind == Local::Kind::unknown) return;
      if (local(l.root).kind == Local::Kind::slot) local(l.root).leaves = true;
      l.leaves = true;
    };
    for (const Instruction& i : stage_code_.instructions)
      for (uint32_t k = 0; k < i.results; ++k) {
        Register r = stage_code_.results[i.first_result + k];
        if (r != no_register && code_.last_stage(r) > stage_) leave(r);
      }
    returned_.assign(code_.registers(), false);
    for (Register r : stage_code_.returns) {
      plan_->absent_returns.push_back(r == no_register ||
                                      find(r).kind == Local::Kind::absent);
      if (r == no_register) continue;
      leave(r);
      returned_[index_of(r)] = true;
    }
    for (Local& l : locals_)
      if (l.kind == Local::Kind::slot && local(l.root).leaves) l.kind = Local::Kind::tensor;
    // What dies after each instruction: memory by root, in order.
    dying_.resize(bound_.size());
    for (uint32_t r = 0; r < locals_.size(); ++r) {
      const Local& l = locals_[r];
      bool owns = l.root == static_cast<Register>(r) && l.kind != Local::Kind::constant;
      if (owns && l.last_use != never && l.kind != Local::Kind::unknown)
        dying_[l.last_use].push_back(static_cast<Register>(r));
    }
  }

  void lay_out(uint32_t index) {
    const Instruction& i = stage_code_.instructions[index];
    Bound& bound = bound_[index];
    Step step;
    step.instruction = index;
    step.first_event = static_cast<uint32_t>(plan_->events.size());
    SmallVector<std::pair<int64_t, int64_t>, 2> temporary;
    for (uint32_t k = 0; k < i.results && i.kind == Instruction::Kind::kernel; ++k) {
      Register y = stage_code_.results[i.first_result + k];
      if (y != no_register) place_result(y);
    }
    step.before = static_cast<uint32_t>(plan_->events.size()) - step.first_event;
    if (bound.kernel.run) {
      step.run = bound.kernel.run;
      step.parameters = bound.kernel.parameters.get();
      if (int64_t bytes = static_cast<int64_t>(bound.kernel.scratch_bytes)) {
        step.scratch = slots_.allocate(bytes);
        temporary.emplace_back(step.scratch, bytes);
      }
      step.args = static_cast<uint32_t>(plan_->args.size());
      size_t dropped = 0;
      for (size_t a = 0; a < bound.args.size(); ++a) {
        Arg arg = bound.args[a];
        if (arg.kind == Arg::Kind::slot && bound.arg_registers[a] == no_register) {
          int64_t bytes = bound.dropped[dropped++];
          arg.offset = slots_.allocate(bytes);
          temporary.emplace_back(arg.offset, bytes);
        } else if (bound.arg_registers[a] != no_register) {
          arg = arg_of(bound.arg_registers[a]);
        }
        plan_->args.push_back(arg);
      }
    }
    for (auto [offset, bytes] : temporary) slots_.release(offset, bytes);
    for (Register r : dying_[index]) die(r);
    step.after = static_cast<uint32_t>(plan_->events.size()) - step.first_event - step.before;
    if (step.run || step.before || step.after) plan_->steps.push_back(step);
    bound = Bound();
  }

  void place_result(Register y) {
    Local& l = local(y);
    if (l.kind == Local::Kind::absent) return;
    if (l.root != y) {
      if (!l.leaves) return;
      Event e{Event::Kind::view, y, l.root, l.offset / static_cast<int64_t>(size_of(l.layout.dtype)),
              l.layout};
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
    if (code_.last_stage(r) > stage_ || returned_[index_of(r)]) return;
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
      if (e.kind == Event::Kind::view && local(e.base).kind != Local::Kind::constant) external(e.base);
    for (const Arg& a : plan_->args)
      if (a.kind == Arg::Kind::tensor) ++counts[external(a.base)];
    for (Register r : stage_code_.returns)
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
    auto hold = [&](Register r) {
      if (r == no_register || code_.last_stage(r) <= stage_ || code_.constant(r).defined()) return;
      const Local& l = local(r);
      Held held{l.kind == Local::Kind::absent, l.layout};
      // A view of a constant is copied when it leaves.
      if (l.kind == Local::Kind::constant) held.layout = Layout(l.layout.dtype, l.layout.shape);
      plan_->held.emplace_back(r, std::move(held));
    };
    for (Register r : stage_code_.inputs) hold(r);
    for (Register r : stage_code_.results) hold(r);
    std::sort(plan_->held.begin(), plan_->held.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
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
  size_t stage_;
  const StageCode& stage_code_;
  std::shared_ptr<StagePlan> plan_;
  std::span<const Tensor> inputs_;
  SizesByName sizes_;
  std::vector<Local> locals_;  // by register
  std::vector<Bound> bound_;   // by instruction
  std::vector<std::vector<Register>> dying_;
  std::vector<bool> returned_;
  SlotAllocator slots_;
  size_t number_at_ = 0;
};

}  // namespace

const Held& StagePlan::find_held(Register r) const {
  auto it = std::lower_bound(held.begin(), held.end(), r,
                             [](const auto& h, Register q) { return h.first < q; });
  GRADUS_CHECK(it != held.end() && it->first == r);
  return it->second;
}

void append_input_key(const Tensor& t, std::vector<int64_t>& key) {
  if (!t.defined()) {
    key.push_back(-1);
    return;
  }
  const Layout& l = t.layout();
  bool contiguous = l.contiguous();
  key.push_back(static_cast<int64_t>(l.dtype) | static_cast<int64_t>(l.rank()) << 8 |
                static_cast<int64_t>(contiguous) << 40 |
                static_cast<int64_t>(t.device().kind) << 41 |
                static_cast<int64_t>(t.device().index) << 42);
  key.insert(key.end(), l.shape.begin(), l.shape.end());
  if (!contiguous) key.insert(key.end(), l.strides.begin(), l.strides.end());
}

std::shared_ptr<const StagePlan> make_plan(const Code& code, size_t stage,
                                           std::shared_ptr<const StagePlan> previous,
                                           std::span<const Tensor> inputs,
                                           std::vector<int64_t> key) {
  return Planner(code, stage, std::move(previous), inputs, std::move(key)).run();
}

std::shared_ptr<const StagePlan> PlanCache::find(size_t stage, const StagePlan* previous,
                                                 std::span<const int64_t> key) {
  std::lock_guard lock(mutex_);
  if (stage >= stages_.size()) return nullptr;
  auto& plans = stages_[stage];
  for (auto it = plans.begin(); it != plans.end(); ++it) {
    if ((*it)->previous.get() != previous || !std::ranges::equal((*it)->key, key)) continue;
    plans.splice(plans.begin(), plans, it);
    return plans.front();
  }
  return nullptr;
}

void PlanCache::insert(size_t stage, std::shared_ptr<const StagePlan> plan) {
  std::lock_guard lock(mutex_);
  if (stage >= stages_.size()) stages_.resize(stage + 1);
  stages_[stage].push_front(std::move(plan));
  if (stages_[stage].size() > most_per_stage) stages_[stage].pop_back();
}

}  // namespace gradus::interpreter
