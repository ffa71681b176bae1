/* What the C interface reaches of budgets, kernels, prepared states and buffers of the caller.
   SPEC W5, I15, I18 */
#include <math.h>
#include <stdlib.h>

#include "tests/c/check.h"

/* The tanhs have to be held for stage 1, or computed again. */
static const char* text =
    "graph layers {\n"
    "  stage 0 (%x: f64[N], %w: f64[N]) {\n"
    "    %a = mul(%x, %w)\n"
    "    %b = tanh(%a)\n"
    "    %c = mul(%b, %w)\n"
    "    %d = tanh(%c)\n"
    "    %y = sum(%d)\n"
    "    return %y\n"
    "  }\n"
    "}\n";

static gradus_context* context_with(int32_t workers) {
  gradus_context_options options = {0};
  gradus_context* context = NULL;
  options.size = sizeof(options);
  options.workers = workers;
  EXPECT(api->context_create(&options, &context) == GRADUS_OK);
  return context;
}

/* Runs both stages; the derivatives' first elements. */
static void run_both(gradus_state* state, gradus_context* context, double found[2]) {
  gradus_tensor* in[2] = {vector(context, 0.25, 1), vector(context, 0.5, -1)};
  gradus_tensor *y[1] = {NULL}, *d[2] = {NULL, NULL}, *ct = NULL;
  const double one = 1;
  EXPECT(api->state_run(state, (const gradus_tensor* const*)in, 2, y, 1) == GRADUS_OK);
  EXPECT(api->tensor_create(context, GRADUS_F64, 0, NULL, &one, &ct) == GRADUS_OK);
  EXPECT(api->state_run(state, (const gradus_tensor* const*)&ct, 1, d, 2) == GRADUS_OK);
  for (int i = 0; i < 2; ++i) found[i] = d[i] ? first(d[i]) : NAN;
  gradus_tensor* all[] = {in[0], in[1], y[0], ct, d[0], d[1]};
  for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) api->tensor_destroy(all[i]);
}

static void test_derivatives(const gradus_program* program) {
  gradus_program *derived = NULL, *none = NULL;
  gradus_code* code = NULL;
  const char* wrt[1] = {"w"};
  gradus_differentiate_options options = {0};
  EXPECT(api->program_derive(program, &options, &none) == GRADUS_ERROR);
  SAYS("set `size`");
  options.size = sizeof(options);
  options.order = 2;
  options.wrt = wrt;
  options.wrt_count = 1;
  options.inputs_only = 1;
  EXPECT(api->program_derive(program, &options, &derived) == GRADUS_OK);
  EXPECT(api->code_compile(derived, &code) == GRADUS_OK);
  EXPECT(api->code_results(code, 1) == 1);
  EXPECT(strcmp(api->code_result_name(code, 1, 0), "d1_w") == 0);
  EXPECT(api->code_results(code, 2) == 1); /* by w, and not by ct1_y */
  api->code_destroy(code);
  api->program_destroy(derived);
  options.inputs_only = 0;
  options.total = 1;
  EXPECT(api->program_derive(program, &options, &derived) == GRADUS_OK);
  EXPECT(api->code_compile(derived, &code) == GRADUS_OK);
  EXPECT(api->code_inputs(code, 2) == 2); /* ct2_y, ct2_d1_w */
  EXPECT(api->code_results(code, 2) == 2);
  api->code_destroy(code);
  api->program_destroy(derived);
  wrt[0] = "nothing";
  EXPECT(api->program_derive(program, &options, &none) == GRADUS_ERROR);
  SAYS("nothing");
  /* Options of a later release: fine as long as nothing is asked for that is not known. */
  struct {
    gradus_differentiate_options known;
    int64_t later;
  } larger = {{0}, 0};
  larger.known.size = sizeof(larger);
  larger.known.order = 1;
  EXPECT(api->program_derive(program, &larger.known, &derived) == GRADUS_OK);
  api->program_destroy(derived);
  larger.later = 1;
  EXPECT(api->program_derive(program, &larger.known, &none) == GRADUS_ERROR);
  SAYS("this release does not know");
  EXPECT(none == NULL);
}

