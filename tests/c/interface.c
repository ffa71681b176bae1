/* The C interface, from C. Prints what is wrong, and how often that was.
   SPEC W5 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/c/check.h"

struct memory {
  size_t live, calls, limit;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* allocate(size_t bytes, void* user) {
  struct memory* m = user;
  void* block = NULL;
  pthread_mutex_lock(&lock);
  if (bytes <= m->limit) block = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (block) m->live += bytes, m->calls++;
  pthread_mutex_unlock(&lock);
  return block;
}
static void deallocate(void* block, size_t bytes, void* user) {
  struct memory* m = user;
  pthread_mutex_lock(&lock);
  m->live -= bytes;
  pthread_mutex_unlock(&lock);
  free(block);
}

static const char* text =
    "graph swing {\n"
    "  stage 0 (%x: f64[N], %w: f64[N]) {\n"
    "    %h = mul(%x, %w)\n"
    "    %s = tanh(%h)\n"
    "    %y = sum(%s)\n"
    "    return %y\n"
    "  }\n"
    "}\n";

static void test_stages(gradus_context* context, const gradus_code* code) {
  gradus_state *state = NULL, *clone = NULL, *resumed = NULL;
  gradus_tensor* in[2] = {vector(context, 0.5, 1), vector(context, 2, -1)};
  gradus_tensor *y = NULL, *ct = NULL, *d[2] = {NULL, NULL}, *e[2] = {NULL, NULL};
  const double one = 1;
  EXPECT(api->state_create(code, context, &state) == GRADUS_OK);
  EXPECT(api->state_run(state, (const gradus_tensor* const*)in, 2, &y, 1) == GRADUS_OK);
  EXPECT(fabs(first(y)) < 1e-15); /* tanh(1) + tanh(-1) */
  EXPECT(api->state_clone(state, &clone) == GRADUS_OK);
  EXPECT(api->state_save(state, "swing.state") == GRADUS_OK);
  EXPECT(api->tensor_create(context, GRADUS_F64, 0, NULL, &one, &ct) == GRADUS_OK);
  const gradus_tensor* cts[1] = {ct};
  EXPECT(api->state_run(state, cts, 1, d, 1) == GRADUS_ERROR);
  SAYS("stage 1 has 2 results, there is room for 1");
  EXPECT(api->state_run(state, cts, 1, d, 2) == GRADUS_OK);
  EXPECT(fabs(first(d[0]) - 2 * (1 - tanh(1) * tanh(1))) < 1e-15);
  EXPECT(api->state_next_stage(state) == 2);
  EXPECT(api->state_next_stage(clone) == 1);
  EXPECT(api->state_run(state, cts, 1, NULL, 0) == GRADUS_ERROR);
  SAYS("all stages of");
  EXPECT(api->state_resume(code, context, "swing.state", &resumed) == GRADUS_OK);
  EXPECT(api->state_run(resumed, cts, 1, e, 2) == GRADUS_OK);
  EXPECT(first(e[1]) == first(d[1]));
  /* An absent cotangent: absent gradients. */
  gradus_tensor* none[2] = {y, y};
  cts[0] = NULL;
  EXPECT(api->state_run(clone, cts, 1, none, 2) == GRADUS_OK);
  api->tensor_destroy(none[0]);
  api->tensor_destroy(none[1]);
  EXPECT(api->state_resume(code, context, "nowhere.state", &resumed) == GRADUS_ERROR);
  SAYS("nowhere.state");
  api->state_destroy(state);
  api->state_destroy(clone);
  api->state_destroy(resumed);
  gradus_tensor* all[] = {in[0], in[1], y, ct, d[0], d[1], e[0], e[1]};
  for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) api->tensor_destroy(all[i]);
}

