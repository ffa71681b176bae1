#include "interpreter/run/state_data.h"

namespace gradus::interpreter {

Snapshot::Snapshot(std::shared_ptr<const Code> c, Place p)
    : code(std::move(c)), place(std::move(p)) {
  registers.resize(code->registers());
  if (code->has_handles()) handles.resize(code->registers());
  versions.resize(code->registers());
  plans.resize(code->segments());
  blocks.resize(code->segments());
}

StateData::StateData(Snapshot snapshot) : Snapshot(std::move(snapshot)) {
  frames.resize(code->segments());
}

void StateData::join_stream() {
  if (place.on_host()) return;
  devices::Backend& backend = *place.kernels.backend;
  if (backend.stream() == place.stream) return;
  const auto before = std::exchange(place.stream, backend.stream());
  backend.wait(place.stream, backend.mark(before));
  for (const Tensor& t : registers)
    if (t.defined()) place.record_use(t.storage());
  place.record_use(buffer);
}

// Of a large program few registers hold anything: what segments begin with, and what the events of
// their plans leave.
void StateData::restart() {
  auto let_go = [&](Register r) {
    if (r != no_register && registers[index_of(r)].defined())
      left.let_go(r, registers[index_of(r)]);
  };
  for (size_t n = 0; n < plans.size(); ++n) {
    for (Register r : inputs_of(*code, n)) let_go(r);
    if (plans[n])
      for (const Event& e : plans[n]->events) let_go(e.reg);
  }
  for (auto& h : handles) h = nullptr;
  for (size_t s = 0; s < blocks.size(); ++s) left.let_block_go(s, blocks[s]);
  stage = 0;
  poisoned = false;
  poison.clear();
}

void StateData::release_all() {
  for (Tensor& t : registers) t = Tensor();
  for (auto& h : handles) h = nullptr;
  for (SegmentFrame& f : frames) f = SegmentFrame();
  for (auto& b : blocks) b = nullptr;
  for (Tensor& t : left.tensors) t = Tensor();
  for (auto& b : left.blocks) b = nullptr;
  buffer = nullptr;
}

}  // namespace gradus::interpreter
