// Rules of operators that read images [N, C, spatial..]: windows, other sizes, other places.
#pragma once

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

// pooling.cpp
void max_pool(Call& c);
void average_pool(Call& c);
void adaptive_average_pool(Call& c);
void adaptive_max_pool(Call& c);
void max_unpool(Call& c);
void windows_as_columns(Call& c);
void columns_as_image(Call& c);

// resize.cpp
void upsample_nearest(Call& c);
void upsample_nearest_exact(Call& c);
void upsample_linear(Call& c);
void upsample_cubic(Call& c);
void upsample_linear_antialiased(Call& c);
void upsample_cubic_antialiased(Call& c);
void upsample_lanczos_antialiased(Call& c);

// sampling.cpp
void grid_sampler(Call& c);
void affine_grid(Call& c);

}  // namespace gradus::pt2