static void test_tensors(gradus_context* context, struct memory* memory) {
  gradus_tensor *t = vector(context, 3, 4), *back = NULL, *none = NULL;
  struct DLManagedTensorVersioned* managed = NULL;
  EXPECT(api->tensor_dtype(t) == GRADUS_F64);
  EXPECT(api->tensor_rank(t) == 1 && api->tensor_shape(t)[0] == 2);
  double room[3];
  EXPECT(api->tensor_read(t, room, sizeof(room)) == GRADUS_ERROR);
  SAYS("the tensor has 16 bytes, 24 are asked for");
  EXPECT(api->tensor_to_dlpack(t, &managed) == GRADUS_OK);
  size_t calls = memory->calls;
  EXPECT(api->tensor_from_dlpack(managed, &back) == GRADUS_OK);
  EXPECT(memory->calls == calls); /* nothing is copied */
  api->tensor_destroy(t);
  EXPECT(first(back) == 3);
  api->tensor_destroy(back);
  const int64_t negative[1] = {-1}, large[2] = {INT64_MAX, 8}, some[1] = {1 << 20};
  EXPECT(api->tensor_create(context, GRADUS_F32, 1, negative, NULL, &none) == GRADUS_ERROR);
  SAYS("negative");
  EXPECT(api->tensor_create(context, GRADUS_F32, 2, large, NULL, &none) == GRADUS_ERROR);
  EXPECT(api->tensor_create(context, (gradus_dtype)99, 0, NULL, NULL, &none) == GRADUS_ERROR);
  EXPECT(api->tensor_create(context, GRADUS_F32, 0, NULL, NULL, NULL) == GRADUS_ERROR);
  SAYS("is null");
  memory->limit = 1 << 10;
  EXPECT(api->tensor_create(context, GRADUS_F32, 1, some, NULL, &none) == GRADUS_RESOURCE);
  SAYS("the allocator has no memory");
  memory->limit = SIZE_MAX;
  EXPECT(none == NULL);
}

int main(void) {
  struct memory memory = {0, 0, SIZE_MAX};
  gradus_context* context = NULL;
  gradus_program *program = NULL, *derived = NULL, *again = NULL;
  gradus_code* code = NULL;
  char* printed = NULL;
  gradus_context_options options;
  memset(&options, 0, sizeof(options));
  EXPECT(gradus_get_api(0) == NULL && gradus_get_api(99) == NULL);
  api = gradus_get_api(GRADUS_API_VERSION);
  if (!api) return 1;
  EXPECT(api->version == GRADUS_API_VERSION && api->size >= sizeof(gradus_api));
  EXPECT(strcmp(api->last_error(), "") == 0);
  EXPECT(api->context_create(&options, &context) == GRADUS_ERROR);
  SAYS("set `size`");
  options.size = sizeof(options);
  options.allocate = allocate;
  options.user = &memory;
  EXPECT(api->context_create(&options, &context) == GRADUS_ERROR);
  SAYS("go together");
  options.deallocate = deallocate;
  EXPECT(api->context_create(&options, &context) == GRADUS_OK);

  EXPECT(api->program_parse("graph", "bad.ir", &program) == GRADUS_ERROR);
  SAYS("bad.ir:1:");
  EXPECT(api->program_parse(NULL, NULL, &program) == GRADUS_ERROR);
  EXPECT(api->program_parse(text, "swing.ir", &program) == GRADUS_OK);
  EXPECT(strcmp(api->last_error(), "") == 0);
  EXPECT(api->program_differentiate(program, 1, &derived) == GRADUS_OK);
  EXPECT(api->program_print(derived, &printed) == GRADUS_OK);
  EXPECT(printed && strstr(printed, "stage 1 (%ct1_y: f64[])") != NULL);
  EXPECT(api->program_parse(printed, NULL, &again) == GRADUS_OK);
  EXPECT(api->code_compile(derived, &code) == GRADUS_OK);
  EXPECT(api->code_stages(code) == 2 && api->code_inputs(code, 0) == 2);
  EXPECT(api->code_results(code, 1) == 2 && api->code_results(code, 2) == 0);
  EXPECT(strcmp(api->code_input_name(code, 1, 0), "ct1_y") == 0);
  EXPECT(strcmp(api->code_result_name(code, 1, 1), "d1_w") == 0);
  EXPECT(api->code_input_name(code, 0, 2) == NULL);

  test_stages(context, code);
  test_tensors(context, &memory);
  api->text_free(printed);
  api->program_destroy(program);
  api->program_destroy(derived);
  api->program_destroy(again);
  api->program_destroy(NULL);
  api->code_destroy(code);
  api->context_destroy(context);
  EXPECT(memory.live == 0);
  EXPECT(memory.calls > 0);
  return faults != 0;
}
