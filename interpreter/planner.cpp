// Makes plans: layouts, views and kernels of a segment's instructions.
#include "interpreter/planner.h"

#include "interpreter/whole_stage.h"
#include "kernels/make.h"

namespace gradus::interpreter {

Planner::Planner(const Code& code, size_t segment, std::shared_ptr<const SegmentPlan> previous,
                 std::span<const Tensor> inputs, std::vector<int64_t> key,
                 const KernelChoice& choice)
    : code_(code),
      number_(segment),
      segment_(code.segment(segment)),
      stage_code_(code.stage(segment_.stage)),
      plan_(std::make_shared<SegmentPlan>()),
      inputs_(inputs),
      input_registers_(inputs_of(code, segment)),
      sizes_(code, plan_->sizes),
      local_numbers_(code.registers(), Local::never),
      choice_(choice) {
  plan_->segment = segment;
  if (previous) plan_->sizes = previous->sizes;
  plan_->follow(std::move(previous));
  plan_->key = std::move(key);
  if (segment_.counts) plan_->sizes[*segment_.counts] = plan_->key.back();
}

// Given    nothing is planned
// Result   what runs in each instruction's place is settled; memory is not laid out
void Planner::choose_code() {
  if (segment_.begins_stage) {
    bind_sizes(code_, segment_.stage, inputs_, choice_.place(), plan_->sizes);
    check_equalities();
  }
  if (segment_.counts) check_equalities();  // of that size too
  place_inputs();
  bound_.resize(segment_.end - segment_.first);
  reserve();
  for (uint32_t i = 0; i < bound_.size(); ++i) bind(i);
  if (!choice_.device) share_packings();
  fuse();
  if (choice_.device)
    place_on_device();
  else
    make_code();
}

bool Planner::waits_for_code() const { return !plan_->missing.empty() || !plan_->later.empty(); }

// Has compiled what waits_for_code() is about, by several threads at a time.
void Planner::compile_code() const {
  for (const auto& [nest, text] : plan_->missing) choice_.source->request(nest, text);
  choice_.source->wait();
}

std::shared_ptr<SegmentPlan> Planner::finish(bool may_be_whole) {
  plan_->may_be_whole = may_be_whole;
  find_leaving();
  if (!plan_->faults.empty())
    plan_->faults_at =
        slots_.allocate(static_cast<int64_t>(plan_->faults.size()) * SegmentPlan::fault_bytes);
  for (uint32_t i = 0; i < bound_.size(); ++i) lay_out(i);
  settle_slots();
  plan_->buffer_bytes = slots_.end();
  plan_->least_buffer_bytes = slots_.peak();
  record_peak();
  finish_patches();
  record_held();
  if (choice_.device) send_numbers();
  if (choice_.device) plan_->recordable = is_recordable();
  if (choice_.source) {
    plan_->kernel_source = choice_.source->id();
    const bool all = choice_.mode == fusion::FusionMode::first;
    plan_->kernel_generation = (all ? choice_.source->ready() : choice_.set)->generation;
  }
  return plan_;
}

// Growing by halves would touch much memory twice in a large stage.
void Planner::reserve() {
  size_t pointers = 0;
  for (uint32_t i = 0; i < bound_.size(); ++i)
    pointers += instruction(i).operands + instruction(i).results;
  args_.reserve(pointers);
  plan_->args.reserve(pointers);
  plan_->steps.reserve(bound_.size());
}

Local& Planner::local(Register r) {
  uint32_t& n = local_numbers_[index_of(r)];
  if (n == Local::never) {
    n = static_cast<uint32_t>(locals_.size());
    locals_.emplace_back().reg = r;
  }
  return locals_[n];
}

Error Planner::error_at(uint32_t index, const std::string& message) const {
  return code_.graph().error_at(instruction(index).where, message);
}

void Planner::check_equalities() const {
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

bool Planner::known(const ir::Dim& d) const {
  bool all = true;
  d.for_each_symbol([&](std::string_view name) { all &= sizes_.find(name).has_value(); });
  return all;
}

void Planner::place_inputs() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Register r = input_registers_[i];
    if (r != no_register)
      place_tensor(r, !inputs_[i].defined(), inputs_[i].defined() ? inputs_[i].layout() : Layout());
  }
}

void Planner::place_tensor(Register r, bool absent, const Layout& layout) {
  Local& l = local(r);
  l.kind = absent ? Local::Kind::absent : Local::Kind::tensor;
  l.layout = layout;
  l.root = r;
  l.before = true;
}

// Finds a register of an earlier segment or a constant the first time it is met.
Local& Planner::find(Register r) {
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
  if (held.carried) {
    l.kind = Local::Kind::carried;
    l.slot = held.carried->memory;
    l.extent = held.carried->bytes;
    l.offset = held.carried->offset;
  }
  return l;
}

