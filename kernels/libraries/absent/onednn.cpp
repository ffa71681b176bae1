// In the place of oneDNN, in builds without it: it has nothing for anybody, and the reference loops
// serve.
#include "kernels/libraries/onednn.h"

namespace gradus::kernels::onednn {

std::shared_ptr<const Product> Product::make(const ProductSizes&) { return nullptr; }
std::shared_ptr<const Convolution> Convolution::make(const ConvolutionSizes&) { return nullptr; }

}  // namespace gradus::kernels::onednn
