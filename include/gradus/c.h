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
  GRADUS_BOOL,
  GRADUS_I16,
  GRADUS_U16,
  GRADUS_U32,
  GRADUS_U64
};

typedef int32_t gradus_log_level;
enum { GRADUS_LOG_DEBUG = 0, GRADUS_LOG_INFO, GRADUS_LOG_WARNING };

typedef struct gradus_context gradus_context;
typedef struct gradus_program gradus_program;
typedef struct gradus_code gradus_code;
typedef struct gradus_state gradus_state;
typedef struct gradus_tensor gradus_tensor;
typedef struct gradus_cancel gradus_cancel;
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

/* The options below begin with all zeros, too, which are the defaults, and with `size`, their own
   size in bytes. A later release may know more of them. A null pointer means the defaults. */

/* The size of a named dimension. */
typedef struct gradus_dimension {
  const char* name;
  int64_t size;
} gradus_dimension;

typedef struct gradus_differentiate_options {
  size_t size;
  int32_t order;          /* stages 0 to `order` will be there */
  const char* const* wrt; /* inputs of stage 0 to differentiate by; null: all floating ones */
  size_t wrt_count;
  int32_t total;       /* not 0: a cotangent for every result of every earlier stage */
  int32_t inputs_only; /* not 0: earlier cotangents are not differentiated */
} gradus_differentiate_options;

typedef struct gradus_compile_options {
  size_t size;
  /* How many bytes may be held between stages, for inputs of these sizes: later stages compute
     again what would be more, to the same bits. Null: as many as there are. */
  const int64_t* memory_budget;
  const gradus_dimension* sizes; /* of all dimensions that inputs have */
  size_t size_count;
  /* Called after each pass over the program, with its text then, which is gone after the call. */
  void (*dump)(const char* pass, const char* text, void* user);
  void* user;
} gradus_compile_options;

/* Which stages of known sizes are compiled as one function each. */
typedef int32_t gradus_whole_stages;
enum { GRADUS_WHOLE_STAGES_SMALL = 0, GRADUS_WHOLE_STAGES_OFF, GRADUS_WHOLE_STAGES_ALWAYS };

/* Of compiled kernels: see KernelOptions in fusion/kernels.h. */
typedef struct gradus_kernel_options {
  size_t size;
  const char* folder;         /* keeps compiled code for other processes; null: none */
  uint64_t most_folder_bytes; /* 0: 256 MiB */
  size_t most_kernels;        /* kept in memory; 0: 1024 */
  uint32_t vector_bits;       /* 128, 256, 512; 0: the widest there are */
  int32_t always;             /* not 0: kernels also where they are not worth it */
  gradus_whole_stages whole_stages;
  int32_t symbols; /* not 0: kernels are named for gdb and perf */
  int32_t atomics; /* not 0: on a device, sums over indices in no fixed order */
} gradus_kernel_options;

typedef struct gradus_kernel_statistics {
  uint64_t hits, misses, loaded, evicted, failed, dropped, waiting, kernels;
  double seconds; /* spent compiling */
} gradus_kernel_statistics;

/* How pointwise instructions and reductions run; the bits are the same. */
typedef int32_t gradus_fusion;
enum {
  GRADUS_FUSION_BEHIND = 0, /* kernels are compiled behind the runs, for states made later */
  GRADUS_FUSION_FIRST,      /* before a stage first runs */
  GRADUS_FUSION_OFF
};

typedef struct gradus_state_options {
  size_t size;
  gradus_fusion fusion;
} gradus_state_options;

/* What a run of a stage takes, in bytes, beside its inputs and what earlier stages have left. */
typedef struct gradus_stage_memory {
  uint64_t buffer; /* values that stay inside; the state has one buffer, the largest */
  uint64_t held;   /* left for later stages alone */
  uint64_t results;
} gradus_stage_memory;

/* Told of each instruction by number, on the thread that runs. What gives anything but 0 ends the
   run with an error, and the state is poisoned. */
typedef struct gradus_observer {
  int32_t (*before)(size_t stage, size_t instruction, void* user); /* each may be null */
  int32_t (*after)(size_t stage, size_t instruction, void* user);
  /* Before the last of instructions that run as one kernel. */
  int32_t (*group)(size_t stage, const uint32_t* instructions, size_t count, void* user);
  /* Before an instruction that a device has no code for: the host does it. */
  int32_t (*host)(size_t stage, size_t instruction, void* user);
  void* user;
} gradus_observer;

