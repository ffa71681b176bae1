// Planning: layouts, views and work of a segment's instructions.
#include "gradus/bind.h"

#include "interpreter/plan/loop.h"
#include "interpreter/plan/steps.h"
#include "kernels/call_table.h"

namespace gradus::interpreter {

namespace {

class WorkBinder {
 public:
  explicit WorkBinder(Draft& draft) : d(draft) {}

  void bind(uint32_t index) {
    const Instruction& i = d.instruction(index);
    if (i.kind == Instruction::Kind::constant) return;  // found when used
    if (i.kind == Instruction::Kind::undefined) {
      Register r = d.results_of(index)[0];
      if (r != no_register) d.local(r).kind = Local::Kind::absent;
      return;
    }
    try {
      if (!absent_sum(index)) bind_work(index);
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw d.code.graph().error_at(i.where, e.bare());
    }
  }

  void check_equalities() const {
    for (size_t e = 0; e < d.stage.equalities.size(); ++e) {
      const ir::DimEquality& q = d.stage.equalities[e];
      if (!known(q.a) || !known(q.b)) continue;  // of an absent cotangent alone
      int64_t a = q.a.evaluate(d.sizes), b = q.b.evaluate(d.sizes);
      if (a == b) continue;
      auto text = [](const ir::Dim& size, int64_t n) {
        return size.is_constant() ? fmt::format("{}", n)
                                  : fmt::format("{} = {}", size.to_string(), n);
      };
      throw d.code.graph().error_at(
          d.stage.equality_places[e],
          fmt::format("sizes {} and {} differ: {}", text(q.a, a), text(q.b, b), q.what));
    }
  }

 private:
  bool known(const ir::Dim& size) const {
    bool all = true;
    size.for_each_symbol([&](std::string_view name) { all &= d.sizes.find(name).has_value(); });
    return all;
  }

  const ir::Type& result_type(uint32_t index, uint32_t k) const {
    return d.code.graph()[d.node(index).results[k]].type;
  }

  // x + absent is x, absent + absent is absent.
  bool absent_sum(uint32_t index) {
    const Instruction& i = d.instruction(index);
    if (!i.op->traits.accumulates || !i.op->write(i.attributes).empty()) return false;
    Register a = d.operand(index, 0), b = d.operand(index, 1);
    if (a == no_register || b == no_register) return false;
    bool absent_a = d.find(a).kind == Local::Kind::absent,
         absent_b = d.find(b).kind == Local::Kind::absent;
    if (!absent_a && !absent_b) return false;
    const ir::Type &type = result_type(index, 0), &type_a = d.code.type_of(a),
                   &type_b = d.code.type_of(b);
    if (!(type_a == type && type_b == type)) return false;
    Register y = d.results_of(index)[0];
    if (absent_a && absent_b) {
      if (y != no_register) d.local(y).kind = Local::Kind::absent;
      return true;
    }
    Register x = absent_a ? b : a;
    if (y != no_register) make_view(y, x, d.find(x).layout, 0, index);
    touch(x, index);
    return true;
  }

  void make_view(Register y, Register of, const Layout& layout, int64_t elements, uint32_t index) {
    const Local& base = d.local(of);
    Local& l = d.local(y);
    l.kind = base.kind;
    l.root = base.root;
    l.offset = base.offset + elements * static_cast<int64_t>(size_of(layout.dtype));
    l.layout = layout;
    touch(y, index);
  }

  void touch(Register r, uint32_t index) {
    Local& l = d.local(r);
    if (l.kind != Local::Kind::absent) d.local(l.root).last_use = index;
  }

  void bind_work(uint32_t index) {
    const Instruction& i = d.instruction(index);
    Bound& bound = d.bound[index];
    bound.first_arg = static_cast<uint32_t>(d.args.size());
    SmallVector<Layout, 4> in(i.operands);
    SmallVector<ir::Number, 2> numbers(i.operands);
    SmallVector<ops::CallOperand, 4> operands(i.operands);
    for (uint32_t k = 0; k < i.operands; ++k) {
      const CodeOperand& o = d.stage.operands[i.first_operand + k];
      if (o.reg != no_register) {
        in[k] = bind_register(o.reg, index);
        operands[k].layout = &in[k];
      } else if (auto n = bind_constant(d.stage.constants[o.constant])) {
        numbers[k] = *n;
        in[k] = ops::number_layout(*n);
        operands[k].number = &numbers[k];
      }
    }
    SmallVector<Layout, 2> results;
    for (uint32_t k = 0; k < i.results; ++k) {
      const ir::Type& type = result_type(index, k);
      results.emplace_back(type.dtype, d.sizes_of(type));
    }
    if (!i.bodies.empty()) {
      const LoopWork made = loop_work(d, i, in, results);
      Known loop{{}, {}, made.work};
      loop.out.append(results.begin(), results.end());
      loop.views.resize(results.size());
      bound.work = loop.work;
      if (made.code) {
        bound.set_code(*made.code);
        if (std::optional<size_t>& all = d.plan->loop_launches; all && made.launches)
          *all += *made.launches;
        else
          all.reset();
        if (made.asks_host) d.plan->asking_host.push_back(d.segment.first + index);
      }
      place_results(index, loop);
    } else {
      const ops::CallKey key{*i.op, i.attributes, operands, results};
      const Known* known = known_.find(key);
      if (!known) known = &known_.insert(key, bind_call(key, in));
      bound.work = known->work;
      place_results(index, *known);
    }
    bound.args = static_cast<uint32_t>(d.args.size()) - bound.first_arg;
  }

