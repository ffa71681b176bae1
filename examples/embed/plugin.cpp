// Brings the operator to programs that load plug-ins.
#include "interpreter/plugin.h"

#include "ops/added.h"
#include "window_sums.h"

GRADUS_PLUGIN() { gradus::ops::register_operator(gradus::ops::operator_record<embed::WindowSums>); }
