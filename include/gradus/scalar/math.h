// The vector functions of the scalar world: names as in the standard library, found by
// argument-dependent lookup on S. Errors and methods: docs/math-functions.md.
#pragma once

#include "gradus/scalar/erf.h"
#include "gradus/scalar/erfinv.h"
#include "gradus/scalar/exp.h"
#include "gradus/scalar/gamma.h"
#include "gradus/scalar/hyperbolic.h"
#include "gradus/scalar/log.h"
#include "gradus/scalar/num.h"
#include "gradus/scalar/pow.h"
#include "gradus/scalar/trig.h"
