#include "interpreter/run/memory.h"

namespace gradus::interpreter {

void Place::record_use(const Ref<Storage>& memory) const {
  if (memory && memory->device() == kernels.place())
    kernels.backend->record_use(memory->data(), stream);
}

Ref<Storage> Place::memory(size_t bytes) const {
  return on_host() ? make_ref<Storage>(context->allocator(), bytes)
                   : devices::device_storage(kernels.backend, bytes);
}

Tensor Place::empty(const Layout& layout) const {
  return on_host() ? Tensor::empty(layout.dtype, layout.shape, *context)
                   : devices::device_tensor(kernels.backend, layout);
}

Tensor Place::copy_of(const Tensor& t) const {
  Tensor copy = Tensor::empty(t.dtype(), t.shape(), *context);
  if (t.numel()) copy_elements(t.layout(), t.data(), copy.layout(), copy.mutable_data());
  return copy;
}

Tensor Place::there(const Tensor& t, bool exactly) const {
  if (on_host() || !t.defined() || t.device() != Device()) return t;
  return devices::to_device(kernels.backend, t, exactly);
}

Tensor Place::here(const Tensor& t) const {
  return on_host() ? t : devices::to_host(*kernels.backend, t, *context);
}

void LeftMemory::prepare(std::span<const std::shared_ptr<const SegmentPlan>> plans,
                         size_t registers) {
  prepared = true;
  is_left.assign(registers, false);
  for (const auto& plan : plans)
    for (const Event& e : plan->events)
      if (e.kind == Event::Kind::allocate && e.result == UINT32_MAX)
        is_left[index_of(e.reg)] = true;
  tensors.assign(registers, Tensor());
  blocks.assign(plans.size(), nullptr);
}

LeftMemory LeftMemory::without_memory() const {
  return {prepared, is_left, std::vector<Tensor>(tensors.size()),
          std::vector<Ref<Storage>>(blocks.size())};
}

Tensor LeftMemory::take_tensor(const Event& e, const Place& place) {
  if (prepared && e.result == UINT32_MAX)
    if (Tensor spare = std::move(tensors[index_of(e.reg)]);
        spare.defined() && spare.sole_owner() && spare.layout() == e.layout)
      return spare;
  return place.empty(e.layout);
}

Ref<Storage> LeftMemory::take_block(const SegmentPlan& plan, const Place& place) {
  const auto bytes = static_cast<size_t>(plan.block_bytes);
  if (prepared)
    if (Ref<Storage> spare = std::move(blocks[plan.segment]);
        spare && spare->use_count() == 1 && spare->bytes() == bytes)
      return spare;
  return make_ref<Storage>(place.context->allocator(), bytes);
}

// Whether others have it still, clones or views, is seen when it is wanted again.
void LeftMemory::let_go(Register r, Tensor& tensor) {
  if (prepared && tensor.defined() && is_left[index_of(r)])
    tensors[index_of(r)] = std::move(tensor);
  tensor = Tensor();
}

void LeftMemory::let_block_go(size_t segment, Ref<Storage>& block) {
  if (prepared && block) blocks[segment] = std::move(block);
  block = nullptr;
}

}  // namespace gradus::interpreter
