// All mathematical functions of scalars. Their names are those of the standard library, and
// argument-dependent lookup on S finds them. docs/math-functions.md states errors and methods.
#pragma once

#include "gradus/scalar/erf.h"
#include "gradus/scalar/erfinv.h"
#include "gradus/scalar/exp.h"
#include "gradus/scalar/fast.h"
#include "gradus/scalar/gamma.h"
#include "gradus/scalar/hyperbolic.h"
#include "gradus/scalar/log.h"
#include "gradus/scalar/num.h"
#include "gradus/scalar/pow.h"
#include "gradus/scalar/trig.h"
