/* What the tests of the C interface share. Each is one file. */
#include <stdio.h>
#include <string.h>

#include "gradus/c.h"

static const gradus_api* api;
static int faults = 0;

/* Prints what does not hold, and counts it. */
#define EXPECT(condition)                                                 \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
              api ? api->last_error() : "");                              \
      ++faults;                                                           \
    }                                                                     \
  } while (0)
#define SAYS(part) EXPECT(strstr(api->last_error(), part) != NULL)

static gradus_tensor* vector(gradus_context* context, double a, double b) {
  const double elements[2] = {a, b};
  const int64_t shape[1] = {2};
  gradus_tensor* t = NULL;
  EXPECT(api->tensor_create(context, GRADUS_F64, 1, shape, elements, &t) == GRADUS_OK);
  return t;
}

/* The first element, or the only one. */
static double first(const gradus_tensor* t) {
  double elements[2] = {0, 0};
  size_t bytes = api->tensor_rank(t) == 0 ? sizeof(double) : sizeof(elements);
  EXPECT(api->tensor_read(t, elements, bytes) == GRADUS_OK);
  return elements[0];
}
