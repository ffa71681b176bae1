// What stands behind the handles of the C interface, and how its functions fail.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "gradus/c.h"
#include "gradus/error.h"
#include "gradus/files.h"
#include "gradus/state.h"

struct gradus_context {
  std::shared_ptr<gradus::Context> context;
};
struct gradus_program {
  std::shared_ptr<const gradus::ir::Graph> graph;
  gradus::NamedTensors weights = {};  // of the file that it is from
};
struct gradus_code {
  std::shared_ptr<const gradus::Code> code;
};
struct gradus_state {
  gradus::State state;
};
struct gradus_tensor {
  gradus::Tensor tensor;
};
struct gradus_bound_run {
  gradus::BoundRun run;
};
struct gradus_cancel {
  gradus::CancelToken token;
};

namespace gradus::c {

// This thread's message.
void set_message(const char* text) noexcept;
const char* last_error();

// What `body` throws, as a status.
template <class F>
gradus_status guarded(F body) noexcept {
  try {
    body();
    set_message("");
    return GRADUS_OK;
  } catch (const Error& e) {
    set_message(e.what());
    return GRADUS_ERROR;
  } catch (const ResourceError& e) {
    set_message(e.what());
    return GRADUS_RESOURCE;
  } catch (const std::bad_alloc&) {
    set_message("out of memory");
    return GRADUS_RESOURCE;
  } catch (const std::exception& e) {
    set_message(e.what());
    return GRADUS_FAULT;
  } catch (...) {
    set_message("an exception of an unknown type");
    return GRADUS_FAULT;
  }
}

template <class T>
T& given(T* object, const char* what) {
  if (!object) throw Error("{} is null", what);
  return *object;
}

inline const std::shared_ptr<Context>& context_of(const gradus_context* context) {
  return context ? context->context : Context::default_context();
}

// A row-major layout. Throws Error for what is none.
Layout layout_of(gradus_dtype dtype, size_t rank, const int64_t* shape);
// Throws Error where an element of a bool tensor is neither 0 nor 1.
void check_bools(const Tensor& tensor);

DimSizes sizes_of(const gradus_dimension* sizes, size_t count);

// state_run_into, throwing.
void run_into(gradus_state* state, const gradus_tensor* const* inputs, size_t input_count,
              gradus_tensor** results, size_t result_count, const gradus_run_options* options);

// A function of the table, declared as the table has it.
template <class Member>
using Function = std::remove_pointer_t<Member>;

// Functions with options: options.cpp.
Function<decltype(gradus_api::context_set_kernels)> context_set_kernels;
Function<decltype(gradus_api::context_kernel_statistics)> context_kernel_statistics;
Function<decltype(gradus_api::context_wait_for_kernels)> context_wait_for_kernels;
Function<decltype(gradus_api::context_use_cuda)> context_use_cuda;
Function<decltype(gradus_api::program_derive)> program_derive;
Function<decltype(gradus_api::code_compile_with)> code_compile_with;

// Of tensors and states: run.cpp.
Function<decltype(gradus_api::tensor_wrap)> tensor_wrap;
Function<decltype(gradus_api::state_create_with)> state_create_with;
Function<decltype(gradus_api::state_resume_with)> state_resume_with;
Function<decltype(gradus_api::state_prepare)> state_prepare;
Function<decltype(gradus_api::state_restart)> state_restart;
Function<decltype(gradus_api::state_run_into)> state_run_into;
Function<decltype(gradus_api::bound_create)> bound_create;
Function<decltype(gradus_api::bound_run)> bound_run;
Function<decltype(gradus_api::bound_destroy)> bound_destroy;
Function<decltype(gradus_api::state_whole_stages)> state_whole_stages;
Function<decltype(gradus_api::cancel_create)> cancel_create;
Function<decltype(gradus_api::cancel_set)> cancel_set;
Function<decltype(gradus_api::cancel_destroy)> cancel_destroy;

// Options that say how large they are: those that the caller knows, the rest zeros. Throws Error
// for one that is set and only a later release knows.
template <class Options>
Options known(const Options* options) {
  Options all{};
  if (!options) return all;
  const size_t size = options->size;
  if (size < sizeof(size)) throw Error("the options are {} bytes: set `size`", size);
  const auto* bytes = reinterpret_cast<const std::byte*>(options);
  for (size_t i = sizeof(all); i < size; ++i)
    if (bytes[i] != std::byte{0})
      throw Error(
          "an option is set that this release does not know: the options are {} bytes, {} "
          "are known",
          size, sizeof(all));
  std::memcpy(&all, options, std::min(size, sizeof(all)));
  return all;
}

}  // namespace gradus::c
