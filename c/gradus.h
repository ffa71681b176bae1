/* Gradus for C, and for languages that can call C.

   One symbol is exported, gradus_get_api; all else is in the table that it gives. A table of a
   version never changes but for functions that are added behind its end: `size` says how far it
   goes. Every function that can fail returns a status and changes nothing where it fails; what went
   wrong is what `last_error` says, to this thread, until its next call. No exception gets out.

   Objects are counted inside: one that another still needs may be destroyed. Programs, codes,
   contexts and tensors may be used by any number of threads at once; a state by one at a time.
   Destroying null does nothing. Sizes are in elements, row-major, innermost last. */
#ifndef GRADUS_C_GRADUS_H
#define GRADUS_C_GRADUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADUS_API_VERSION 1u

typedef int32_t gradus_status;
enum {
  GRADUS_OK = 0,
  GRADUS_ERROR = 1,    /* the program or what it was given is wrong: the message says what to do */
  GRADUS_RESOURCE = 2, /* the machine's: no memory, a disk that is full */
  GRADUS_FAULT = 3     /* a fault of Gradus itself */
};

typedef int32_t gradus_dtype;
enum {
  GRADUS_F64 = 0,
  GRADUS_F32,
  GRADUS_F16,
  GRADUS_BF16,
  GRADUS_I64,
  GRADUS_I32,
  GRADUS_I8,
  GRADUS_U8,
  GRADUS_BOOL
};

typedef int32_t gradus_log_level;
enum { GRADUS_LOG_DEBUG = 0, GRADUS_LOG_INFO, GRADUS_LOG_WARNING };

typedef struct gradus_context gradus_context;
typedef struct gradus_program gradus_program;
typedef struct gradus_code gradus_code;
typedef struct gradus_state gradus_state;
typedef struct gradus_tensor gradus_tensor;
struct DLManagedTensorVersioned;

/* Begin with all zeros. The hooks are called on any thread, and outlive all that was made with the
   context. */
typedef struct gradus_context_options {
  size_t size;     /* sizeof(gradus_context_options) */
  int32_t workers; /* threads for one loop; 0: one per core */
  /* Memory of tensors, aligned to 64 bytes; null where there is none. Both or neither. */
  void* (*allocate)(size_t bytes, void* user);
  void (*deallocate)(void* block, size_t bytes, void* user);
  /* `message` is `length` bytes, and gone after the call. */
  void (*log)(gradus_log_level level, const char* message, size_t length, void* user);
  void* user;
} gradus_context_options;

typedef struct gradus_api {
  uint32_t version;
  size_t size;         /* of this table, in bytes */
  const char* release; /* "0.1.0" */

  const char* (*last_error)(void); /* never null */

  /* `options` may be null. */
  gradus_status (*context_create)(const gradus_context_options* options, gradus_context** context);
  void (*context_destroy)(gradus_context* context);

  /* The program of a text; `name` (may be null) is what messages call it. */
  gradus_status (*program_parse)(const char* text, const char* name, gradus_program** program);
  /* The same with derivative stages up to `order`. */
  gradus_status (*program_differentiate)(const gradus_program* program, int32_t order,
                                         gradus_program** derived);
  /* A text that is freed by `text_free`. */
  gradus_status (*program_print)(const gradus_program* program, char** text);
  void (*text_free)(char* text);
  void (*program_destroy)(gradus_program* program);

  gradus_status (*code_compile)(const gradus_program* program, gradus_code** code);
  size_t (*code_stages)(const gradus_code* code);
  /* Of a stage that there is not: 0, and null. Names live as long as the code. */
  size_t (*code_inputs)(const gradus_code* code, size_t stage);
  size_t (*code_results)(const gradus_code* code, size_t stage);
  const char* (*code_input_name)(const gradus_code* code, size_t stage, size_t input);
  const char* (*code_result_name)(const gradus_code* code, size_t stage, size_t result);
  void (*code_destroy)(gradus_code* code);

  /* Of these elements, which are copied; null: zeros. `context` may be null, here and below. */
  gradus_status (*tensor_create)(gradus_context* context, gradus_dtype dtype, size_t rank,
                                 const int64_t* shape, const void* elements,
                                 gradus_tensor** tensor);
  gradus_dtype (*tensor_dtype)(const gradus_tensor* tensor);
  size_t (*tensor_rank)(const gradus_tensor* tensor);
  const int64_t* (*tensor_shape)(const gradus_tensor* tensor);
  /* Copies the elements out, row-major; `bytes` has to be their size. */
  gradus_status (*tensor_read)(const gradus_tensor* tensor, void* elements, size_t bytes);
  /* Without copies: see tensor/dlpack.h for who owns what. */
  gradus_status (*tensor_from_dlpack)(struct DLManagedTensorVersioned* managed,
                                      gradus_tensor** tensor);
  gradus_status (*tensor_to_dlpack)(const gradus_tensor* tensor,
                                    struct DLManagedTensorVersioned** managed);
  void (*tensor_destroy)(gradus_tensor* tensor);

  gradus_status (*state_create)(const gradus_code* code, gradus_context* context,
                                gradus_state** state);
  gradus_status (*state_clone)(const gradus_state* state, gradus_state** clone);
  size_t (*state_next_stage)(const gradus_state* state);
  /* Runs the next stage. `inputs`: a tensor for each input, null for an absent cotangent.
     `results`: room for `result_count` tensors, which has to be the stage's number; null comes for
     a structural zero. */
  gradus_status (*state_run)(gradus_state* state, const gradus_tensor* const* inputs,
                             size_t input_count, gradus_tensor** results, size_t result_count);
  gradus_status (*state_save)(const gradus_state* state, const char* path);
  gradus_status (*state_resume)(const gradus_code* code, gradus_context* context, const char* path,
                                gradus_state** state);
  void (*state_destroy)(gradus_state* state);
} gradus_api;

/* Null if this library has no table of that version. The table lives for good. */
const gradus_api* gradus_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