static void count_dump(const char* pass, const char* printed, void* user) {
  if (pass && *pass && strstr(printed, "graph ")) ++*(int*)user;
}

static void test_budget(const gradus_program* program, gradus_context* context) {
  gradus_code *all = NULL, *less = NULL, *none = NULL;
  gradus_state* state = NULL;
  gradus_stage_memory plain[2], tight[2];
  const gradus_dimension sizes[1] = {{"N", 1000}};
  int64_t bytes = 0;
  int dumps = 0;
  double expected[2], found[2];
  gradus_compile_options options = {0};
  options.size = sizeof(options);
  options.dump = count_dump;
  options.user = &dumps;
  EXPECT(api->code_compile_with(program, &options, &all) == GRADUS_OK);
  EXPECT(dumps > 3);
  EXPECT(api->state_create(all, context, &state) == GRADUS_OK);
  EXPECT(api->state_prepare(state, sizes, 1, plain, 2) == GRADUS_OK);
  EXPECT(plain[0].held >= 16000);
  run_both(state, context, expected);
  api->state_destroy(state);

  options.dump = NULL;
  options.memory_budget = &bytes;
  EXPECT(api->code_compile_with(program, &options, &none) == GRADUS_ERROR);
  SAYS("N");
  options.sizes = sizes;
  options.size_count = 1;
  EXPECT(api->code_compile_with(program, &options, &less) == GRADUS_OK);
  EXPECT(api->state_create(less, context, &state) == GRADUS_OK);
  EXPECT(api->state_prepare(state, sizes, 1, tight, 2) == GRADUS_OK);
  EXPECT(tight[0].held == 0);
  run_both(state, context, found);
  EXPECT(found[0] == expected[0] && found[1] == expected[1]);
  api->state_destroy(state);
  /* In f64 they are the functions of full accuracy. */
  options.fast_functions = 1;
  api->code_destroy(less);
  EXPECT(api->code_compile_with(program, &options, &less) == GRADUS_OK);
  EXPECT(api->state_create(less, context, &state) == GRADUS_OK);
  EXPECT(api->state_prepare(state, sizes, 1, tight, 2) == GRADUS_OK);
  run_both(state, context, found);
  EXPECT(found[0] == expected[0] && found[1] == expected[1]);
  api->state_destroy(state);
  api->code_destroy(all);
  api->code_destroy(less);
}

static int released = 0;
static void release(void* elements, void* user) {
  if (elements == user) ++released;
}