  // What an operator binds to, of this segment's sizes.
  struct Known {
    SmallVector<Layout, 1> out;
    SmallVector<ops::BindCall::View, 2> views;
    work::WorkRef work;
  };
  Known bind_call(const ops::CallKey& key, std::span<const Layout> in) const {
    SmallVector<bool, 4> present, number;
    for (const ops::CallOperand& o : key.operands) {
      present.push_back(o.layout || o.number);
      number.push_back(o.number != nullptr);
    }
    ops::BindCall call{key.op, in, present, number, key.attributes, d.sizes, {}, {}, {}};
    call.out.append(key.results.begin(), key.results.end());
    call.views.resize(call.out.size());
    key.op.bind(call);
    Known known{{}, {}, std::move(call.work)};
    known.out.append(call.out.begin(), call.out.end());
    known.views.append(call.views.begin(), call.views.end());
    return known;
  }

  // An operand that is a value: adds its pointer, returns its layout.
  Layout bind_register(Register r, uint32_t index) {
    const Local& l = d.find(r);
    if (l.kind != Local::Kind::absent) {
      d.args.push_back({BoundArg::Kind::value, r});
      touch(r, index);
      return l.layout;
    }
    Sizes shape = d.sizes_of(d.code.type_of(r));
    size_t rank = shape.size();
    // Zero bits are zero in every dtype.
    d.args.push_back({BoundArg::Kind::fixed, no_register, d.number_memory()});
    return Layout(d.code.type_of(r).dtype, std::move(shape), Sizes(rank, 0));
  }

  // An operand that is a number, a size or `none`: adds its pointer. Nothing for `none`.
  std::optional<ir::Number> bind_constant(const ir::Operand& o) {
    if (is_none(o)) {
      d.args.emplace_back();
      return {};
    }
    ir::Number n = std::holds_alternative<ir::Dim>(o)
                       ? ir::Number::of(std::get<ir::Dim>(o).evaluate(d.sizes))
                       : std::get<ir::Number>(o);
    std::byte* memory = d.number_memory();
    ops::store_number(n, memory);
    d.args.push_back({BoundArg::Kind::fixed, no_register, memory});
    return n;
  }

  // A view of an absent operand is a tensor of zeros like any other result: work of its own.
  bool is_view_of_absent(uint32_t index, const ops::BindCall::View& view) {
    if (view.operand < 0) return false;
    Register of = d.operand(index, static_cast<uint32_t>(view.operand));
    return of == no_register || d.local(of).kind == Local::Kind::absent;
  }
  void zero_views_of_absent(Bound& bound, const std::vector<std::pair<size_t, size_t>>& fills) {
    if (fills.empty()) return;
    GRADUS_CHECK(!bound.work);  // results are views, or work makes them: not both
    work::Move zeros;
    for (auto [arg, bytes] : fills) {
      const Sizes size{static_cast<int64_t>(bytes)};
      zeros.fill(size, {}, {static_cast<int>(arg), DType::u8, {1}, 0});
    }
    bound.work = work::share(std::move(zeros));
  }

  void place_results(uint32_t index, const Known& known) {
    const Instruction& i = d.instruction(index);
    std::vector<std::pair<size_t, size_t>> fills;  // pointers of results and their bytes
    for (uint32_t k = 0; k < i.results; ++k) {
      Register y = d.results_of(index)[k];
      const auto& view = known.views[k];
      const Layout& out = known.out[k];
      auto bytes = static_cast<size_t>(out.numel()) * size_of(out.dtype);
      bool zeros = is_view_of_absent(index, view);
      if (zeros) fills.emplace_back(i.operands + k, bytes);
      if (view.operand >= 0 && !zeros) {
        Register of = d.operand(index, static_cast<uint32_t>(view.operand));
        if (y != no_register) make_view(y, of, out, view.offset, index);
        d.args.emplace_back();
        continue;
      }
      if (y == no_register) {
        d.args.push_back(
            {BoundArg::Kind::dropped, no_register, nullptr, static_cast<int64_t>(bytes)});
        continue;
      }
      d.args.push_back({BoundArg::Kind::value, y});
      Local& l = d.local(y);
      l.kind = Local::Kind::slot;
      l.root = y;
      l.layout = zeros ? Layout(out.dtype, out.shape) : out;
      l.last_use = index;
    }
    zero_views_of_absent(d.bound[index], fills);
  }

  Draft& d;
  ops::CallTable<Known> known_{64};
};

// Growing by halves would touch much memory twice in a large stage.
void reserve(Draft& d) {
  size_t pointers = 0;
  for (uint32_t i = 0; i < d.bound.size(); ++i)
    pointers += d.instruction(i).operands + d.instruction(i).results;
  d.args.reserve(pointers);
  d.plan->args.reserve(pointers);
  d.plan->steps.reserve(d.bound.size());
}

}  // namespace

void bind(Draft& d) {
  WorkBinder binder(d);
  d.plan->ranks = rank_counts(d.code, d.choice.context);
  if (d.segment.begins_stage)
    bind_sizes(d.code, d.segment.stage, d.inputs, d.choice.place(), d.plan->ranks, d.plan->sizes);
  if (d.segment.begins_stage || d.segment.counts) binder.check_equalities();
  for (size_t i = 0; i < d.inputs.size(); ++i) {
    const Tensor& t = d.inputs[i];
    if (Register r = d.input_registers[i]; r != no_register)
      d.place_tensor(d.local(r), !t.defined(), t.defined() ? t.layout() : Layout());
  }
  d.bound.resize(d.segment.end - d.segment.first);
  reserve(d);
  for (uint32_t i = 0; i < d.bound.size(); ++i) binder.bind(i);
}

}  // namespace gradus::interpreter
