#include "ops/device_form.h"

namespace gradus::ops {

std::optional<DeviceForm> device_form(ir::KernelFunction run, const void* parameters) {
  for (auto* family : {form_of_copies, form_of_indexing, form_of_reduction, form_of_product,
                       form_of_convolution, form_of_triangle, form_of_range, form_of_window_sum,
                       form_of_scan, form_of_division, form_of_columns, form_of_max_pool,
                       form_of_random_bits, form_of_solve, form_of_extremum, form_of_sort})
    if (auto form = family(run, parameters)) return form;
  return std::nullopt;
}

}  // namespace gradus::ops
