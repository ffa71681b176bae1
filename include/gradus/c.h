/* The C interface of Gradus, also for other languages that can call C functions.

   The library exports one C function, gradus_get_api. It returns a table of functions. Later
   releases only add functions at the end of the table of a version; `size` is the size of the
   table. Every function that can fail returns a status. If it fails, it changes nothing, except
   that an instruction that fails poisons its state. `last_error` then returns the message, until
   the next call of the same thread. No function throws an exception.

   Objects have reference counts: an object that another object needs may be destroyed. Programs,
   codes, contexts and tensors may be used by several threads at the same time, a state by one
   thread at a time. Destroying null does nothing. Sizes count elements. Memory is row-major: the
   last dimension is contiguous. */
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
  GRADUS_ERROR = 1,    /* the program or an argument is wrong; the message says how to correct it */
  GRADUS_RESOURCE = 2, /* the machine lacks a resource: no memory, a full disk */
  GRADUS_FAULT = 3     /* a defect of Gradus */
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
typedef struct gradus_bound_run gradus_bound_run;
struct DLManagedTensorVersioned;

/* Set the struct to zeros first. The hooks are called on any thread. They must outlive all objects
   that were made with the context. */
typedef struct gradus_context_options {
  size_t size;     /* sizeof(gradus_context_options) */
  int32_t workers; /* threads of one loop, including the caller; 0: one per core */
  /* The allocator of tensors. Blocks must be aligned to 64 bytes. `allocate` returns null if there
     is no memory. Set both functions or neither. */
  void* (*allocate)(size_t bytes, void* user);
  void (*deallocate)(void* block, size_t bytes, void* user);
  /* `message` has `length` bytes and is valid during the call. */
  void (*log)(gradus_log_level level, const char* message, size_t length, void* user);
  void* user; /* passed to the hooks */
} gradus_context_options;

/* Set each of the options structs below to zeros, which are the defaults, and `size` to the size of
   the struct in bytes. Later releases may add members. A null pointer selects the defaults. */

/* The size of a named dimension. */
typedef struct gradus_dimension {
  const char* name;
  int64_t size;
} gradus_dimension;

/* Options of program_derive. */
typedef struct gradus_differentiate_options {
  size_t size;
  int32_t order;          /* the last stage of the result */
  const char* const* wrt; /* inputs of stage 0, or null: all floating inputs */
  size_t wrt_count;
  int32_t total;       /* not 0: a cotangent for every result of every earlier stage */
  int32_t inputs_only; /* not 0: only with respect to inputs, not to earlier cotangents */
} gradus_differentiate_options;

/* Options of code_compile_with. */
typedef struct gradus_compile_options {
  size_t size;
  /* Limit of the bytes that are held between stages, for inputs of these sizes. Later stages
     recompute values to keep the limit; results are bit-identical. Null: no limit. */
  const int64_t* memory_budget;
  const gradus_dimension* sizes; /* the sizes of all dimensions of inputs */
  size_t size_count;
  /* Called after each pass, with the program's text. `text` is valid during the call. */
  void (*dump)(const char* pass, const char* text, void* user);
  void* user; /* passed to `dump` */
  /* Not 0: exp, tanh, sigmoid and silu within 4 ulp of f32, see CompileOptions in gradus/code.h. */
  int32_t fast_functions;
} gradus_compile_options;

/* Which stages of known sizes are compiled into one function each. */
typedef int32_t gradus_whole_stages;
enum { GRADUS_WHOLE_STAGES_SMALL = 0, GRADUS_WHOLE_STAGES_OFF, GRADUS_WHOLE_STAGES_ALWAYS };

