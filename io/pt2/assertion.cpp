// Assertions about data and sizes. The sizes that a program says hold when it runs; what an
// assertion says of data is not checked.
#include "io/pt2/call.h"

namespace gradus::pt2 {

namespace {

void nothing(Call&) {}

// A token only orders assertions.
void token(Call& c) { c.give(ops::full(c.world(), c.result().sizes, 0, c.result().dtype)); }

constexpr RuleEntry assertion_table[] = {
    {"_assert_async", nothing},
    {"_assert_scalar", nothing},
    {"_assert_tensor_metadata", nothing},
    {"_functional_assert_async", token},
    {"_functional_assert_scalar", token},
    {"_functional_sym_constrain_range", token},
    {"_functional_sym_constrain_range_for_size", token},
    {"_make_dep_token", token},
    {"sym_constrain_range", nothing},
    {"sym_constrain_range_for_size", nothing},
    {"sym_numel", nothing},
    {"sym_size", nothing},
    {"sym_storage_offset", nothing},
    {"sym_stride", nothing},
};

}  // namespace

constinit const Rules assertion_rules = assertion_table;

}  // namespace gradus::pt2