/* Results in memory of the caller's, in a state that is prepared. */
static void test_buffers(const gradus_code* code, gradus_context* context) {
  gradus_state* state = NULL;
  const gradus_dimension sizes[1] = {{"N", 2}}, wrong[1] = {{"M", 2}};
  const int64_t shape[1] = {2};
  double dx[2] = {0, 0}, dw[2] = {0, 0}, y = 0, expected[2];
  gradus_tensor *buffers[2] = {NULL, NULL}, *sum = NULL, *ct = NULL;
  gradus_tensor* in[2] = {vector(context, 0.25, 1), vector(context, 0.5, -1)};
  const double one = 1;
  EXPECT(api->state_create(code, context, &state) == GRADUS_OK);
  run_both(state, context, expected);
  EXPECT(api->state_prepare(state, sizes, 1, NULL, 0) == GRADUS_ERROR);
  SAYS("stage 0");
  EXPECT(api->state_restart(state) == GRADUS_OK);
  EXPECT(api->state_prepare(state, wrong, 1, NULL, 0) == GRADUS_ERROR);
  gradus_stage_memory memory[1];
  EXPECT(api->state_prepare(state, sizes, 1, memory, 1) == GRADUS_ERROR);
  SAYS("the code has 2 stages, there is room for 1");
  EXPECT(api->state_prepare(state, sizes, 1, NULL, 0) == GRADUS_OK);

  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, dx, release, dx, &buffers[0]) == GRADUS_OK);
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, dw, NULL, NULL, &buffers[1]) == GRADUS_OK);
  EXPECT(api->tensor_wrap(GRADUS_F64, 0, NULL, &y, NULL, NULL, &sum) == GRADUS_OK);
  EXPECT(api->tensor_create(context, GRADUS_F64, 0, NULL, &one, &ct) == GRADUS_OK);
  for (int round = 0; round < 3; ++round) {
    gradus_tensor *results[1] = {sum}, *d[2] = {buffers[0], buffers[1]};
    dx[0] = dw[0] = y = NAN;
    EXPECT(api->state_run_into(state, (const gradus_tensor* const*)in, 2, results, 1, NULL) ==
           GRADUS_OK);
    EXPECT(results[0] == sum && !isnan(y));
    if (round == 2) d[1] = NULL; /* one buffer, one new tensor */
    EXPECT(api->state_run_into(state, (const gradus_tensor* const*)&ct, 1, d, 2, NULL) ==
           GRADUS_OK);
    EXPECT(d[0] == buffers[0] && dx[0] == expected[0]);
    if (round == 2) {
      EXPECT(isnan(dw[0]) && d[1] && first(d[1]) == expected[1]);
      api->tensor_destroy(d[1]);
    } else {
      EXPECT(d[1] == buffers[1] && dw[0] == expected[1]);
    }
    EXPECT(api->state_restart(state) == GRADUS_OK);
  }
  gradus_tensor* narrow[1] = {buffers[0]};
  EXPECT(api->state_run_into(state, (const gradus_tensor* const*)in, 2, narrow, 1, NULL) ==
         GRADUS_ERROR);
  api->state_destroy(state);
  EXPECT(released == 0);
  gradus_tensor* all[] = {in[0], in[1], sum, ct, buffers[0], buffers[1]};
  for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) api->tensor_destroy(all[i]);
  EXPECT(released == 1);

  gradus_tensor* none = NULL;
  uint8_t odd[2] = {0, 2};
  EXPECT(api->tensor_wrap(GRADUS_BOOL, 1, shape, odd, release, odd, &none) == GRADUS_ERROR);
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, NULL, release, NULL, &none) == GRADUS_ERROR);
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, (char*)dx + 1, release, dx, &none) ==
         GRADUS_ERROR);
  SAYS("not aligned");
  const int64_t large[2] = {INT64_MAX, 8};
  EXPECT(api->tensor_wrap(GRADUS_F64, 2, large, dx, release, dx, &none) == GRADUS_ERROR);
  EXPECT(none == NULL && released == 1);
}

/* A bound run reads and writes the caller's memory. */
static void test_bound_runs(void) {
  gradus_context* context = NULL;
  gradus_program* program = NULL;
  gradus_code* code = NULL;
  gradus_state* state = NULL;
  gradus_bound_run* bound = NULL;
  const char* text =
      "graph g { stage 0 (%x: f64[2]) { %a = square(%x) %y = sum(%a) return %a, %y } }";
  EXPECT(api->context_create(NULL, &context) == GRADUS_OK);
  EXPECT(api->program_parse(text, "g.ir", &program) == GRADUS_OK);
  EXPECT(api->code_compile(program, &code) == GRADUS_OK);
  EXPECT(api->state_create(code, context, &state) == GRADUS_OK);
  EXPECT(api->state_prepare(state, NULL, 0, NULL, 0) == GRADUS_OK);
  double x[2] = {1, 2}, a[2] = {0, 0};
  const int64_t shape[1] = {2};
  gradus_tensor *in = NULL, *results[2] = {NULL, NULL};
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, x, NULL, NULL, &in) == GRADUS_OK);
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, a, NULL, NULL, &results[0]) == GRADUS_OK);
  EXPECT(api->bound_create(state, (const gradus_tensor* const*)&in, 1, results, 2, &bound) ==
         GRADUS_OK);
  EXPECT(a[0] == 1 && a[1] == 4 && results[1] && first(results[1]) == 5);
  for (int round = 0; round < 3; ++round) {
    x[1] = 3 + round;
    EXPECT(api->bound_run(bound) == GRADUS_OK);
    EXPECT(a[1] == x[1] * x[1] && first(results[1]) == 1 + a[1]);
  }
  gradus_bound_run* none = NULL;
  EXPECT(api->bound_create(state, (const gradus_tensor* const*)&in, 1, results, 1, &none) ==
         GRADUS_ERROR);
  SAYS("has 2 results, there is room for 1");
  EXPECT(api->bound_create(state, NULL, 1, results, 2, &none) == GRADUS_ERROR && none == NULL);
  EXPECT(api->bound_run(NULL) == GRADUS_ERROR);
  api->bound_destroy(NULL);
  api->bound_destroy(bound);
  api->tensor_destroy(in);
  for (int i = 0; i < 2; ++i) api->tensor_destroy(results[i]);
  api->state_destroy(state);
  api->code_destroy(code);
  api->program_destroy(program);
  api->context_destroy(context);
}

