"""Pointwise operators, activations and comparisons of torch.export's programs against PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import check, default_dtype, draw, ints

f64, f32, i64, i32 = torch.float64, torch.float32, torch.int64, torch.int32


def each(function):
    return lambda *xs: tuple(function(x) for x in xs)


SHAPES = [(3, 4), (), (2, 1, 5)]

# Functions of one operand, and where they are defined.
UNARY = {
    "neg": (torch.neg, -2, 2),
    "abs": (torch.abs, -2, 2),
    "absolute": (torch.absolute, -2, 2),
    "sign": (torch.sign, -2, 2),
    "sgn": (torch.sgn, -2, 2),
    "square": (torch.square, -2, 2),
    "positive": (torch.positive, -2, 2),
    "conj_physical": (torch.conj_physical, -2, 2),
    "angle": (lambda x: torch.angle(x) * x, -2, 2),
    "floor": (torch.floor, -4, 4),
    "ceil": (torch.ceil, -4, 4),
    "trunc": (torch.trunc, -4, 4),
    "fix": (torch.fix, -4, 4),
    "frac": (torch.frac, -4, 4),
    "round": (torch.round, -4, 4),
    "round.decimals": (lambda x: torch.round(x, decimals=2), -4, 4),
    "round.tens": (lambda x: torch.round(x * 100, decimals=-1), -4, 4),
    "reciprocal": (torch.reciprocal, 0.5, 2),
    "sqrt": (torch.sqrt, 0.2, 3),
    "rsqrt": (torch.rsqrt, 0.2, 3),
    "exp": (torch.exp, -2, 2),
    "exp2": (torch.exp2, -2, 2),
    "expm1": (torch.expm1, -2, 2),
    "log": (torch.log, 0.2, 3),
    "log2": (torch.log2, 0.2, 3),
    "log10": (torch.log10, 0.2, 3),
    "log1p": (torch.log1p, -0.5, 3),
    "sin": (torch.sin, -4, 4),
    "cos": (torch.cos, -4, 4),
    "tan": (torch.tan, -1, 1),
    "asin": (torch.asin, -0.9, 0.9),
    "acos": (torch.acos, -0.9, 0.9),
    "atan": (torch.atan, -2, 2),
    "sinh": (torch.sinh, -2, 2),
    "arcsin": (torch.arcsin, -0.9, 0.9),
    "cosh": (torch.cosh, -2, 2),
    "tanh": (torch.tanh, -2, 2),
    "asinh": (torch.asinh, -2, 2),
    "acosh": (torch.acosh, 1.2, 3),
    "atanh": (torch.atanh, -0.9, 0.9),
    "sigmoid": (torch.sigmoid, -3, 3),
    "erf": (torch.erf, -2, 2),
    "erfc": (torch.erfc, -2, 2),
    "erfinv": (torch.erfinv, -0.9, 0.9),
    "lgamma": (torch.lgamma, 0.3, 4),
    "digamma": (torch.digamma, 0.3, 4),
    "polygamma": (lambda x: torch.polygamma(1, x), 0.5, 4),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 3), 2, 5),
    "deg2rad": (torch.deg2rad, -2, 2),
    "rad2deg": (torch.rad2deg, -2, 2),
    "sinc": (torch.sinc, 0.1, 3),
    "logit": (torch.logit, 0.1, 0.9),
    "logit.eps": (lambda x: torch.logit(x, 0.3), 0.1, 0.9),
    "ndtr": (torch.special.ndtr, -2, 2),
    "ndtri": (torch.special.ndtri, 0.1, 0.9),
    "entr": (torch.special.entr, 0.1, 2),
    "nan_to_num": (torch.nan_to_num, -2, 2),
    "positive": (lambda x: x.add(1).sub(2).mul(3).div(4), -2, 2),
}
# Functions that take no bool or integer in PyTorch.
FLOATING_ONLY = {"frac", "round.decimals", "round.tens", "mvlgamma", "entr"}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    function, low, high = UNARY[name]
    check(each(function), *[draw(s, low, high, seed=i) for i, s in enumerate(SHAPES)])
    check(each(function), draw((7,), low, high, f32), order=1)


def test_entropy_at_zero():
    x = torch.tensor([0.0, 1.0, 0.3], dtype=f64)
    check(torch.special.entr, x)
    check(torch.special.entr, torch.tensor([-1.0, math.nan, math.inf], dtype=f64), order=0)


def test_all_numbers_are_real():
    check(lambda x: (torch.isreal(x), torch.isreal(x > 0)), draw((2, 3)), order=0)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in FLOATING_ONLY])
@pytest.mark.parametrize("default", [f32, f64])
def test_unary_of_integers(name, default):
    function, low, high = UNARY[name]
    values = torch.tensor([v for v in (-1, 0, 1, 2) if low <= v <= high] or [1])
    with default_dtype(default):
        check(each(function), values, values.to(i32), order=0, tolerance=1e-5)


BINARY = {
    "add": torch.add,
    "add.alpha": lambda x, y: torch.add(x, y, alpha=2.5),
    "sub": torch.sub,
    "sub.alpha": lambda x, y: torch.sub(x, y, alpha=-2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=3),
    "mul": torch.mul,
    "div": torch.div,
    "true_divide": torch.true_divide,
    "div.floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div.trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max.other": torch.max,
    "min.other": torch.min,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "pow": lambda x, y: torch.pow(x.abs() + 0.1, y),
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "copysign": torch.copysign,
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y.abs()),
    "float_power": lambda x, y: torch.float_power(x.abs() + 0.1, y),
    "ldexp": torch.ldexp,
}
PAIRS = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2, 3)), ((2, 3), ())]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    f = BINARY[name]
    pairs = [(draw(a, seed=2 * i), draw(b, seed=2 * i + 1)) for i, (a, b) in enumerate(PAIRS)]
    over = lambda *xs: tuple(f(xs[i], xs[i + 1]) for i in range(0, len(xs), 2))
    order = 1 if name in {"div.floor", "div.trunc", "ldexp"} else 2
    check(over, *[t for p in pairs for t in p], order=order)
    check(f, draw((3, 4), dtype=f32), draw((4,), dtype=f32, seed=1), order=1)


INTEGER_BINARY = [
    n
    for n in BINARY
    if n not in {"add.alpha", "logaddexp", "logaddexp2", "xlog1py", "pow", "ldexp", "hypot"}
]


@pytest.mark.parametrize("name", INTEGER_BINARY)
@pytest.mark.parametrize("default", [f32, f64])
def test_binary_of_integers(name, default):
    f = BINARY[name]
    x, y = torch.tensor([-7, -4, 5, 8, 9]), torch.tensor([2, -3, 3, -5, 4])
    with default_dtype(default):
        both = lambda x, y, z: (f(x, y), f(x, z.to(x.dtype)))
        check(both, x, y, y, order=0, tolerance=1e-5)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "maximum", "fmod", "remainder", "atan2"]
)
def test_promotion(name):
    f = BINARY[name]
    x, n, h = draw((4,)), torch.tensor([3, -2, 5, 7]), draw((4,), 1, 2, f32)
    with default_dtype(f64):
        check(lambda x, n, h: (f(x, n), f(x, h), f(h, n), f(h, x[0]), f(n, h[1])), x, n, h, order=1)


SCALARS = {
    "add": lambda x: (x + 2.5, x.add(3, alpha=2), 1 + x),
    "sub": lambda x: (x - 2, 2.5 - x),
    "mul": lambda x: (x * 3, 0.5 * x),
    "div": lambda x: (x / 2, 3 / (x + 4), x % 3),
    "rsub": lambda x: torch.rsub(x, 2, alpha=3),
    "fmod": lambda x: torch.fmod(x, 1.5),
    "div.mode": lambda x: (
        torch.div(x, 0.7, rounding_mode="floor"),
        torch.div(x, 0.7, rounding_mode="trunc"),
    ),
    "pow": lambda x: (
        x**2,
        x**3,
        x**-1,
        x**0,
        x**1,
        (x * x + 1) ** 0.5,
        (x * x + 1) ** 2.5,
        2**x,
        2.5**x,
    ),
    "clamp": lambda x: (
        x.clamp(-1, 0.5),
        x.clamp(min=-0.5),
        x.clamp(max=0.5),
        x.clamp_min(0),
        x.clamp_max(1),
        torch.clip(x, 1, 0),
    ),
    "where": lambda x: (
        torch.where(x > 0, x, 0.0),
        torch.where(x > 0, 1.5, x),
        torch.where(x > 0, 1.0, 2.0),
    ),
    "masked_fill": lambda x: (
        x.masked_fill(x > 0, 3),
        x.masked_fill(x > 0, torch.tensor(2.0, dtype=f32)),
    ),
    "xlogy": lambda x: (torch.xlogy(x, 2.0), torch.xlogy(2.0, x * x + 1)),
    "copysign": lambda x: (torch.copysign(x, -1), torch.copysign(x, 0.0), torch.copysign(x, -0.0)),
    "lerp": lambda x: (
        torch.lerp(x, x * x, 0.3),
        torch.lerp(x, x * x, 0.75),
        torch.lerp(x, x * x, x),
    ),
    "nan_to_num": lambda x: torch.nan_to_num(1 / (x - x[:1]), 0.5, 1.5, -2.5),
    "float_power": lambda x: (torch.float_power(x, 3), torch.float_power(2.0, x)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name):
    f = SCALARS[name]
    check(f, draw((3, 4)), order=1 if name in {"nan_to_num", "div"} else 2)
    check(f, draw((5,), dtype=f32), order=1)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rsub", "clamp", "where", "lerp"])
@pytest.mark.parametrize("default", [f32, f64])
def test_scalars_of_integers(name, default):
    with default_dtype(default):
        f = SCALARS[name]
        if name == "lerp":
            f = lambda x: (x**2, x**0, 2 ** x.abs(), x.clamp(0.5, 2), x.clamp(0, 2))
        if name == "where":
            f = lambda x: (
                torch.where(x > 0, x, 0),
                torch.where(x > 0, 1.5, x),
                torch.where(x > 0, 1, 2),
            )
        check(f, torch.tensor([-7, -2, 0, 3, 8]), order=0, tolerance=1e-6)


TERNARY = {
    "addcmul": lambda x, y, z: (torch.addcmul(x, y, z), torch.addcmul(x, y, z, value=0.5)),
    "addcdiv": lambda x, y, z: (torch.addcdiv(x, y, z + 4), torch.addcdiv(x, y, z + 4, value=2)),
    "lerp": torch.lerp,
    "clamp": lambda x, y, z: torch.clamp(x, y, z),
    "clamp.one": lambda x, y, z: (
        torch.clamp(x, min=y),
        torch.clamp(x, max=z),
        x.clamp_min(y),
        x.clamp_max(z),
    ),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "masked_fill": lambda x, y, z: torch.masked_fill(x, y > 0, z.sum()),
}


@pytest.mark.parametrize("name", TERNARY)
def test_ternary(name):
    f = TERNARY[name]
    check(f, draw((3, 4)), draw((3, 4), seed=1), draw((3, 4), seed=2))
    check(f, draw((3, 4)), draw((4,), seed=1), draw((3, 1), seed=2))
    check(
        f,
        draw((2, 2), dtype=f32),
        draw((2, 2), dtype=f32, seed=1),
        draw((2,), dtype=f32, seed=2),
        order=1,
    )


LOGIC = {
    "compare": lambda x, y: (
        x == y,
        x != y,
        x < y,
        x <= y,
        x > y,
        x >= y,
        torch.less(x, y),
        torch.not_equal(x, y),
    ),
    "compare.scalar": lambda x, y: (x == 1, x != 1, x < 0.5, x <= 1, x > 1, x >= 0.5),
    "logical": lambda x, y: (
        torch.logical_and(x, y),
        torch.logical_or(x, y),
        torch.logical_xor(x, y),
        torch.logical_not(x),
    ),
    "tests": lambda x, y: (
        torch.isnan(x),
        torch.isinf(x),
        torch.isfinite(x),
        torch.isposinf(x),
        torch.isneginf(x),
        torch.signbit(x),
    ),
    "isclose": lambda x, y: (
        torch.isclose(x, y),
        torch.isclose(x, y, rtol=0.5, atol=1.0),
        torch.isclose(x, y, equal_nan=True),
    ),
    "isin": lambda x, y: (torch.isin(x, y), torch.isin(x, 1), torch.isin(x, y, invert=True)),
    "where": lambda x, y: torch.where(x > y, x, y),
}
HARD = torch.tensor([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 2.0])


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name):
    f = LOGIC[name]
    check(f, HARD.double(), HARD.flip(0).double(), order=0)
    if name != "isclose":  # which takes one dtype
        check(f, HARD, HARD.double(), order=0)
    if name != "isclose":
        check(f, ints((9,), -2, 3), ints((9,), -2, 3, seed=1), order=0)


def test_bits_of_truths():
    f = lambda x, y: (
        x & y,
        x | y,
        x ^ y,
        ~x,
        torch.bitwise_and(x, y),
        torch.bitwise_not(x),
        x & True,
    )
    check(f, ints((9,), 0, 2).bool(), ints((9,), 0, 2, seed=1).bool(), order=0)


def test_bits_of_integers():
    f = lambda x, y: (x & y, x | y, x ^ y, ~x, torch.bitwise_and(x, 6), x.bitwise_or(y[:1]), x | 3)
    check(f, ints((9,), -50, 50), ints((9,), -50, 50, seed=1), order=0)
    check(f, ints((9,), 0, 50, i32), ints((9,), 0, 50, i32, seed=1), order=0)


def test_truths_in_arithmetic():
    f = lambda x, y: (
        x + y,
        x * y,
        x.to(f64) + y,
        x.sum() + y.any(),
        torch.where(x, 1, 0),
        torch.maximum(x, y),
    )
    check(f, ints((9,), 0, 2).bool(), ints((9,), 0, 2, seed=1).bool(), order=0)


def test_shifts():
    f = lambda x, n: (x << n, x >> n, x << 2, x >> 1, torch.bitwise_left_shift(x, n))
    check(f, ints((9,), -50, 50), ints((9,), 0, 5, seed=1), order=0)


def test_integers_of_other_sizes():
    i16, u16, u32, u64 = torch.int16, torch.uint16, torch.uint32, torch.uint64

    def signed(x, y):
        return x * y, x // 7, torch.maximum(x, y), x < y, x + y.to(torch.int8), x.sum(), x.to(u16)

    check(signed, ints((9,), -400, 400, i16), ints((9,), -400, 400, i16, seed=1), order=0)

    class Unsigned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.tensor([2**64 - 1, 2**63, 5], dtype=u64))
            self.register_buffer("v", torch.tensor([2**32 - 1, 7, 0], dtype=u32))

        def forward(self, x, u):
            wide = self.w.to(torch.float64) * x, self.v * x, self.v.to(torch.int64), u + 0.5
            return *wide, u.to(i16), torch.cat([u, u]), torch.sort(self.w)[0]

    check(Unsigned(), draw((3,)), ints((3,), 0, 65536, u16), order=1)


def test_casts():
    f = lambda x, n: (
        x.to(f32),
        x.to(i64),
        x.double(),
        n.to(f64),
        n.float(),
        n.bool(),
        x.type_as(n),
        x.to(n.dtype),
        x.to(torch.uint8),
        x.to(f32).to(f64) * 2,
        x.clone().to(f64, copy=True),
    )
    check(f, draw((4,), 0, 9), ints((4,)), order=1)


# Derivatives on bounds, ties and zeros are PyTorch's.
KINKS = {
    "clamp": lambda x: (x.clamp(-1, 1), x.clamp_min(0), x.clamp(max=1), x.clamp(0, 0)),
    "clamp.tensor": lambda x: (x.clamp(x.detach(), x.detach() + 1), torch.clamp(x, x * x - 1, x)),
    "maximum": lambda x: (torch.maximum(x, x * x), torch.fmax(x, x * x), torch.fmin(x, x * x)),
    "abs": lambda x: (x.abs(), x.sign() * x),
    "relu": lambda x: (F.relu(x), F.relu6(x * 6), F.hardtanh(x), F.hardswish(3 * x)),
    "shrink": lambda x: (F.softshrink(x, 1.0), F.hardshrink(x, 1.0), F.threshold(x, 1.0, 0.5)),
    "elu": lambda x: (F.elu(x), F.elu(x, 1.5), F.celu(x, 2.0), F.selu(x), F.leaky_relu(x, 0.1)),
    "softsign": lambda x: (F.softsign(x), F.tanhshrink(x), F.softplus(x, 1, 1.0)),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "silu": lambda x: (F.silu(x), F.mish(x), F.gelu(x)),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks(name):
    check(KINKS[name], torch.tensor([-1.0, 0.0, 1.0, 0.5, -1.0, 1.0, -0.0], dtype=f64))


def test_kinks_of_first_order():
    zero = torch.zeros(3, dtype=f64)
    f = lambda x, y: (
        torch.atan2(x, y),
        x**2,
        x**0,
        torch.xlogy(x, y + 1),
        torch.hypot(x, y + 1),
        torch.copysign(x, y),
    )
    check(f, zero, torch.tensor([0.0, 1.0, -0.5], dtype=f64), order=1)


def test_sinc_at_zero():
    """Its second derivative is -pi^2 / 3 there."""
    x = torch.tensor([0.0, 1e-3, 0.05, -0.079, 0.0796, 0.08], dtype=f64)
    check(torch.sinc, x, order=1, tolerance=1e-9)


ACTIVATIONS = {
    "relu": F.relu,
    "relu6": lambda x: F.relu6(4 * x),
    "gelu": F.gelu,
    "gelu.tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "elu": lambda x: F.elu(x, 0.7),
    "elu.scaled": lambda x: torch.ops.aten.elu(x, 0.7, 1.3, 0.6),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "rrelu": lambda x: F.rrelu(x),
    "hardswish": lambda x: F.hardswish(2 * x),
    "hardtanh": lambda x: F.hardtanh(x, -1, 1.5),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "softsign": F.softsign,
    "threshold": lambda x: F.threshold(x, 0.3, 2.0),
    "logsigmoid": F.logsigmoid,
    "softmax": lambda x: x if x.dim() == 0 else F.softmax(x, 0),
    "softmin": lambda x: F.softmin(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "dropout": lambda x: F.dropout(x, 0.3, False) * 2,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, False) * 2,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    f = each(ACTIVATIONS[name])
    check(f, *[draw(s, seed=i) for i, s in enumerate(SHAPES)])
    check(f, draw((7,), dtype=f32), order=1)


def test_other_activations():
    check(lambda x: (F.glu(x), F.glu(x, 0)), draw((2, 6)))
    check(lambda x, w: F.prelu(x, w), draw((2, 3, 4)), draw((3,), seed=1))
    check(lambda x, w: F.prelu(x, w), draw((2, 3)), draw((1,), seed=1))
    check(
        lambda x: torch.softmax(x, 1, dtype=f64), draw((2, 5), dtype=f32), order=1, tolerance=1e-4
    )
    check(lambda x: torch._safe_softmax(x.masked_fill(x > 0, -math.inf), 1), draw((3, 4)))
    check(lambda x: F.hardsigmoid(2 * x), draw((3, 4)), order=1, tolerance=1e-7)
    check(
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.PReLU(4), torch.nn.Dropout(0.5))
        .double()
        .eval(),
        draw((2, 3)),
    )


@pytest.mark.parametrize(
    "f", [lambda x: F.dropout(x, 0.5, True), lambda x: F.rrelu(x, training=True)]
)
def test_random_numbers_are_refused(f):
    with pytest.raises(gradus.Error, match="export the model in eval mode"):
        check(f, draw((3, 4)), order=0)


def test_sizes_with_names():
    f = lambda x, y: (
        torch.addcmul(x, x, y), x.clamp(y, y + 1), torch.where(x > y, 1.0, 2.0), torch.atan2(x, y),
        F.softmax(x, 0), F.glu(x, 0), F.gelu(x), torch.logaddexp(x, y[:1]), torch.lerp(x, y, 0.3),
    )  # fmt: skip
    check(f, draw((6, 3)), draw((6, 3), seed=1), dynamic=True)