Sizes Planner::sizes_of(const ir::Type& type) const {
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

const ir::Type& Planner::result_type(const Instruction& i, uint32_t k) const {
  const ir::Node& node = code_.graph().stages[segment_.stage].nodes[i.node];
  return code_.graph()[node.results[k]].type;
}

void Planner::bind(uint32_t index) {
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
bool Planner::absent_sum(const Instruction& i, uint32_t index) {
  if (!i.op->traits.accumulates || !i.op->write(i.attributes).empty()) return false;
  Register a = stage_code_.operands[i.first_operand].reg;
  Register b = stage_code_.operands[i.first_operand + 1].reg;
  if (a == no_register || b == no_register) return false;
  bool absent_a = find(a).kind == Local::Kind::absent,
       absent_b = find(b).kind == Local::Kind::absent;
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

void Planner::make_view(Register y, Register of, const Layout& layout, int64_t elements,
                        uint32_t index) {
  const Local& base = local(of);
  Local& l = local(y);
  l.kind = base.kind;
  l.root = base.root;
  l.offset = base.offset + elements * static_cast<int64_t>(size_of(layout.dtype));
  l.layout = layout;
  touch(y, index);
}

void Planner::touch(Register r, uint32_t index) {
  Local& l = local(r);
  if (l.kind != Local::Kind::absent) local(l.root).last_use = index;
}

void Planner::bind_kernel(const Instruction& i, uint32_t index) {
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
  ops::BindCall call{*i.op, in, present, number, i.attributes, sizes_, {}, {}, {}};
  for (uint32_t k = 0; k < i.results; ++k) {
    const ir::Type& type = result_type(i, k);
    call.out.emplace_back(type.dtype, sizes_of(type));
  }
  call.views.resize(i.results);
  const auto& memo = memo_.bind(call);
  bound.work = memo.work;
  place_results(i, index, memo);
  bound.args = static_cast<uint32_t>(args_.size()) - bound.first_arg;
}

// An operand that is a value: adds its pointer, returns its layout.
Layout Planner::bind_register(Register r, uint32_t index) {
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
bool Planner::bind_constant(const ir::Operand& o, Layout& layout) {
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
bool Planner::is_view_of_absent(const Instruction& i, const ops::BindCall::View& view) {
  if (view.operand < 0) return false;
  Register of = stage_code_.operands[i.first_operand + static_cast<uint32_t>(view.operand)].reg;
  return of == no_register || local(of).kind == Local::Kind::absent;
}
void Planner::zero_views_of_absent(Bound& bound, std::vector<std::pair<size_t, size_t>> fills) {
  if (fills.empty()) return;
  GRADUS_CHECK(!bound.work);  // results are views, or work makes them: not both
  work::Move zeros;
  for (auto [arg, bytes] : fills) {
    const Sizes size{static_cast<int64_t>(bytes)};
    zeros.fill(size, {}, {static_cast<int>(arg), DType::u8, {1}, 0});
  }
  bound.work = std::make_shared<const work::Work>(std::move(zeros));
}

// Code for work, once for all instructions that share it.
const work::Kernel& Planner::code_of(const work::WorkRef& work) {
  auto [made, first] = made_.try_emplace(work.get());
  if (first) {
    made->second = kernels::make(*work);
    plan_->kernels.push_back(work);
    if (made->second.parameters) plan_->kernels.push_back(made->second.parameters);
  }
  return made->second;
}

void Planner::make_code() {
  for (Bound& b : bound_)
    if (b.work) b.set_code(code_of(b.work));
  for (SharedPacking& p : packings_) p.kernel = code_of(p.copy);
}

void Planner::place_results(const Instruction& i, uint32_t index,
                            const ops::KernelMemo::Entry& memo) {
  std::vector<std::pair<size_t, size_t>> fills;  // pointers of results and their bytes
  for (uint32_t k = 0; k < i.results; ++k) {
    Register y = stage_code_.results[i.first_result + k];
    const auto& view = memo.views[k];
    const Layout& out = memo.out[k];
    auto bytes = static_cast<size_t>(out.numel()) * size_of(out.dtype);
    bool zeros = is_view_of_absent(i, view);
    if (zeros) fills.emplace_back(i.operands + k, bytes);
    if (view.operand >= 0 && !zeros) {
      Register of = stage_code_.operands[i.first_operand + static_cast<uint32_t>(view.operand)].reg;
      if (y != no_register) make_view(y, of, out, view.offset, index);
      args_.emplace_back();
      continue;
    }
    if (y == no_register) {
      args_.push_back({BoundArg::Kind::dropped, no_register, nullptr, static_cast<int64_t>(bytes)});
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

std::byte* Planner::number_memory() {
  if (plan_->numbers.empty() || number_at_ == number_block) {
    plan_->numbers.push_back(std::make_unique<std::byte[]>(number_block));
    number_at_ = 0;
  }
  std::byte* p = plan_->numbers.back().get() + number_at_;
  number_at_ += 8;
  return p;
}

std::shared_ptr<const SegmentPlan> make_plan(const Code& code, size_t segment,
                                             std::shared_ptr<const SegmentPlan> previous,
                                             std::span<const Tensor> inputs,
                                             std::vector<int64_t> key, const KernelChoice& choice) {
  if (choice.device && choice.mode == fusion::FusionMode::first) {
    // As if it were not to wait: then all that is wanted is known before any of it is compiled.
    KernelChoice asking = choice;
    asking.mode = fusion::FusionMode::behind;
    asking.set = choice.source->ready();
    Planner planner(code, segment, previous, inputs, key, asking);
    planner.choose_code();
    if (!planner.waits_for_code()) return planner.finish();
    planner.compile_code();
  }
  const bool may_be_whole = is_small_stage(code, segment, inputs, choice);
  if (may_be_whole)
    if (auto whole = plan_whole_stage(code, segment, previous, inputs, key, choice)) return whole;
  Planner planner(code, segment, std::move(previous), inputs, std::move(key), choice);
  planner.choose_code();
  return planner.finish(may_be_whole && choice.mode == fusion::FusionMode::behind);
}

}  // namespace gradus::interpreter
