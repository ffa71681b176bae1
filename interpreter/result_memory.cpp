// Where results lie, and what stages leave for later ones: the caller's buffers, and a prepared
// state's memory of the round before.
#include "interpreter/plan/bind_sizes.h"
#include "interpreter/state_impl.h"

namespace gradus {

namespace {

// The bytes between a tensor's first element and the end of its last one.
std::pair<const std::byte*, const std::byte*> extent(const Tensor& t) {
  if (t.numel() == 0) return {t.data(), t.data()};
  int64_t last = 0;
  for (int d = 0; d < t.rank(); ++d) last += (t.shape()[d] - 1) * t.strides()[d];
  return {t.data(), t.data() + (last + 1) * static_cast<int64_t>(size_of(t.dtype()))};
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto [a_first, a_last] = extent(a);
  const auto [b_first, b_last] = extent(b);
  return a_first < b_last && b_first < a_last;
}

}  // namespace

void State::Impl::check_buffers(const SegmentPlan& plan, std::span<const Tensor> inputs,
                                std::span<Tensor> results) const {
  const StageCode& stage_code = code->stage(stage);
  if (results.size() != stage_code.returns.size())
    throw Error("stage {} gives {} results, {} entries are there for them", stage,
                stage_code.returns.size(), results.size());
  const interpreter::SizesByName sizes(*code, plan.sizes);
  auto refuse = [&](size_t i, const std::string& why) {
    throw Error("the buffer for result '{}' {}", code->name_of(stage_code.returns[i]), why);
  };
  bool any = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& buffer = results[i];
    const Register r = stage_code.returns[i];
    if (!buffer.defined() || r == no_register) continue;
    any = true;
    const ir::Type& type = code->type_of(r);
    bool fits = buffer.dtype() == type.dtype && buffer.rank() == type.rank();
    for (int d = 0; fits && d < type.rank(); ++d)
      fits = !type.dims[d].is_constant() || type.dims[d].value() == buffer.shape()[d];
    if (!fits) refuse(i, fmt::format("is {}, the result {}", describe(buffer), to_string(type)));
    if (buffer.device() != Device()) refuse(i, "lies on a device; give one of the host's memory");
    if (!buffer.layout().contiguous()) refuse(i, "is not contiguous");
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].defined() && overlap(buffer, inputs[k]))
        refuse(i, fmt::format("lies in the memory of input '{}'", code->input_name(stage, k)));
    auto refuse_if_read = [&](Register held) {
      if (const Tensor& t = registers[index_of(held)]; t.defined() && overlap(buffer, t))
        refuse(i, fmt::format("lies in the memory of '{}', which the stage reads",
                              code->name_of(held)));
    };
    for (Register held : plan.externals) refuse_if_read(held);
    for (Register held : stage_code.outer) refuse_if_read(held);
    // One value returned twice may lie in one buffer.
    for (size_t k = 0; k < i; ++k)
      if (results[k].defined() && overlap(buffer, results[k]) &&
          !(stage_code.returns[k] == r && buffer.same_as(results[k])))
        refuse(i, fmt::format("lies in that for '{}'", code->name_of(stage_code.returns[k])));
  }
  if (!any) return;
  for (Tensor& buffer : results)
    if (buffer.defined()) buffer.mutable_data();  // who else reads it there notices
}

void State::Impl::fill_buffer(size_t result, const Tensor& value, Tensor& buffer) const {
  if (value.same_as(buffer)) return;
  const Tensor& from = here(value);
  if (!std::ranges::equal(from.shape(), buffer.shape()))
    throw Error("the buffer for result '{}' is {}, the result {}",
                code->name_of(code->stage(stage).returns[result]), describe(buffer),
                describe(from));
  if (from.numel())
    copy_elements(from.layout(), from.data(), buffer.layout(), buffer.mutable_data());
}

Tensor State::Impl::tensor_to_leave(const Event& e) {
  if (e.result < into.size())
    if (const Tensor& buffer = into[e.result];
        buffer.defined() && !kernels.device && buffer.layout() == e.layout)
      return buffer;
  if (prepared && e.result == UINT32_MAX)
    if (Tensor spare = std::move(spare_tensors[index_of(e.reg)]);
        spare.defined() && spare.sole_owner() && spare.layout() == e.layout)
      return spare;
  return empty_there(e.layout);
}

Ref<Storage> State::Impl::block_to_leave(const SegmentPlan& plan) {
  const auto bytes = static_cast<size_t>(plan.block_bytes);
  if (prepared)
    if (Ref<Storage> spare = std::move(spare_blocks[plan.segment]);
        spare && spare->use_count() == 1 && spare->bytes() == bytes)
      return spare;
  return make_ref<Storage>(context->allocator(), bytes);
}

// Whether others have it still, clones or views, is seen when it is wanted again.
void State::Impl::let_go(Register r) {
  Tensor& t = registers[index_of(r)];
  if (prepared && t.defined() && is_left[index_of(r)]) spare_tensors[index_of(r)] = std::move(t);
  t = Tensor();
}

void State::Impl::let_block_go(size_t segment) {
  if (prepared && blocks[segment]) spare_blocks[segment] = std::move(blocks[segment]);
  blocks[segment] = nullptr;
}

}  // namespace gradus
