#include "ops/roles.h"

#include "gradus/rules.h"
#include "ops/creation.h"
#include "ops/declared.h"

namespace gradus::ops {

const Operator& sum_operator() { return record<Add>(); }
const Operator& copy_operator() { return record<Clone>(); }

ir::Node cast_node(ir::ValueId from, ir::ValueId to, DType dtype, const SourceLocation& where) {
  return {&record<Cast>(), make_attributes(Cast::Attr{dtype}), {from}, {to}, where};
}

}  // namespace gradus::ops