/* Options of compiled kernels, see KernelOptions in gradus/kernels.h. */
typedef struct gradus_kernel_options {
  size_t size;
  const char* folder;         /* stores compiled code for other processes; null: not stored */
  uint64_t most_folder_bytes; /* 0: 256 MiB */
  size_t most_kernels;        /* limit of kernels; 0: 1024 */
  uint32_t vector_bits;       /* 128, 256 or 512; 0: the widest of the machine */
  int32_t always;             /* not 0: kernels also where they are not worth it */
  gradus_whole_stages whole_stages;
  int32_t symbols; /* not 0: names kernels for gdb and perf */
  int32_t atomics; /* not 0: on a device, sums over indices in no fixed order */
} gradus_kernel_options;

/* Counts since the options of the context's kernels were set, see KernelStatistics in
   gradus/kernels.h. */
typedef struct gradus_kernel_statistics {
  uint64_t hits, misses, loaded, evicted, failed, dropped, waiting, kernels;
  double seconds; /* time spent compiling */
} gradus_kernel_statistics;

/* How pointwise instructions and row reductions run. The results are bit-identical in every
   mode. */
typedef int32_t gradus_fusion;
enum {
  GRADUS_FUSION_BEHIND = 0, /* kernels are compiled in the background, for later states */
  GRADUS_FUSION_FIRST,      /* kernels are compiled before the first run of a stage */
  GRADUS_FUSION_OFF
};

/* Options of state_create_with and state_resume_with. */
typedef struct gradus_state_options {
  size_t size;
  gradus_fusion fusion;
} gradus_state_options;

/* The memory that a run of a stage allocates, in bytes. Inputs and values held by earlier stages
   are not counted. */
typedef struct gradus_stage_memory {
  /* Values that only this stage uses; a state has one buffer, of its largest stage. */
  uint64_t buffer;
  uint64_t held;    /* values that only later stages read */
  uint64_t results; /* returned values, including those that later stages read */
} gradus_stage_memory;

/* Is notified of every instruction, by stage and index, on the thread that runs. A function that
   returns a value other than 0 ends the run with an error, and the state is poisoned. */
typedef struct gradus_observer {
  int32_t (*before)(size_t stage, size_t instruction, void* user); /* each function may be null */
  int32_t (*after)(size_t stage, size_t instruction, void* user);
  /* Called before the last instruction of a group that runs as one kernel. */
  int32_t (*group)(size_t stage, const uint32_t* instructions, size_t count, void* user);
  /* Called before an instruction that the host runs because the device has no code for it. */
  int32_t (*host)(size_t stage, size_t instruction, void* user);
  void* user; /* passed to the functions */
} gradus_observer;

/* Options of state_run_into. */
typedef struct gradus_run_options {
  size_t size;
  double timeout;                  /* in seconds from now; 0: no limit */
  const gradus_cancel* cancel;     /* may be null; must live as long as the run */
  const gradus_observer* observer; /* may be null; must live as long as the run */
  int32_t copy_inputs;             /* not 0: copies the inputs that later stages read */
  int32_t results_on_device;       /* not 0: keeps results on the state's device */
} gradus_run_options;

