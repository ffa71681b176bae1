// Families without rules yet.
#include "io/pt2/call.h"

namespace gradus::pt2 {

const Rules view_rules = {};
const Rules shape_rules = {};
const Rules creation_rules = {};
const Rules indexing_rules = {};
const Rules product_rules = {};
const Rules convolution_rules = {};
const Rules attention_rules = {};
const Rules recurrent_rules = {};
const Rules assertion_rules = {};

}  // namespace gradus::pt2
