// Kernels of a thread for each element of a result: divisions of integers that look at their
// divisors, windows of images as columns and back, their greatest elements.
#pragma once

#include "fusion/cuda/source.h"
#include "ops/device_form.h"

namespace gradus::fusion::cuda {

// divide    a divisor of zero is told, and its result is 0
//           x, y, target, faults, items, size[rank], x_by[rank], y_by[rank]
Source division_source(const ops::DeviceDivision& form, bool wide);

// unfold    an element of the columns, 0 beside the image
// fold      an element of the image: what each tap gives, in order
//           source, target, items, channels, then of the operand the strides of batch, channel or
//           row of the columns, image's row or window, image's column; then for the two axes each
//           image, windows, kernel, stride, padding, dilation
Source columns_source(const ops::DeviceColumns& form, bool wide);

// max_pool  the greatest of each window, the first of several, or the last NaN
//           x, values, places, items, channels, then of x the strides of batch, channel and the
//           three axes, then for each axis as above
Source max_pool_source(const ops::DeviceMaxPool& form, bool wide);

}  // namespace gradus::fusion::cuda
