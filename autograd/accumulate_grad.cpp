#include "autograd/accumulate_grad.h"

#include "autograd/recorder.h"
#include "gradus/apply.h"

namespace gradus::autograd {

AccumulateGrad::AccumulateGrad(const Variable& leaf, Ref<Anchor<VariableBody>> anchor)
    : anchor_(std::move(anchor)) {
  set_sequence_number(accumulator_sequence_number);
  set_order_limit(nullptr);
  add_input(InputMetadata(leaf.data()));
}

AccumulateGrad::~AccumulateGrad() {
  // If the leaf lives, it may just now be looking for this accumulator, under its mutex.
  Variable alive = leaf();
  if (!alive.defined()) return;
  VariableExtras& extras = alive.body()->extras();
  std::lock_guard guard(extras.mutex);
  if (extras.accumulator == this) extras.accumulator = nullptr;
}

Edge AccumulateGrad::edge_of(const Variable& leaf) {
  VariableExtras& extras = leaf.body()->extras();
  std::lock_guard guard(extras.mutex);
  if (Ref<Node> found = Ref<Node>::if_alive(extras.accumulator)) return {std::move(found), 0};
  if (!extras.anchor) extras.anchor = make_ref<Anchor<VariableBody>>(leaf.body().get());
  Ref<Node> fresh(new AccumulateGrad(leaf, extras.anchor));
  extras.accumulator = fresh.get();
  return {std::move(fresh), 0};
}

bool AccumulateGrad::is_thread_safe() const {
  Variable alive = leaf();
  if (!alive.defined()) return true;
  VariableExtras& extras = alive.body()->extras();
  std::lock_guard guard(extras.mutex);
  return extras.hooks.empty() && extras.post_accumulate.empty();
}

namespace {

// A tensor that nobody else can see, by way of its variable or of its memory.
bool only_owner(const Variable& v) {
  return v.body()->use_count() == 1 && v.data().sole_owner() && v.data().layout().contiguous();
}

Variable own(Variable&& gradient) {
  if (recording()) return clone(gradient);
  // Not the variable: it may lead on into a graph.
  if (only_owner(gradient)) return Variable(gradient.data());
  return gradient.data().device().kind == DeviceKind::cpu ? Variable(gradient.data().copy())
                                                          : clone(gradient);
}

}  // namespace

Variables AccumulateGrad::apply(Variables&& gradients) {
  if (Recorder* recorder = thread_state().recorder)
    recorder->meets("a backward that accumulates into leaves (use grad instead)");
  Variable alive = leaf();
  Variable gradient = std::move(gradients[0]);
  if (!alive.defined() || !gradient.defined()) return {};
  Variable before = alive.grad();
  bool owned = false;
  // Another task may have added in the meantime: then add to what it left.
  for (;;) {
    if (!before.defined() && !std::exchange(owned, true)) gradient = own(std::move(gradient));
    Variable sum = before.defined() ? autograd::add(before, gradient) : gradient;
    VariableExtras& extras = alive.body()->extras();
    Ref<VariableBody> old;  // dies unlocked
    std::lock_guard guard(extras.mutex);
    if (extras.grad == before.body()) {
      old = std::exchange(extras.grad, sum.body());
      return {};
    }
    old = before.body();
    before = Variable::of(extras.grad);
  }
}

}  // namespace gradus::autograd
