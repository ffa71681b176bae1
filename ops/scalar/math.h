// The vector functions of the scalar world: names as in the standard library, found by
// argument-dependent lookup on S. Errors and methods: docs/math-functions.md.
#pragma once

#include "ops/scalar/erf.h"
#include "ops/scalar/erfinv.h"
#include "ops/scalar/exp.h"
#include "ops/scalar/gamma.h"
#include "ops/scalar/hyperbolic.h"
#include "ops/scalar/log.h"
#include "ops/scalar/num.h"
#include "ops/scalar/pow.h"
#include "ops/scalar/trig.h"
