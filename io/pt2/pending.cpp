// Families without rules yet.
#include "io/pt2/call.h"

namespace gradus::pt2 {

const Rules pointwise_rules = {};
const Rules activation_rules = {};
const Rules comparison_rules = {};
const Rules reduction_rules = {};
const Rules normalization_rules = {};
const Rules loss_rules = {};
const Rules linear_algebra_rules = {};
const Rules sorting_rules = {};

}  // namespace gradus::pt2
