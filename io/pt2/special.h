// Rules of functions that are no operators here: compositions that have ATen's values, and its
// derivatives where those are a matter of convention.
#pragma once

#include "io/pt2/call.h"

namespace gradus::pt2 {

// atan2, whose derivative at the origin is 0.
Value atan2_as_aten(const Value& y, const Value& x);
void atan2_rule(Call& c);
void logaddexp2_rule(Call& c);
void xlog1py_rule(Call& c);
void copysign_rule(Call& c);
void signbit_rule(Call& c);
void heaviside_rule(Call& c);
void ndtri_rule(Call& c);
void entropy_rule(Call& c);
void polygamma_rule(Call& c);
void multivariate_gamma_rule(Call& c);
void sinc_rule(Call& c);
void logit_rule(Call& c);

}  // namespace gradus::pt2
