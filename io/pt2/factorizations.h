// Rules of factorisations. An operator that is missing is refused by its name.
#pragma once

#include "io/pt2/call.h"

namespace gradus::pt2 {

void singular_values_rule(Call& c);
void svd_rule(Call& c);
void symmetric_eigen_rule(Call& c);
void qr_rule(Call& c);
void lu_rule(Call& c);
void lu_factor_rule(Call& c);
void matrix_exponential_rule(Call& c);
void pseudoinverse_rule(Call& c);
void condition_rule(Call& c);
void least_squares_rule(Call& c);

}  // namespace gradus::pt2
