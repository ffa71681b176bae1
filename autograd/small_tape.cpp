#include "autograd/small_tape.h"

#include <algorithm>

#include "autograd/tape_recorder.h"

namespace gradus::autograd {

RuleTape::Small::Small(const RuleTape& tape) : given_(static_cast<uint32_t>(tape.given().size())) {
  for (uint32_t slot : tape.given()) layouts_.push_back(layout_of(tape.types_[slot]));
  possible_ = tape.on_cpu_ && place(tape) && lay_out(tape);
  draft_ = Draft();
}

// Finds layouts, views and kernels.
bool RuleTape::Small::place(const RuleTape& tape) {
  draft_.places.resize(tape.slots());
  for (uint32_t i = 0; i < given_; ++i) {
    draft_.places[tape.given()[i]] = {i, 0, layouts_[i]};
    draft_.roots.push_back({i, 0});
  }
  draft_.made = layouts_;
  for (const RuleTape::Step& step : tape.steps_)
    if (!place_step(step)) return false;
  return true;
}

bool RuleTape::Small::place_step(const RuleTape::Step& step) {
  const OperatorCall& call = *step.call;
  SmallVector<ops::CallOperand, 4> operands;
  bool contiguous = true;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    ops::CallOperand& o = operands.emplace_back();
    const OperatorCall::Operand& typed = call.operands()[i];
    if (typed.is_tensor) {
      o.layout = &draft_.places[step.operands[i].slot].layout;
      contiguous = contiguous && *o.layout == typed.layout;
    } else if (typed.number) {
      o.number = &*typed.number;
    }
  }
  const ops::BoundCall* bound = nullptr;
  if (contiguous) {
    bound = call.bound();
  } else if (auto shared = ops::bound_call(call.op(), call.attributes(), operands)) {
    bound = shared.get();
    kept_.push_back(std::move(shared));
  }
  if (!bound) return false;
  for (size_t k = 0; k < bound->out.size(); ++k) {
    const ops::BindCall::View& view = bound->views[k];
    Place& place = draft_.places[step.first_result + k];
    place.layout = bound->out[k];
    if (view.operand >= 0) {
      const Place& base = draft_.places[step.operands[static_cast<size_t>(view.operand)].slot];
      place.root = base.root;
      place.offset = base.offset + view.offset * static_cast<int64_t>(size_of(place.layout.dtype));
    } else {
      place.root = static_cast<uint32_t>(draft_.roots.size());
      draft_.roots.emplace_back();
      draft_.made.push_back(place.layout);
    }
  }
  draft_.calls.push_back(bound);
  return true;
}

// What gradients lie in leaves as tensors.
void RuleTape::Small::choose_leaving(const RuleTape& tape) {
  for (uint32_t slot : tape.gradients_) {
    Gradient& g = gradients_.emplace_back();
    if (slot == none) continue;
    const Place& place = draft_.places[slot];
    Pointer& root = draft_.roots[place.root];
    if (root.base == unknown) {
      root.base = static_cast<uint32_t>(given_ + leaving_.size());
      const Layout& made = draft_.made[place.root];
      leaving_.push_back({made, static_cast<size_t>(made.numel()) * size_of(made.dtype)});
    }
    const Layout& whole = draft_.made[place.root];
    for (Gradient& before : gradients_) before.last &= !before.given || before.root != root.base;
    g.given = g.last = true;
    g.root = root.base;
    g.layout = place.layout;
    g.offset = place.offset / static_cast<int64_t>(size_of(place.layout.dtype));
    g.whole = g.offset == 0 && place.layout == whole;
  }
}

bool RuleTape::Small::lay_out(const RuleTape& tape) {
  choose_leaving(tape);
  const auto stack = static_cast<uint32_t>(given_ + leaving_.size()), numbers = stack + 1;
  for (size_t r = given_; r < draft_.roots.size(); ++r) {
    if (draft_.roots[r].base != unknown) continue;
    int64_t bytes = draft_.made[r].numel() * static_cast<int64_t>(size_of(draft_.made[r].dtype));
    if (bytes > most_scratch_bytes) return false;
    draft_.roots[r] = {stack, on_stack(bytes)};
  }
  for (size_t i = 0; i < tape.steps_.size(); ++i)
    if (!lay_out_step(tape.steps_[i], *draft_.calls[i])) return false;
  // Null pointers are those of the base after the last.
  for (Pointer& p : pointers_)
    if (p.base == unknown) p.base = numbers + 1;
  auto most = std::ranges::max_element(steps_, {}, &Step::pointers);
  return draft_.stack <= most_scratch_bytes && numbers + 1 < most_pointers &&
         (most == steps_.end() || most->pointers <= most_pointers);
}