struct seen {
  size_t before, after, grouped, stop_at;
};
static int32_t on_before(size_t stage, size_t instruction, void* user) {
  struct seen* s = user;
  return (void)stage, (void)instruction, ++s->before == s->stop_at;
}
static int32_t on_after(size_t stage, size_t instruction, void* user) {
  return (void)stage, (void)instruction, ++((struct seen*)user)->after, 0;
}
static int32_t on_group(size_t stage, const uint32_t* instructions, size_t count, void* user) {
  return (void)stage, (void)instructions, ((struct seen*)user)->grouped += count, 0;
}

static void test_runs(const gradus_code* code, gradus_context* context) {
  gradus_state *state = NULL, *clone = NULL;
  gradus_cancel* cancel = NULL;
  gradus_tensor* in[2] = {vector(context, 0.25, 1), vector(context, 0.5, -1)};
  gradus_tensor *y[1] = {NULL}, *d[2] = {NULL, NULL}, *ct = NULL;
  const gradus_tensor* const* inputs = (const gradus_tensor* const*)in;
  const double one = 1;
  gradus_state_options mode = {sizeof(mode), GRADUS_FUSION_OFF};
  EXPECT(api->state_create_with(code, context, &mode, &state) == GRADUS_OK);
  gradus_state_options no_mode = {sizeof(no_mode), 7};
  EXPECT(api->state_create_with(code, context, &no_mode, &clone) == GRADUS_ERROR);
  SAYS("7 is no mode of fusion");

  struct seen seen = {0, 0, 0, 0};
  gradus_observer observer = {on_before, on_after, on_group, NULL, &seen};
  gradus_run_options options = {0};
  options.size = sizeof(options);
  options.observer = &observer;
  options.timeout = 1000;
  EXPECT(api->state_run_into(state, inputs, 2, y, 1, &options) == GRADUS_OK);
  EXPECT(seen.before == 5 && seen.after == 5 && seen.grouped == 0);
  api->tensor_destroy(y[0]);
  y[0] = NULL;
  EXPECT(api->state_restart(state) == GRADUS_OK);
  seen.before = seen.after = 0;
  seen.stop_at = 3;
  EXPECT(api->state_run_into(state, inputs, 2, y, 1, &options) == GRADUS_ERROR);
  SAYS("the observer ended the run");
  EXPECT(seen.before == 3 && seen.after == 2);
  EXPECT(api->state_run(state, inputs, 2, y, 1) == GRADUS_ERROR); /* poisoned */
  EXPECT(api->state_restart(state) == GRADUS_OK);

  options.observer = NULL;
  EXPECT(api->cancel_create(&cancel) == GRADUS_OK);
  options.cancel = cancel;
  EXPECT(api->state_clone(state, &clone) == GRADUS_OK);
  EXPECT(api->state_run_into(clone, inputs, 2, y, 1, &options) == GRADUS_OK);
  api->tensor_destroy(y[0]);
  y[0] = NULL;
  api->cancel_set(cancel);
  EXPECT(api->state_run_into(state, inputs, 2, y, 1, &options) == GRADUS_ERROR);
  SAYS("cancel");
  EXPECT(api->state_restart(state) == GRADUS_OK);
  options.cancel = NULL;
  options.timeout = 1e-9;
  EXPECT(api->state_run_into(state, inputs, 2, y, 1, &options) == GRADUS_ERROR);
  SAYS("deadline");
  options.timeout = -1;
  EXPECT(api->state_run_into(state, inputs, 2, y, 1, &options) == GRADUS_ERROR);
  SAYS("a timeout of -1 seconds");
  EXPECT(y[0] == NULL);
  EXPECT(api->state_restart(state) == GRADUS_OK);

  /* An input in the caller's memory that is written between the stages. */
  double x[2] = {0.25, 1}, found[2];
  const int64_t shape[1] = {2};
  double expected[2];
  gradus_state* other = NULL;
  EXPECT(api->state_create(code, context, &other) == GRADUS_OK);
  run_both(other, context, expected);
  api->state_destroy(other);
  gradus_tensor* mine[2] = {NULL, in[1]};
  EXPECT(api->tensor_wrap(GRADUS_F64, 1, shape, x, NULL, NULL, &mine[0]) == GRADUS_OK);
  options.timeout = 0;
  options.copy_inputs = 1;
  EXPECT(api->state_run_into(state, (const gradus_tensor* const*)mine, 2, y, 1, &options) ==
         GRADUS_OK);
  x[0] = x[1] = 100;
  EXPECT(api->tensor_create(context, GRADUS_F64, 0, NULL, &one, &ct) == GRADUS_OK);
  EXPECT(api->state_run(state, (const gradus_tensor* const*)&ct, 1, d, 2) == GRADUS_OK);
  for (int i = 0; i < 2; ++i) found[i] = first(d[i]);
  EXPECT(found[0] == expected[0] && found[1] == expected[1]);

  api->cancel_destroy(cancel);
  api->state_destroy(state);
  api->state_destroy(clone);
  gradus_tensor* all[] = {in[0], in[1], y[0], ct, d[0], d[1], mine[0]};
  for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) api->tensor_destroy(all[i]);
}

