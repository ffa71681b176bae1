// In the place of OpenBLAS, in builds without it: it takes nothing, and the reference loops serve.
#include "kernels/libraries/openblas.h"

#include "gradus/error.h"

namespace gradus::kernels::openblas {

bool takes(int64_t, int64_t, Strides) { return false; }

void multiply(int64_t, int64_t, int64_t, const double*, Strides, const double*, Strides, double*,
              int64_t) {
  GRADUS_CHECK(!"called for an operand, of which it takes none");
}

}  // namespace gradus::kernels::openblas
