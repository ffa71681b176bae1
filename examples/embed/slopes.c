/* Gradus in a C program: parses a program, appends its derivative as stage 1, and runs both stages.
   y = sum(tanh(x * w)); prints y and dy/dx. */
#include <stdio.h>

#include "gradus/c.h"

static const char text[] =
    "graph slopes {\n"
    "  stage 0 (%x: f64[N], %w: f64[N]) {\n"
    "    %h = mul(%x, %w)\n"
    "    %s = tanh(%h)\n"
    "    %y = sum(%s)\n"
    "    return %y\n"
    "  }\n"
    "}\n";

int main(void) {
  const gradus_api* api = gradus_get_api(GRADUS_API_VERSION);
  if (!api) {
    fprintf(stderr, "the installed library has no interface of version %u\n", GRADUS_API_VERSION);
    return 1;
  }
  const double x[3] = {-1, 0.5, 2}, w[3] = {0.5, 0.5, 0.5}, one = 1;
  const int64_t shape[1] = {3};
  gradus_program *program = NULL, *derived = NULL;
  gradus_code* code = NULL;
  gradus_state* state = NULL;
  gradus_tensor *in[2] = {NULL, NULL}, *cotangent = NULL, *result = NULL, *slopes[2] = {NULL, NULL};
  double y = 0, dx[3] = {0, 0, 0};

  /* The first call that fails ends the chain. A null context is the default context. */
  const int failed =
      api->program_parse(text, "slopes.ir", &program) ||
      api->program_differentiate(program, 1, &derived) || api->code_compile(derived, &code) ||
      api->tensor_create(NULL, GRADUS_F64, 1, shape, x, &in[0]) ||
      api->tensor_create(NULL, GRADUS_F64, 1, shape, w, &in[1]) ||
      api->tensor_create(NULL, GRADUS_F64, 0, NULL, &one, &cotangent) ||
      api->state_create(code, NULL, &state) ||
      /* Stage 0 takes x and w. Stage 1 takes the cotangent of y, and returns dy/dx and dy/dw. */
      api->state_run(state, (const gradus_tensor* const*)in, 2, &result, 1) ||
      api->state_run(state, (const gradus_tensor* const*)&cotangent, 1, slopes, 2) ||
      api->tensor_read(result, &y, sizeof y) || api->tensor_read(slopes[0], dx, sizeof dx);
  if (failed)
    fprintf(stderr, "%s\n", api->last_error());
  else
    printf("y = %.17g\ndy/dx = %.17g %.17g %.17g\n", y, dx[0], dx[1], dx[2]);

  for (int i = 0; i < 2; ++i) {
    api->tensor_destroy(in[i]);
    api->tensor_destroy(slopes[i]);
  }
  api->tensor_destroy(cotangent);
  api->tensor_destroy(result);
  api->state_destroy(state);
  api->code_destroy(code);
  api->program_destroy(derived);
  api->program_destroy(program);
  return failed != 0;
}