/* Kernels, and stages as one function: with the bits of a run without. */
static void test_kernels(void) {
  /* A stage is one function where its sizes are known, and it would be several kernels. */
  const char* known =
      "graph known { stage 0 (%x: f64[2], %w: f64[2]) {\n"
      "  %a = mul(%x, %w) %b = tanh(%a) %c = unsqueeze(%b) {dim = 1} %r = unsqueeze(%w) {dim = 0}\n"
      "  %p = matmul(%c, %r) %t = tanh(%p) %q = matmul(%t, %w) %d = tanh(%q) %y = sum(%d)\n"
      "  return %y } }";
  gradus_program *read = NULL, *program = NULL;
  EXPECT(api->program_parse(known, NULL, &read) == GRADUS_OK);
  EXPECT(api->program_differentiate(read, 1, &program) == GRADUS_OK);
  gradus_context *plain = context_with(1), *context = context_with(1);
  gradus_code* code = NULL;
  gradus_state* state = NULL;
  gradus_kernel_statistics statistics = {0};
  gradus_kernel_options options = {0};
  const gradus_state_options off = {sizeof(off), GRADUS_FUSION_OFF};
  const gradus_state_options kernels_first = {sizeof(off), GRADUS_FUSION_FIRST};
  double expected[2], found[2];
  size_t whole[4];
  EXPECT(api->code_compile(program, &code) == GRADUS_OK);
  EXPECT(api->state_create_with(code, plain, &off, &state) == GRADUS_OK);
  run_both(state, plain, expected);
  EXPECT(api->state_whole_stages(state, whole, 4) == 0);
  api->state_destroy(state);

  options.size = sizeof(options);
  options.whole_stages = 9;
  EXPECT(api->context_set_kernels(context, &options) == GRADUS_ERROR);
  const gradus_whole_stages modes[] = {GRADUS_WHOLE_STAGES_OFF, GRADUS_WHOLE_STAGES_SMALL,
                                       GRADUS_WHOLE_STAGES_ALWAYS};
  for (int i = 0; i < 3; ++i) {
    options.whole_stages = modes[i];
    options.always = modes[i] == GRADUS_WHOLE_STAGES_OFF;
    options.most_kernels = 100;
    EXPECT(api->context_set_kernels(context, &options) == GRADUS_OK);
    EXPECT(api->state_create_with(code, context, &kernels_first, &state) == GRADUS_OK);
    run_both(state, context, found);
    EXPECT(found[0] == expected[0] && found[1] == expected[1]);
    EXPECT(api->context_wait_for_kernels(context) == GRADUS_OK);
    EXPECT(api->context_kernel_statistics(context, &statistics) == GRADUS_OK);
    EXPECT(statistics.failed == 0);
    /* Where there is a compiler. */
    size_t n = statistics.misses > 0 && modes[i] != GRADUS_WHOLE_STAGES_OFF ? 2 : 0;
    EXPECT(api->state_whole_stages(state, whole, 4) == n);
    if (n == 2) EXPECT(whole[0] == 0 && whole[1] == 1);
    EXPECT(api->state_whole_stages(state, NULL, 0) == n);
    api->state_destroy(state);
  }
  EXPECT(api->context_use_cuda(context, -1, NULL) == GRADUS_ERROR);
  SAYS("cuda:-1 is no device");
  gradus_status used = api->context_use_cuda(context, 0, NULL);
  EXPECT(used == GRADUS_OK || used == GRADUS_RESOURCE);
  api->code_destroy(code);
  api->program_destroy(read);
  api->program_destroy(program);
  api->context_destroy(context);
  api->context_destroy(plain);
}

