#include "interpreter/run/body_state.h"

#include <cstring>
#include <tuple>

#include "base/keep.h"
#include "interpreter/run/limits.h"

namespace gradus::interpreter {

namespace {

// Memory that is another's.
Tensor tensor_at(std::byte* place, const Layout& layout) {
  const auto bytes = static_cast<size_t>(layout.extent()) * size_of(layout.dtype);
  return Tensor(make_ref<Storage>(place, bytes, Device(), [] {}), layout);
}

std::shared_ptr<Context> context_here() {
  const StageRun* run = current_run();
  return run ? run->s.place.context : Context::default_context();
}

// With what has been compiled by now, and told of to the state that runs the loop.
KernelChoice choice_now(KernelChoice kernels) {
  if (kernels.mode == FusionMode::behind) kernels.set = kernels.source->ready();
  if (const StageRun* run = current_run()) {
    kernels.dump = run->s.place.kernels.dump;
    kernels.context = run->s.place.context.get();
  }
  return kernels;
}

RunOptions limits_here() {
  RunOptions options;
  if (const StageRun* run = current_run()) {
    options.deadline = run->options.deadline;
    options.cancel = run->options.cancel;
  }
  return options;
}

}  // namespace

BodyState::BodyState(std::shared_ptr<const Code> body, const KernelChoice& kernels)
    : options_(limits_here()),
      state_(Snapshot(std::move(body), {context_here(), choice_now(kernels)})) {
  if (const StageRun* run = current_run(); run && run->options.observer)
    options_.observer = &observer_.emplace(*run->options.observer, *state_.code);
}

void BodyState::run(std::span<const Layout> in, std::byte* const* inputs,
                    std::span<const Layout> out, std::byte* const* results, int64_t name,
                    uint32_t& at) {
  if (observer_) observer_->step = name;
  const bool keeps = state_.code->stage(0).opaque.size() > 0;
  std::vector<Tensor> given, made(out.size());
  for (size_t i = 0; i < in.size(); ++i) {
    given.push_back(tensor_at(inputs[i], in[i]));
    if (keeps) given.back() = given.back().copy();
  }
  for (size_t r = 0; r < out.size() && !keeps; ++r) made[r] = tensor_at(results[r], out[r]);
  state_.restart();
  StageRun run{state_, made, options_};
  try {
    run_round(run, given);
  } catch (...) {
    // Calls of ranks that have begun may still read and write here, and in memory of the state that
    // runs the loop, which tells their group.
    if (state_.code->rank_program())
      keep_for_good(std::tuple(state_.buffer, state_.registers, state_.blocks));
    at = run.at == StageRun::no_instruction ? 0 : run.at;
    throw;
  }
  for (size_t r = 0; r < out.size(); ++r) {
    if (!out[r].numel()) continue;
    if (!made[r].defined())
      std::memset(results[r], 0, bytes_of_elements(out[r]));
    else if (keeps)
      copy_elements(made[r].layout(), made[r].data(), out[r], results[r]);
  }
}

}  // namespace gradus::interpreter
