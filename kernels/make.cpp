#include "kernels/make.h"

namespace gradus::kernels {

Kernel make(const Work& work) {
  return std::visit([](const auto& w) { return make_kernel(w); }, work);
}

// Compilers make it (fusion/).
Kernel make_kernel(const Loops&) { return {}; }

Kernel make_kernel(const Foreign& w) { return w.kernel; }

}  // namespace gradus::kernels