static void write_text(const char* path, const char* content) {
  FILE* file = fopen(path, "w");
  EXPECT(file && fputs(content, file) >= 0 && fclose(file) == 0);
}

static void test_files(void) {
  const char* path = "test_c_options_program";
  gradus_program *program = NULL, *derived = NULL;
  gradus_tensor* weight = (gradus_tensor*)&program;
  EXPECT(api->program_load("no/such/file.ir", &program) == GRADUS_ERROR);
  SAYS("no/such/file.ir: cannot be read");
  EXPECT(api->program_load(NULL, &program) == GRADUS_ERROR);
  write_text(path, "what is this?");
  EXPECT(api->program_load(path, &program) == GRADUS_ERROR);
  SAYS("what can be read is");
  write_text(path, text);
  EXPECT(api->program_load(path, &program) == GRADUS_OK);
  EXPECT(api->program_differentiate(program, 1, &derived) == GRADUS_OK);
  /* A text has no values of inputs. */
  EXPECT(api->program_weight(derived, "x", &weight) == GRADUS_OK && weight == NULL);
  EXPECT(api->program_weight(derived, NULL, &weight) == GRADUS_ERROR);
  api->program_destroy(program);
  api->program_destroy(derived);
  remove(path);
}

int main(void) {
  gradus_program *program = NULL, *derived = NULL;
  gradus_code* code = NULL;
  api = gradus_get_api(GRADUS_API_VERSION);
  if (!api) return 1;
  gradus_context* context = context_with(2);
  EXPECT(api->program_parse(text, "layers.ir", &program) == GRADUS_OK);
  EXPECT(api->program_differentiate(program, 1, &derived) == GRADUS_OK);
  EXPECT(api->code_compile(derived, &code) == GRADUS_OK);
  test_derivatives(program);
  test_budget(derived, context);
  test_buffers(code, context);
  test_runs(code, context);
  test_bound_runs();
  test_kernels();
  test_files();
  api->code_destroy(code);
  api->program_destroy(program);
  api->program_destroy(derived);
  api->context_destroy(context);
  return faults != 0;
}