typedef struct gradus_run_options {
  size_t size;
  double timeout;              /* in seconds from now; 0: none */
  const gradus_cancel* cancel; /* may be null; lives as long as the run */
  const gradus_observer* observer;
  int32_t copy_inputs;       /* not 0: inputs that later stages read are copied */
  int32_t results_on_device; /* not 0: results stay where the state runs */
} gradus_run_options;

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
  /* Without copies: see gradus/dlpack.h for who owns what. */
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

  /* From here on: added behind the first table. */

  /* Begins anew with these kernels. States that are there keep what they have. */
  gradus_status (*context_set_kernels)(gradus_context* context,
                                       const gradus_kernel_options* options);
  gradus_status (*context_kernel_statistics)(gradus_context* context,
                                             gradus_kernel_statistics* statistics);
  /* Returns when nothing is waiting to be compiled. */
  gradus_status (*context_wait_for_kernels)(gradus_context* context);
  /* New states run on the CUDA device of that number, but for those without fusion. */
  gradus_status (*context_use_cuda)(gradus_context* context, int32_t device,
                                    const gradus_kernel_options* options);

  gradus_status (*program_derive)(const gradus_program* program,
                                  const gradus_differentiate_options* options,
                                  gradus_program** derived);
  gradus_status (*code_compile_with)(const gradus_program* program,
                                     const gradus_compile_options* options, gradus_code** code);

  /* A tensor in the caller's memory, row-major and aligned to its elements. `release` (may be null)
     is called once nothing reads or writes it any more, on any thread; not where this fails. */
  gradus_status (*tensor_wrap)(gradus_dtype dtype, size_t rank, const int64_t* shape,
                               void* elements, void (*release)(void* elements, void* user),
                               void* user, gradus_tensor** tensor);

  gradus_status (*state_create_with)(const gradus_code* code, gradus_context* context,
                                     const gradus_state_options* options, gradus_state** state);
  gradus_status (*state_resume_with)(const gradus_code* code, gradus_context* context,
                                     const char* path, const gradus_state_options* options,
                                     gradus_state** state);
  /* Plans and compiles all stages for inputs of these sizes: runs on such inputs then plan and
     compile nothing, take no lock, and (by state_run_into) call no allocator. What each stage takes
     is written to `stages`, room for `stage_count`, which has to be the code's number; both may be
     zero. An error unless the state is before stage 0. */
  gradus_status (*state_prepare)(gradus_state* state, const gradus_dimension* sizes,
                                 size_t size_count, gradus_stage_memory* stages,
                                 size_t stage_count);
  /* Back to before stage 0. Cures poisoning. */
  gradus_status (*state_restart)(gradus_state* state);
  /* As state_run, but a tensor that stands among the results is a buffer (contiguous, of the
     result's dtype and sizes, in the host's memory), and holds the result afterwards. Null is
     filled as by state_run. What the stage reads may not lie in a buffer; a result that later
     stages read is the state's until they ran. */
  gradus_status (*state_run_into)(gradus_state* state, const gradus_tensor* const* inputs,
                                  size_t input_count, gradus_tensor** results, size_t result_count,
                                  const gradus_run_options* options);
  /* The stages that ran last as one function each: how many there are, of which the first `room`
     are written to `stages`. */
  size_t (*state_whole_stages)(const gradus_state* state, size_t* stages, size_t room);

  /* Ends the runs that have it, between instructions and from any thread, for good. */
  gradus_status (*cancel_create)(gradus_cancel** cancel);
  void (*cancel_set)(gradus_cancel* cancel);
  void (*cancel_destroy)(gradus_cancel* cancel);

  /* The program of a file: a text, or a model, whose weights are inputs of stage 0. */
  gradus_status (*program_load)(const char* path, gradus_program** program);
  /* The value that the file has for an input, as a tensor of the caller's; null where it has none.
     What is derived from the program has it, too. */
  gradus_status (*program_weight)(const gradus_program* program, const char* input,
                                  gradus_tensor** tensor);
} gradus_api;

/* Null if this library has no table of that version. The table lives for good. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const gradus_api*
gradus_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
