// Brings the operator to programs that load plug-ins.
#include "gradus/plugin.h"

#include "gradus/registry.h"
#include "window_sums.h"

GRADUS_PLUGIN() { gradus::ops::register_operator(gradus::ops::operator_record<embed::WindowSums>); }
