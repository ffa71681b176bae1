// States in C: how they are made, prepared and run; the caller's memory as tensors.
#include <chrono>

#include "c/objects.h"

namespace gradus::c {

namespace {

FusionMode mode_of(gradus_fusion mode) {
  using enum FusionMode;
  constexpr FusionMode by_number[] = {behind, first, off};
  if (mode < 0 || mode > GRADUS_FUSION_OFF) throw Error("{} is no mode of fusion", mode);
  return by_number[mode];
}

StateOptions state_options(const gradus_state_options* options) {
  return {.fusion = mode_of(known(options).fusion)};
}

class CObserver final : public InstructionObserver {
 public:
  explicit CObserver(const gradus_observer& hooks) : hooks_(hooks) {}
  void before(size_t stage, size_t i) override { tell(hooks_.before, stage, i); }
  void after(size_t stage, size_t i) override { tell(hooks_.after, stage, i); }
  void group(size_t stage, std::span<const uint32_t> instructions) override {
    tell(hooks_.group, stage, instructions.data(), instructions.size());
  }
  void host(size_t stage, size_t i) override { tell(hooks_.host, stage, i); }

 private:
  template <class Hook, class... Args>
  void tell(Hook hook, Args... args) {
    if (hook && hook(args..., hooks_.user) != 0) throw Error("the observer ended the run");
  }
  gradus_observer hooks_;
};

std::chrono::steady_clock::duration seconds(double n) {
  constexpr double longest = 1e9;  // what a clock can add
  if (!(n > 0)) throw Error("a timeout of {} seconds", n);
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(n, longest)));
}

}  // namespace

namespace {

// A run's tensors. Results that are null get handles, for which there is room before anything runs.
struct Tensors {
  std::vector<Tensor> in, out;
  std::vector<std::unique_ptr<gradus_tensor>> fresh;

  Tensors(const State& s, const gradus_tensor* const* inputs, size_t input_count,
          gradus_tensor** results, size_t result_count) {
    if (input_count) given(inputs, "the list of inputs");
    if (!s.finished()) {
      const size_t expected = s.code()->results(s.next_stage()).size();
      if (result_count != expected)
        throw Error("stage {} has {} results, there is room for {}", s.next_stage(), expected,
                    result_count);
      if (result_count) given(results, "the list of results");
    }
    for (size_t i = 0; i < input_count; ++i) in.push_back(inputs[i] ? inputs[i]->tensor : Tensor());
    for (size_t i = 0; i < result_count; ++i) {
      out.push_back(results[i] ? results[i]->tensor : Tensor());
      if (!results[i]) fresh.push_back(std::make_unique<gradus_tensor>());
    }
  }
  void give(std::span<const Tensor> made, gradus_tensor** results) {
    size_t used = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      if (results[i] || !made[i].defined()) continue;
      fresh[used]->tensor = made[i];
      results[i] = fresh[used++].release();
    }
  }
};

}  // namespace

void run_into(gradus_state* state, const gradus_tensor* const* inputs, size_t input_count,
              gradus_tensor** results, size_t result_count,
              const gradus_run_options* given_options) {
  State& s = given(state, "the state").state;
  const gradus_run_options o = known(given_options);
  Tensors tensors(s, inputs, input_count, results, result_count);
  RunOptions options{.copy_inputs = o.copy_inputs != 0,
                     .results_on_device = o.results_on_device != 0};
  if (o.timeout != 0) options.deadline = std::chrono::steady_clock::now() + seconds(o.timeout);
  if (o.cancel) options.cancel = &o.cancel->token;
  CObserver observer(o.observer ? *o.observer : gradus_observer{});
  if (o.observer) options.observer = &observer;
  s.run_into(tensors.in, tensors.out, options);
  tensors.give(tensors.out, results);
}

