// Operators that rules of other families emit. A rule needs no more than the declaration, unless it
// gives attributes: so a family's header may change without the files that emit its operators.
#pragma once

namespace gradus::ops {

// arithmetic.h, rounding.h
struct Abs;
struct Add;
struct Addcmul;
struct Div;
struct Floor;
struct FloorDivide;
struct Hypot;
struct Maximum;
struct Minimum;
struct Mul;
struct Neg;
struct Pow;
struct Rsqrt;
struct Sign;
struct Sqrt;
struct Square;
struct Sub;
struct Trunc;

// comparison.h
struct Eq;
struct Ge;
struct Gt;
struct Isfinite;
struct Isnan;
struct Le;
struct LogicalAnd;
struct LogicalNot;
struct LogicalOr;
struct Lt;
struct Ne;
struct Where;

// elementary.h
struct Cos;
struct Cosh;
struct Exp;
struct Exp2;
struct Expm1;
struct Log;
struct Log1p;
struct Log2;
struct Sin;
struct Sinh;
struct Tanh;

// special.h, activation.h
struct Digamma;
struct Logsigmoid;
struct NormalCdf;
struct NormalPdf;
struct Relu;
struct Sigmoid;
struct Xlogy;

// creation.h, slicing.h, assemble.h, indexing.h
struct Detach;
struct Diagonal;
struct Index;
struct Tril;
struct Triu;

// reduction.h, extremum.h, matmul.h
struct Amax;
struct Amin;
struct ArgMax;
struct Bmm;
struct Matmul;
struct Mean;
struct Mm;
struct Sum;

}  // namespace gradus::ops