/* The table of functions. */
typedef struct gradus_api {
  uint32_t version;
  size_t size;         /* of this table, in bytes */
  const char* release; /* "0.1.0" */

  const char* (*last_error)(void); /* message of this thread's last error; never null */

  /* `options` may be null. */
  gradus_status (*context_create)(const gradus_context_options* options, gradus_context** context);
  void (*context_destroy)(gradus_context* context);

  /* Parses a program text. `name` is the name of the text in messages; it may be null. */
  gradus_status (*program_parse)(const char* text, const char* name, gradus_program** program);
  /* Appends derivative stages up to `order`. */
  gradus_status (*program_differentiate)(const gradus_program* program, int32_t order,
                                         gradus_program** derived);
  /* Returns the program as text. Free the text with `text_free`. */
  gradus_status (*program_print)(const gradus_program* program, char** text);
  void (*text_free)(char* text);
  void (*program_destroy)(gradus_program* program);

  /* Verifies, lowers and compiles a program. */
  gradus_status (*code_compile)(const gradus_program* program, gradus_code** code);
  size_t (*code_stages)(const gradus_code* code);
  /* For a stage or index that does not exist, these return 0 and null. Names live as long as the
     code. */
  size_t (*code_inputs)(const gradus_code* code, size_t stage);
  size_t (*code_results)(const gradus_code* code, size_t stage);
  const char* (*code_input_name)(const gradus_code* code, size_t stage, size_t input);
  const char* (*code_result_name)(const gradus_code* code, size_t stage, size_t result);
  void (*code_destroy)(gradus_code* code);

  /* Makes a tensor with a copy of `elements`, or of zeros if `elements` is null. `rank` is at most
     64. Elements of GRADUS_BOOL must be 0 or 1. `context` may be null here and in the functions
     below; it is then the default context. */
  gradus_status (*tensor_create)(gradus_context* context, gradus_dtype dtype, size_t rank,
                                 const int64_t* shape, const void* elements,
                                 gradus_tensor** tensor);
  /* The argument of these functions must not be null. */
  gradus_dtype (*tensor_dtype)(const gradus_tensor* tensor);
  size_t (*tensor_rank)(const gradus_tensor* tensor);
  const int64_t* (*tensor_shape)(const gradus_tensor* tensor);
  /* Copies the elements to the caller, row-major. `bytes` must be their size. */
  gradus_status (*tensor_read)(const gradus_tensor* tensor, void* elements, size_t bytes);
  /* Share memory with other libraries, without copies. gradus/dlpack.h states the ownership. */
  gradus_status (*tensor_from_dlpack)(struct DLManagedTensorVersioned* managed,
                                      gradus_tensor** tensor);
  gradus_status (*tensor_to_dlpack)(const gradus_tensor* tensor,
                                    struct DLManagedTensorVersioned** managed);
  void (*tensor_destroy)(gradus_tensor* tensor);

  gradus_status (*state_create)(const gradus_code* code, gradus_context* context,
                                gradus_state** state);
  /* Makes an independent state at the same stage, which shares the tensors of `state`. */
  gradus_status (*state_clone)(const gradus_state* state, gradus_state** clone);
  /* The stage that the next run executes; the number of stages at the end. `state` must not be
     null. */
  size_t (*state_next_stage)(const gradus_state* state);
  /* Runs the next stage. `inputs` has a tensor for each input; null is an absent cotangent.
     `results` has room for `result_count` tensors, which must be the number of the stage's results.
     Null is written for a structural zero. */
  gradus_status (*state_run)(gradus_state* state, const gradus_tensor* const* inputs,
                             size_t input_count, gradus_tensor** results, size_t result_count);
  /* Write a state to a file, and continue from the file: see State::save in gradus/state.h. */
  gradus_status (*state_save)(const gradus_state* state, const char* path);
  gradus_status (*state_resume)(const gradus_code* code, gradus_context* context, const char* path,
                                gradus_state** state);
  void (*state_destroy)(gradus_state* state);

  /* The functions below were added after the first release of the table. */

  /* Sets the options of the context's kernels, and starts with no kernels. Existing states keep
     their kernels. */
  gradus_status (*context_set_kernels)(gradus_context* context,
                                       const gradus_kernel_options* options);
  /* Writes the counts of the context's kernels to `statistics`. */
  gradus_status (*context_kernel_statistics)(gradus_context* context,
                                             gradus_kernel_statistics* statistics);
  /* Waits until no kernel is waiting for its compilation. */
  gradus_status (*context_wait_for_kernels)(gradus_context* context);
  /* Makes new states of the context run on this CUDA device, except states with
     GRADUS_FUSION_OFF. */
  gradus_status (*context_use_cuda)(gradus_context* context, int32_t device,
                                    const gradus_kernel_options* options);

  /* Like program_differentiate, with options. `options` may be null. */
  gradus_status (*program_derive)(const gradus_program* program,
                                  const gradus_differentiate_options* options,
                                  gradus_program** derived);
  gradus_status (*code_compile_with)(const gradus_program* program,
                                     const gradus_compile_options* options, gradus_code** code);

  /* Makes a tensor of the caller's memory, row-major and aligned to its elements. `rank` is at most
     64. Elements of GRADUS_BOOL must be 0 or 1. `release` (may be null) is called once, on any
     thread, when the library no longer uses the memory. It is not called if this function fails. */
  gradus_status (*tensor_wrap)(gradus_dtype dtype, size_t rank, const int64_t* shape,
                               void* elements, void (*release)(void* elements, void* user),
                               void* user, gradus_tensor** tensor);

  /* Like state_create and state_resume, with options. `options` may be null. */
  gradus_status (*state_create_with)(const gradus_code* code, gradus_context* context,
                                     const gradus_state_options* options, gradus_state** state);
  gradus_status (*state_resume_with)(const gradus_code* code, gradus_context* context,
                                     const char* path, const gradus_state_options* options,
                                     gradus_state** state);
  /* Plans and compiles all stages for inputs of these sizes. Runs on such inputs then plan and
     compile nothing, take no lock and, by state_run_into, call no allocator. The memory of each
     stage is written to `stages`. `stage_count` must be the number of stages, or 0 with `stages`
     null. It is an error if the state is past stage 0. */
  gradus_status (*state_prepare)(gradus_state* state, const gradus_dimension* sizes,
                                 size_t size_count, gradus_stage_memory* stages,
                                 size_t stage_count);
  /* Returns to stage 0. A poisoned state can be used again. */
  gradus_status (*state_restart)(gradus_state* state);
  /* Like state_run, but a tensor in `results` is a buffer: contiguous, of the result's dtype and
     sizes, in host memory. It holds the result afterwards. A null in `results` is set as in
     state_run. A buffer must not overlap memory that the stage reads. If later stages read a
     result, its buffer must keep its values until they have run. */
  gradus_status (*state_run_into)(gradus_state* state, const gradus_tensor* const* inputs,
                                  size_t input_count, gradus_tensor** results, size_t result_count,
                                  const gradus_run_options* options);
  /* Returns the number of stages that ran last as one function each. Writes the first `room` of
     them to `stages`. */
  size_t (*state_whole_stages)(const gradus_state* state, size_t* stages, size_t room);

  /* A token that ends the runs that use it. It may be set on any thread, and cannot be reset. A run
     ends before its next instruction. */
  gradus_status (*cancel_create)(gradus_cancel** cancel);
  void (*cancel_set)(gradus_cancel* cancel);
  void (*cancel_destroy)(gradus_cancel* cancel);

  /* Loads the program of a file: a text, or a model, whose weights become inputs of stage 0. */
  gradus_status (*program_load)(const char* path, gradus_program** program);
  /* Returns the value that the file has for an input, as a tensor of the caller; null if it has
     none. Programs that are derived from the program have the same values. */
  gradus_status (*program_weight)(const gradus_program* program, const char* input,
                                  gradus_tensor** tensor);

  /* Binds a clone of a state at stage 0 of a program with one stage to memory, and runs it: each
     run reads the inputs and writes the results where they lie. Prepare the state first. `results`
     is as for state_run_into. The bound run shares all tensors. The caller writes to the memory of
     inputs, such as that of tensor_wrap, between runs. A bound run serves one thread at a time. */
  gradus_status (*bound_create)(const gradus_state* state, const gradus_tensor* const* inputs,
                                size_t input_count, gradus_tensor** results, size_t result_count,
                                gradus_bound_run** bound);
  /* Runs the stage again. After a failure, the results have no values until a run succeeds. */
  gradus_status (*bound_run)(gradus_bound_run* bound);
  void (*bound_destroy)(gradus_bound_run* bound); /* may be null */
} gradus_api;

/* Returns null if this library has no table of the version. The table is never freed. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const gradus_api*
gradus_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