gradus_status bound_create(const gradus_state* state, const gradus_tensor* const* inputs,
                           size_t input_count, gradus_tensor** results, size_t result_count,
                           gradus_bound_run** bound) {
  return guarded([&] {
    const State& s = given(state, "the state").state;
    auto& to = given(bound, "where the bound run goes");
    Tensors tensors(s, inputs, input_count, results, result_count);
    auto made = std::make_unique<gradus_bound_run>(
        gradus_bound_run{BoundRun(s.clone(), tensors.in, tensors.out)});
    tensors.give(made->run.results(), results);
    to = made.release();
  });
}
gradus_status bound_run(gradus_bound_run* bound) {
  return guarded([&] { given(bound, "the bound run").run.run(); });
}
void bound_destroy(gradus_bound_run* bound) { delete bound; }

gradus_status tensor_wrap(gradus_dtype dtype, size_t rank, const int64_t* shape, void* elements,
                          void (*release)(void* elements, void* user), void* user,
                          gradus_tensor** tensor) {
  return guarded([&] {
    Layout layout = layout_of(dtype, rank, shape);
    auto& out = given(tensor, "where the tensor goes");
    const size_t item = size_of(layout.dtype);
    const size_t bytes = static_cast<size_t>(layout.numel()) * item;
    if (bytes && !elements) throw Error("the elements are null");
    if (reinterpret_cast<uintptr_t>(elements) % item != 0)
      throw Error("the elements are not aligned to their {} bytes", item);
    auto made = std::make_unique<gradus_tensor>();
    // The memory is let go of only by a tensor that was given out.
    auto owned = std::make_shared<bool>(false);
    auto storage = make_ref<Storage>(elements, bytes, Device(), [owned, elements, release, user] {
      if (*owned && release) release(elements, user);
    });
    made->tensor = Tensor(std::move(storage), std::move(layout));
    check_bools(made->tensor);
    *owned = true;
    out = made.release();
  });
}

gradus_status state_create_with(const gradus_code* code, gradus_context* context,
                                const gradus_state_options* options, gradus_state** state) {
  return guarded([&] {
    given(state, "where the state goes") = new gradus_state{
        State(given(code, "the code").code, context_of(context), state_options(options))};
  });
}

gradus_status state_resume_with(const gradus_code* code, gradus_context* context, const char* path,
                                const gradus_state_options* options, gradus_state** state) {
  return guarded([&] {
    auto& out = given(state, "where the state goes");
    out = new gradus_state{State::resume(given(code, "the code").code, &given(path, "the path"),
                                         context_of(context), state_options(options))};
  });
}

gradus_status state_prepare(gradus_state* state, const gradus_dimension* sizes, size_t size_count,
                            gradus_stage_memory* stages, size_t stage_count) {
  return guarded([&] {
    State& s = given(state, "the state").state;
    if (stage_count && stage_count != s.code()->stages())
      throw Error("the code has {} stages, there is room for {}", s.code()->stages(), stage_count);
    if (stage_count) given(stages, "where the stages' memory goes");
    const std::vector<StageMemory> memory = s.prepare(sizes_of(sizes, size_count));
    for (size_t i = 0; i < stage_count; ++i)
      stages[i] = {memory[i].buffer, memory[i].held, memory[i].results};
  });
}

gradus_status state_restart(gradus_state* state) {
  return guarded([&] { given(state, "the state").state.restart(); });
}

gradus_status state_run_into(gradus_state* state, const gradus_tensor* const* inputs,
                             size_t input_count, gradus_tensor** results, size_t result_count,
                             const gradus_run_options* options) {
  return guarded([&] { run_into(state, inputs, input_count, results, result_count, options); });
}

size_t state_whole_stages(const gradus_state* state, size_t* stages, size_t room) {
  size_t n = 0;
  guarded([&] {
    for (const WholeStage& whole : given(state, "the state").state.whole_stages()) {
      if (n < room) stages[n] = whole.stage;
      ++n;
    }
  });
  return n;
}

gradus_status cancel_create(gradus_cancel** cancel) {
  return guarded([&] { given(cancel, "where the token goes") = new gradus_cancel; });
}
void cancel_set(gradus_cancel* cancel) {
  if (cancel) cancel->token.cancel();
}
void cancel_destroy(gradus_cancel* cancel) { delete cancel; }

}  // namespace gradus::c
