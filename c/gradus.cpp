#include <cstring>

#include "c/objects.h"
#include "gradus/c.h"
#include "gradus/device_streams.h"
#include "gradus/dlpack.h"
#include "gradus/import.h"
#include "gradus/text.h"
#include "gradus/version.h"

namespace gradus::c {

namespace {

class HookAllocator final : public Allocator {
 public:
  explicit HookAllocator(const gradus_context_options& o) : hooks_(o) {}
  void* allocate(size_t bytes) override {
    void* block = hooks_.allocate(bytes, hooks_.user);
    if (!block) throw ResourceError("the allocator has no memory for {} bytes", bytes);
    if (reinterpret_cast<uintptr_t>(block) % alignment != 0) {
      hooks_.deallocate(block, bytes, hooks_.user);
      throw Error("the allocator gave a block that is not aligned to {} bytes", alignment);
    }
    return block;
  }
  void deallocate(void* block, size_t bytes) noexcept override {
    hooks_.deallocate(block, bytes, hooks_.user);
  }

 private:
  gradus_context_options hooks_;
};

gradus_status context_create(const gradus_context_options* options, gradus_context** context) {
  return guarded([&] {
    given(context, "where the context goes");
    ContextOptions o;
    if (options) {
      if (options->size < sizeof(gradus_context_options))
        throw Error("the options are {} bytes, they have {}: set `size`", options->size,
                    sizeof(gradus_context_options));
      if (!options->allocate != !options->deallocate)
        throw Error("allocate and deallocate go together");
      if (options->workers < 0) throw Error("{} workers were asked for", options->workers);
      o.workers = options->workers;
      if (options->allocate) o.allocator = std::make_shared<HookAllocator>(*options);
      if (options->log)
        o.log = [log = options->log, user = options->user](LogLevel level, std::string_view text) {
          log(static_cast<gradus_log_level>(level), text.data(), text.size(), user);
        };
    }
    *context = new gradus_context{std::make_shared<Context>(std::move(o))};
  });
}
void context_destroy(gradus_context* context) { delete context; }

gradus_status program_parse(const char* text, const char* name, gradus_program** program) {
  return guarded([&] {
    ir::Module module = ir::parse(&given(text, "the text"), name ? name : "");
    given(program, "where the program goes") = new gradus_program{module.graphs[module.main]};
  });
}
gradus_status program_load(const char* path, gradus_program** program) {
  return guarded([&] {
    ImportedProgram file = import_program(&given(path, "the path"));
    given(program, "where the program goes") =
        new gradus_program{file.module.graphs[file.module.main], std::move(file.weights)};
  });
}
gradus_status program_weight(const gradus_program* program, const char* input,
                             gradus_tensor** tensor) {
  return guarded([&] {
    const NamedTensors& weights = given(program, "the program").weights;
    auto it = weights.find(&given(input, "the name of an input"));
    given(tensor, "where the tensor goes") =
        it == weights.end() ? nullptr : new gradus_tensor{it->second};
  });
}
gradus_status program_differentiate(const gradus_program* program, int32_t order,
                                    gradus_program** derived) {
  const gradus_differentiate_options options{.size = sizeof(options), .order = order};
  return program_derive(program, &options, derived);
}
gradus_status program_print(const gradus_program* program, char** text) {
  return guarded([&] {
    std::string printed = ir::print(*given(program, "the program").graph);
    auto& out = given(text, "where the text goes");
    out = new char[printed.size() + 1];
    std::memcpy(out, printed.c_str(), printed.size() + 1);
  });
}
void text_free(char* text) { delete[] text; }
void program_destroy(gradus_program* program) { delete program; }

gradus_status code_compile(const gradus_program* program, gradus_code** code) {
  return code_compile_with(program, nullptr, code);
}
size_t code_stages(const gradus_code* code) { return code ? code->code->stages() : 0; }
bool has_stage(const gradus_code* code, size_t stage) { return stage < code_stages(code); }
size_t code_inputs(const gradus_code* code, size_t stage) {
  return has_stage(code, stage) ? code->code->inputs(stage) : 0;
}
size_t code_results(const gradus_code* code, size_t stage) {
  return has_stage(code, stage) ? code->code->results(stage).size() : 0;
}
const char* code_input_name(const gradus_code* code, size_t stage, size_t input) {
  return input < code_inputs(code, stage) ? code->code->input_name(stage, input).c_str() : nullptr;
}
const char* code_result_name(const gradus_code* code, size_t stage, size_t result) {
  return result < code_results(code, stage) ? code->code->results(stage)[result].name.c_str()
                                            : nullptr;
}
void code_destroy(gradus_code* code) { delete code; }

gradus_status tensor_create(gradus_context* context, gradus_dtype dtype, size_t rank,
                            const int64_t* shape, const void* elements, gradus_tensor** tensor) {
  return guarded([&] {
    const Layout layout = layout_of(dtype, rank, shape);
    auto& out = given(tensor, "where the tensor goes");
    Tensor t = Tensor::empty(layout.dtype, layout.shape, *context_of(context));
    auto bytes = static_cast<size_t>(t.numel()) * size_of(t.dtype());
    if (bytes && elements) std::memcpy(t.mutable_data(), elements, bytes);
    if (bytes && !elements) std::memset(t.mutable_data(), 0, bytes);
    check_bools(t);
    out = new gradus_tensor{std::move(t)};
  });
}
gradus_dtype tensor_dtype(const gradus_tensor* t) {
  return static_cast<gradus_dtype>(t->tensor.dtype());
}
size_t tensor_rank(const gradus_tensor* t) { return t->tensor.shape().size(); }
const int64_t* tensor_shape(const gradus_tensor* t) { return t->tensor.shape().data(); }
gradus_status tensor_read(const gradus_tensor* tensor, void* elements, size_t bytes) {
  return guarded([&] {
    const autograd::Variable v(given(tensor, "the tensor").tensor);
    const Tensor t = autograd::move_to(v, Device()).data().contiguous();
    auto there = static_cast<size_t>(t.numel()) * size_of(t.dtype());
    if (bytes != there) throw Error("the tensor has {} bytes, {} are asked for", there, bytes);
    if (bytes) std::memcpy(elements, t.data(), bytes);
  });
}
gradus_status tensor_from_dlpack(DLManagedTensorVersioned* managed, gradus_tensor** tensor) {
  return guarded([&] {
    auto& out = given(tensor, "where the tensor goes");
    auto made = std::make_unique<gradus_tensor>();  // what is taken cannot be given back
    made->tensor = from_dlpack(managed);
    out = made.release();
  });
}
gradus_status tensor_to_dlpack(const gradus_tensor* tensor, DLManagedTensorVersioned** managed) {
  return guarded([&] {
    given(managed, "where the struct goes") = to_dlpack(given(tensor, "the tensor").tensor);
  });
}
void tensor_destroy(gradus_tensor* tensor) { delete tensor; }

gradus_status state_create(const gradus_code* code, gradus_context* context, gradus_state** state) {
  return state_create_with(code, context, nullptr, state);
}
gradus_status state_clone(const gradus_state* state, gradus_state** clone) {
  return guarded([&] {
    given(clone, "where the state goes") =
        new gradus_state{given(state, "the state").state.clone()};
  });
}
size_t state_next_stage(const gradus_state* state) { return state->state.next_stage(); }
gradus_status state_run(gradus_state* state, const gradus_tensor* const* inputs, size_t input_count,
                        gradus_tensor** results, size_t result_count) {
  return guarded([&] {
    // What stands in the list is not looked at.
    std::vector<gradus_tensor*> fresh(result_count);
    run_into(state, inputs, input_count, results ? fresh.data() : nullptr, result_count, nullptr);
    std::copy(fresh.begin(), fresh.end(), results);
  });
}
gradus_status state_save(const gradus_state* state, const char* path) {
  return guarded([&] { given(state, "the state").state.save(&given(path, "the path")); });
}
gradus_status state_resume(const gradus_code* code, gradus_context* context, const char* path,
                           gradus_state** state) {
  return state_resume_with(code, context, path, nullptr, state);
}
void state_destroy(gradus_state* state) { delete state; }

constexpr gradus_api api{
    .version = GRADUS_API_VERSION,
    .size = sizeof(gradus_api),
    .release = GRADUS_VERSION,
    .last_error = last_error,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .program_parse = program_parse,
    .program_differentiate = program_differentiate,
    .program_print = program_print,
    .text_free = text_free,
    .program_destroy = program_destroy,
    .code_compile = code_compile,
    .code_stages = code_stages,
    .code_inputs = code_inputs,
    .code_results = code_results,
    .code_input_name = code_input_name,
    .code_result_name = code_result_name,
    .code_destroy = code_destroy,
    .tensor_create = tensor_create,
    .tensor_dtype = tensor_dtype,
    .tensor_rank = tensor_rank,
    .tensor_shape = tensor_shape,
    .tensor_read = tensor_read,
    .tensor_from_dlpack = tensor_from_dlpack,
    .tensor_to_dlpack = tensor_to_dlpack,
    .tensor_destroy = tensor_destroy,
    .state_create = state_create,
    .state_clone = state_clone,
    .state_next_stage = state_next_stage,
    .state_run = state_run,
    .state_save = state_save,
    .state_resume = state_resume,
    .state_destroy = state_destroy,
    .context_set_kernels = context_set_kernels,
    .context_kernel_statistics = context_kernel_statistics,
    .context_wait_for_kernels = context_wait_for_kernels,
    .context_use_cuda = context_use_cuda,
    .program_derive = program_derive,
    .code_compile_with = code_compile_with,
    .tensor_wrap = tensor_wrap,
    .state_create_with = state_create_with,
    .state_resume_with = state_resume_with,
    .state_prepare = state_prepare,
    .state_restart = state_restart,
    .state_run_into = state_run_into,
    .state_whole_stages = state_whole_stages,
    .cancel_create = cancel_create,
    .cancel_set = cancel_set,
    .cancel_destroy = cancel_destroy,
    .program_load = program_load,
    .program_weight = program_weight,
    .bound_create = bound_create,
    .bound_run = bound_run,
    .bound_destroy = bound_destroy,
};

}  // namespace

}  // namespace gradus::c

const gradus_api* gradus_get_api(uint32_t version) {
  return version == GRADUS_API_VERSION ? &gradus::c::api : nullptr;
}