bool RuleTape::Small::lay_out_step(const RuleTape::Step& step, const ops::BoundCall& call) {
  if (!call.kernel.run) return true;
  if (call.kernel.scratch_bytes > static_cast<size_t>(most_scratch_bytes)) return false;
  auto pointer_to = [&](uint32_t slot) {
    const Place& place = draft_.places[slot];
    Pointer p = draft_.roots[place.root];
    p.offset += place.offset;
    return p;
  };
  Step& s = steps_.emplace_back();
  s.first_pointer = static_cast<uint32_t>(pointers_.size());
  s.loop = loop_of(step, call);
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const OperatorCall::Operand& typed = step.call->operands()[i];
    if (typed.is_tensor)
      pointers_.push_back(pointer_to(step.operands[i].slot));
    else if (typed.number)
      pointers_.push_back(number(*typed.number, s.loop ? call.out.data() : nullptr));
    else
      pointers_.emplace_back();
  }
  for (size_t k = 0; k < call.out.size(); ++k)
    pointers_.push_back(call.views[k].operand >= 0
                            ? Pointer()
                            : pointer_to(step.first_result + static_cast<uint32_t>(k)));
  s.pointers = static_cast<uint32_t>(pointers_.size()) - s.first_pointer;
  s.elements = call.out[0].numel();
  s.attributes = step.call->attributes().get();
  s.run = call.kernel.run;
  s.parameters = call.kernel.parameters.get();
  s.scratch = on_stack(static_cast<int64_t>(call.kernel.scratch_bytes));
  return true;
}

// The loop of a pointwise operator, where operands lie as the result does, in the dtype that it is
// computed in. Numbers are laid out so.
ops::PointwiseLoop RuleTape::Small::loop_of(const RuleTape::Step& step,
                                            const ops::BoundCall& call) const {
  constexpr int64_t most_elements = 64;
  if (call.out.size() != 1) return nullptr;
  const Layout& out = call.out[0];
  bool tensors = false;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const OperatorCall::Operand& typed = step.call->operands()[i];
    if (typed.is_tensor && !(draft_.places[step.operands[i].slot].layout == out)) return nullptr;
    if (!typed.is_tensor && !typed.number) return nullptr;
    tensors |= typed.is_tensor;
  }
  if (!tensors || out.numel() > most_elements) return nullptr;
  return plain_loop(step.call->op(), call.kernel, out.dtype, step.operands.size());
}

// Where a number lies; once for each element of `as` and in its dtype, if that is given.
RuleTape::Small::Pointer RuleTape::Small::number(const ir::Number& n, const Layout* as) {
  Pointer at{static_cast<uint32_t>(given_ + leaving_.size() + 1),
             static_cast<int64_t>(numbers_.size() * sizeof(uint64_t))};
  uint64_t word = 0;
  ops::store_number(n, reinterpret_cast<std::byte*>(&word));
  if (!as) {
    numbers_.push_back(word);
    return at;
  }
  Layout one = ops::number_layout(n);
  Layout each(one.dtype, as->shape, Sizes(as->shape.size(), 0));
  std::vector<uint64_t> elements(static_cast<size_t>(as->numel()));
  copy_elements(each, reinterpret_cast<const std::byte*>(&word), *as,
                reinterpret_cast<std::byte*>(elements.data()));
  numbers_.insert(numbers_.end(), elements.begin(), elements.end());
  return at;
}

int64_t RuleTape::Small::on_stack(int64_t bytes) {
  int64_t at = draft_.stack;
  draft_.stack += (bytes + 63) / 64 * 64;
  return at;
}

bool RuleTape::Small::play(std::span<const Tensor* const> given, Context& context,
                           SmallVector<Tensor, 4>& gradients) const {
  if (!possible_) return false;
  std::array<std::byte*, most_pointers> bases;
  size_t count = 0;
  for (uint32_t i = 0; i < given_; ++i) {
    const Tensor& t = *given[i];
    if (!t.plain() && !(t.layout().strides == layouts_[i].strides)) return false;
    bases[count++] = const_cast<std::byte*>(t.data());
  }
  SmallVector<Tensor, 2> made;
  for (const Leaving& l : leaving_)
    bases[count++] = const_cast<std::byte*>(
        made.emplace_back(Tensor::of_layout(l.layout, l.bytes, context)).data());
  alignas(64) std::byte stack[most_scratch_bytes];
  bases[count++] = stack;
  bases[count++] = reinterpret_cast<std::byte*>(const_cast<uint64_t*>(numbers_.data()));
  bases[count] = nullptr;
  std::array<std::byte*, most_pointers> args;
  for (const Step& step : steps_) {
    const Pointer* pointers = pointers_.data() + step.first_pointer;
    for (uint32_t a = 0; a < step.pointers; ++a)
      args[a] = bases[pointers[a].base] + pointers[a].offset;
    if (step.loop) {
      step.loop(step.elements, reinterpret_cast<const void* const*>(args.data()),
                args[step.pointers - 1], step.attributes);
      continue;
    }
    work::KernelScope scope{context.workers(), stack + step.scratch, &context};
    step.run(step.parameters, args.data(), scope);
  }
  for (const Gradient& g : gradients_) {
    if (!g.given) {
      gradients.emplace_back();
    } else if (g.whole && g.last && g.root >= given_) {
      gradients.push_back(std::move(made[g.root - given_]));
    } else {
      const Tensor& root = g.root < given_ ? *given[g.root] : made[g.root - given_];
      gradients.push_back(g.whole ? root : root.view(g.layout, root.offset() + g.offset));
    }
  }
  return true;
}

}  // namespace gradus::autograd
