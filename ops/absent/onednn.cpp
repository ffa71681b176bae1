// In the place of oneDNN, in builds without it: it has nothing for anybody, and the reference loops
// serve.
#include "ops/onednn.h"

namespace gradus::ops::onednn {

std::shared_ptr<const Product> Product::make(const ProductSizes&) { return nullptr; }
std::shared_ptr<const Convolution> Convolution::make(const ConvolutionSizes&) { return nullptr; }

}  // namespace gradus::ops::onednn
