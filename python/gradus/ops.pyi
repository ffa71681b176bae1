"""Made by scripts/python-stubs from the table of operators."""

from collections.abc import Sequence
from typing import Any

from ._gradus import ArrayLike, DType, Tensor

def abs(x: ArrayLike) -> Tensor:
    """y = |x|; its derivative at 0 is 0"""

def acos(x: ArrayLike) -> Tensor:
    """y = arccos(x)"""

def acosh(x: ArrayLike) -> Tensor:
    """y = log(x + sqrt(x^2 - 1)), x >= 1"""

def adaptive_avg_pool2d(x: ArrayLike, *, output_size: Any) -> Tensor:
    """y = the mean of x over each of output_size windows"""

def adaptive_max_pool2d(x: ArrayLike, *, output_size: Any) -> Tensor:
    """y = the greatest x of each of output_size windows"""

def add(x: ArrayLike, y: ArrayLike, *, alpha: float = 1) -> Tensor:
    """z = x + alpha * y"""

def addcdiv(x: ArrayLike, t1: ArrayLike, t2: ArrayLike, *, value: float = 1) -> Tensor:
    """y = x + value * t1 / t2"""

def addcmul(x: ArrayLike, t1: ArrayLike, t2: ArrayLike, *, value: float = 1) -> Tensor:
    """y = x + value * t1 * t2"""

def addmm(c: ArrayLike, a: ArrayLike, b: ArrayLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """y = beta * c + alpha * a b, matrices; c broadcasts"""

def all(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = whether no x is zero"""

def amax(
    x: ArrayLike, *, dim: Any = None, keepdim: bool = False, allow_empty: bool = False
) -> Tensor:
    """y = greatest x over dim, NaN if there is one; equal ones share the gradient evenly"""

def amin(
    x: ArrayLike, *, dim: Any = None, keepdim: bool = False, allow_empty: bool = False
) -> Tensor:
    """y = least x over dim, NaN if there is one; equal ones share the gradient evenly"""

def any(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = whether an x is not zero (NaN is not)"""

def arange(*, start: float = 0, end: Any, step: float = 1, dtype: Any = None) -> Tensor:
    """y[i] = start + i*step, up to end"""

def argmax(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = the first place of the greatest x along dim, or in all of x"""

def argmin(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = the first place of the least x along dim, or in all of x"""

def argsort(x: ArrayLike, *, dim: float = -1, descending: bool = False) -> Tensor:
    """y = sort(x)'s indices"""

def as_strided(x: ArrayLike, *, size: Any, stride: Any, offset: float = 0) -> Tensor:
    """y[i, j, ..] = x_flat[offset + i*stride0 + j*stride1 ..]"""

def as_strided_sum(x: ArrayLike, *, shape: Any, stride: Any, offset: float = 0) -> Tensor:
    """y = zeros(shape); y_flat[offset + i*stride0 ..] += x[i, ..]"""

def asin(x: ArrayLike) -> Tensor:
    """y = arcsin(x)"""

def asinh(x: ArrayLike) -> Tensor:
    """y = log(x + sqrt(x^2 + 1))"""

def atan(x: ArrayLike) -> Tensor:
    """y = arctan(x)"""

def atan2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = atan(x / y) in the quadrant of (y, x)"""

def atanh(x: ArrayLike) -> Tensor:
    """y = log((1 + x) / (1 - x)) / 2"""

def avg_pool1d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], ceil_mode:
    bool = False, count_include_pad: bool = True
) -> Tensor:
    """y = the mean of x over each window"""

def avg_pool2d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], ceil_mode:
    bool = False, count_include_pad: bool = True
) -> Tensor:
    """y = the mean of x over each window"""

def avg_pool3d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], ceil_mode:
    bool = False, count_include_pad: bool = True
) -> Tensor:
    """y = the mean of x over each window"""

def baddbmm(
    c: ArrayLike, a: ArrayLike, b: ArrayLike, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """y[i] = beta * c[i] + alpha * a[i] b[i], stacks of matrices; c broadcasts"""

def batch_norm_eval(
    x: ArrayLike, mean: ArrayLike, var: ArrayLike, w: ArrayLike | None = None, b: ArrayLike | None =
    None, *, eps: float = 1e-05
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * w + b; mean, var are constants"""

def batch_norm_train(
    x: ArrayLike, w: ArrayLike | None = None, b: ArrayLike | None = None, *, eps: float = 1e-05
) -> Tensor:
    """y = standardize(x over all but its channels) * w + b"""

def bce(
    p: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = 'mean'
) -> Tensor:
    """y = reduce(-weight * (target * log p + (1 - target) * log(1 - p)))"""

def bce_with_logits(
    x: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, pos_weight: ArrayLike | None =
    None, *, reduction: str = 'mean'
) -> Tensor:
    """y = reduce(-weight * (pos_weight * target * log s(x) + (1 - target) * log(1 - s(x)))), s =
    sigmoid
    """

def bilinear(x1: ArrayLike, x2: ArrayLike, w: ArrayLike, b: ArrayLike | None = None) -> Tensor:
    """y[.., o] = sum over i, j of x1[.., i] w[o, i, j] x2[.., j] + b[o]"""

def bmm(a: ArrayLike, b: ArrayLike) -> Tensor:
    """y[i] = a[i] b[i] of two stacks of matrices"""

def cast(x: ArrayLike, *, dtype: Any) -> Tensor:
    """y = x as another dtype"""

def cat(*x: ArrayLike | Sequence[ArrayLike] | None, dim: float = 0) -> Tensor:
    """y = the operands one after the other along `dim`"""

def ceil(x: ArrayLike) -> Tensor:
    """y = the smallest integer >= x"""

def celu(x: ArrayLike, *, alpha: float = 1.0) -> Tensor:
    """y = x > 0 ? x : alpha * (e^(x / alpha) - 1)"""

def cholesky(x: ArrayLike) -> Tensor:
    """lower triangular y with y y^T = x, x positive definite"""

def chunk(x: ArrayLike, *, chunks: Any, dim: float = 0) -> tuple[Tensor, ...]:
    """x cut along `dim` into at most `chunks` equal parts"""

def clamp(x: ArrayLike, *, min: Any = None, max: Any = None) -> Tensor:
    """y = x kept within [min, max]; derivative 1 on the bounds"""

def clone(x: ArrayLike) -> Tensor:
    """y = x, in memory of its own"""

def cofactor(x: ArrayLike) -> Tensor:
    """y = d det(x) / dx, the cofactors of x"""

def cofactor_along(x: ArrayLike, v: ArrayLike) -> Tensor:
    """y = d sum(v * cofactor(x)) / dx, linear in v"""

def constant_pad_nd(x: ArrayLike, *, pad: Any, value: float = 0.0) -> Tensor:
    """y[.., i, ..] = x[.., i - before, ..], `value` outside of x"""

def contiguous(x: ArrayLike) -> Tensor:
    """y = x, in row-major order"""

def conv1d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """y = convolution(x, w) + b, one b per channel"""

def conv2d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """y = convolution(x, w) + b, one b per channel"""

def conv3d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """y = convolution(x, w) + b, one b per channel"""

def conv_transpose1d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], output_padding: int | Sequence[int] = [0], groups: float =
    1, dilation: int | Sequence[int] = [1]
) -> Tensor:
    """y = convolution_input(x, w) + b, of (size - 1)*stride - 2*padding + dilation*(kernel - 1) +
    output_padding + 1
    """

def conv_transpose2d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], output_padding: int | Sequence[int] = [0], groups: float =
    1, dilation: int | Sequence[int] = [1]
) -> Tensor:
    """y = convolution_input(x, w) + b, of (size - 1)*stride - 2*padding + dilation*(kernel - 1) +
    output_padding + 1
    """

def conv_transpose3d(
    x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, *, stride: int | Sequence[int] = [1],
    padding: int | Sequence[int] = [0], output_padding: int | Sequence[int] = [0], groups: float =
    1, dilation: int | Sequence[int] = [1]
) -> Tensor:
    """y = convolution_input(x, w) + b, of (size - 1)*stride - 2*padding + dilation*(kernel - 1) +
    output_padding + 1
    """

def convolution(
    x: ArrayLike, w: ArrayLike, *, stride: int | Sequence[int] = [1], padding: int | Sequence[int] =
    [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """y[n, o, i] = sum over c, k of w[o, c, k] * x[n, c, i*stride - padding + k*dilation]"""

def convolution_input(
    dy: ArrayLike, w: ArrayLike, *, size: Any, stride: int | Sequence[int] = [1], padding: int |
    Sequence[int] = [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """dx of y = convolution(x, w), for x of spatial sizes `size`"""

def convolution_weight(
    x: ArrayLike, dy: ArrayLike, *, kernel: Any, stride: int | Sequence[int] = [1], padding: int |
    Sequence[int] = [0], dilation: int | Sequence[int] = [1], groups: float = 1
) -> Tensor:
    """dw of y = convolution(x, w), for w of spatial sizes `kernel`"""

def cos(x: ArrayLike) -> Tensor:
    """y = cos(x)"""

def cosh(x: ArrayLike) -> Tensor:
    """y = (e^x + e^-x) / 2"""

def cosine_similarity(x: ArrayLike, y: ArrayLike, *, dim: float = 1, eps: float = 1e-08) -> Tensor:
    """s = sum of x y over dim / (|x| |y|), lengths over dim, each at least eps"""

def cross_entropy(
    x: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = 'mean',
    ignore_index: float = -100, label_smoothing: float = 0.0
) -> Tensor:
    """y = nll_loss(log_softmax(x), target), or with probabilities"""

def cummax(x: ArrayLike, *, dim: Any) -> tuple[Tensor, Tensor]:
    """values[i] = max(x[0], ..., x[i]), and where it is"""

def cumprod(x: ArrayLike, *, dim: Any, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """y[i] = x[0] * ... * x[i] along dim"""

def cumsum(x: ArrayLike, *, dim: Any, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """y[i] = x[0] + ... + x[i] along dim"""

def det(x: ArrayLike) -> Tensor:
    """y = the determinant of x"""

def detach(x: ArrayLike) -> Tensor:
    """y = x, without a derivative"""

def diag_embed(x: ArrayLike, *, offset: float = 0, dim1: float = -2, dim2: float = -1) -> Tensor:
    """y = zeros; y[.., i, .., i + offset, ..] = x[.., i]"""

def diagonal(x: ArrayLike, *, offset: float = 0, dim1: float = 0, dim2: float = 1) -> Tensor:
    """y[.., i] = x[.., i, .., i + offset, ..]"""

def digamma(x: ArrayLike) -> Tensor:
    """y = d log |Gamma(x)| / dx"""

def div(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x / y; integers give f32"""

def dot(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = sum of x * y of two vectors"""

def einsum(*t: ArrayLike | Sequence[ArrayLike] | None, equation: Any) -> Tensor:
    """the sum of products that the equation names, "ij,jk->ik"
    """

def elu(x: ArrayLike, *, alpha: float = 1.0) -> Tensor:
    """y = x > 0 ? x : alpha * (e^x - 1)"""

def embedding(weight: ArrayLike, index: ArrayLike, *, padding_idx: Any = None) -> Tensor:
    """y[.., k] = weight[index[..], k]"""

def embedding_bag(weight: ArrayLike, index: ArrayLike, *, mode: str = 'mean') -> Tensor:
    """y[b] = the mean, sum or max of weight[index[b, ..]]"""

def eq(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x == y"""

def erf(x: ArrayLike) -> Tensor:
    """y = 2 / sqrt(pi) * integral of e^-t^2 from 0 to x"""

def erfc(x: ArrayLike) -> Tensor:
    """y = 1 - erf(x)"""

def erfinv(x: ArrayLike) -> Tensor:
    """erf(y) = x"""

def exp(x: ArrayLike) -> Tensor:
    """y = e^x"""

def exp2(x: ArrayLike) -> Tensor:
    """y = 2^x"""

def expand(x: ArrayLike, *, shape: Any) -> Tensor:
    """y[.., i, ..] = x[.., 0, ..] where x has size 1; -1 keeps"""

def expm1(x: ArrayLike) -> Tensor:
    """y = e^x - 1"""

def eye(*, n: Any, m: Any = None, dtype: DType | str = DType.f32) -> Tensor:
    """y[i, j] = 1 if i = j else 0"""

def flatten(x: ArrayLike, *, start_dim: float = 0, end_dim: float = -1) -> Tensor:
    """y = x, start_dim .. end_dim as one"""

def flip(x: ArrayLike, *, dims: Any) -> Tensor:
    """y[.., i, ..] = x[.., n - 1 - i, ..] for `dims`"""

def floor(x: ArrayLike) -> Tensor:
    """y = the largest integer <= x"""

def floor_divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = floor(x / y)"""

def fmax(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = max(x, y), the other one if one is NaN; ties: x"""

def fmin(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = min(x, y), the other one if one is NaN; ties: x"""

def fmod(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x - y * trunc(x / y), the sign of x"""

def fold_col2im(
    x: ArrayLike, *, output_size: Any, kernel: Any, dilation: int | Sequence[int] = [1], padding:
    int | Sequence[int] = [0], stride: int | Sequence[int] = [1]
) -> Tensor:
    """y = zeros; y[n, c, i*stride - padding + p*dilation, ..] += x[n, (c, p, q), (i, j)]"""

def frac(x: ArrayLike) -> Tensor:
    """y = x - trunc(x)"""

def full(*, shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """y[..] = value"""

def full_like(x: ArrayLike, *, value: Any, dtype: Any = None) -> Tensor:
    """y[..] = value, of x's shape and dtype"""

def gather(x: ArrayLike, index: ArrayLike, *, dim: Any) -> Tensor:
    """y[i, j, ..] = x[i, index[i, j, ..], ..] along `dim`"""

def gaussian_nll_loss(
    x: ArrayLike, target: ArrayLike, var: ArrayLike, *, reduction: str = 'mean', eps: float = 1e-06
) -> Tensor:
    """y = reduce((log v + (x - target)^2 / v) / 2), v = max(var, eps)"""

def ge(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x >= y"""

def gelu(x: ArrayLike, *, approximate: str = 'none') -> Tensor:
    """y = x * normal_cdf(x), or x / (1 + e^(-2 c (x + 0.044715 x^3)))"""

def glu(x: ArrayLike, *, dim: float = -1) -> Tensor:
    """y = a * sigmoid(b), the halves of x along dim"""

def group_norm(
    x: ArrayLike, w: ArrayLike | None = None, b: ArrayLike | None = None, *, groups: Any, eps: float
    = 1e-05
) -> Tensor:
    """y = standardize(x over each group of channels) * w + b"""

def gt(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x > y"""

def hardshrink(x: ArrayLike, *, lambd: float = 0.5) -> Tensor:
    """y = |x| <= lambd ? 0 : x"""

def hardtanh(x: ArrayLike, *, min: float = -1, max: float = 1) -> Tensor:
    """y = x kept within [min, max]; derivative 0 on the bounds"""

def hinge_embedding_loss(
    x: ArrayLike, target: ArrayLike, *, margin: float = 1.0, reduction: str = 'mean'
) -> Tensor:
    """y = reduce(target = 1 ? x : max(margin - x, 0)), target 1 or -1"""

def huber_loss(
    x: ArrayLike, target: ArrayLike, *, reduction: str = 'mean', delta: float = 1.0
) -> Tensor:
    """y = reduce(z <= delta ? z^2 / 2 : delta (z - delta / 2)), z = |x - target|"""

def hypot(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = sqrt(x^2 + y^2) without overflow"""

def index(x: ArrayLike, *idx: ArrayLike | Sequence[ArrayLike] | None, count: Any = None) -> Tensor:
    """y = x[idx_0, idx_1, ..], where `none` takes all"""

def index_add(
    x: ArrayLike, index: ArrayLike, src: ArrayLike, *, dim: Any, alpha: float = 1
) -> Tensor:
    """y = x; y[.., index[i], ..] += alpha * src[.., i, ..]"""

def index_copy(x: ArrayLike, index: ArrayLike, src: ArrayLike, *, dim: Any) -> Tensor:
    """y = x, but y[.., index[i], ..] = src[.., i, ..]"""

def index_fill(x: ArrayLike, index: ArrayLike, *, dim: Any, value: Any) -> Tensor:
    """y = x, but y[.., index[i], ..] = value"""

def index_put(
    x: ArrayLike, values: ArrayLike, *idx: ArrayLike | Sequence[ArrayLike] | None, accumulate: bool
    = False, count: Any = None
) -> Tensor:
    """y = x, but y[idx_0, idx_1, ..] = values (or += )"""

def index_select(x: ArrayLike, index: ArrayLike, *, dim: Any) -> Tensor:
    """y[.., i, ..] = x[.., index[i], ..]"""

def instance_norm(
    x: ArrayLike, w: ArrayLike | None = None, b: ArrayLike | None = None, *, eps: float = 1e-05
) -> Tensor:
    """y = standardize(x over each channel of each sample) * w + b"""

def inverse(x: ArrayLike) -> Tensor:
    """y with x y = 1; a singular x is refused"""

def isfinite(x: ArrayLike) -> Tensor:
    """y = x is neither NaN nor an infinity"""

def isinf(x: ArrayLike) -> Tensor:
    """y = x is an infinity of either sign"""

def isnan(x: ArrayLike) -> Tensor:
    """y = x is NaN"""

def kl_div(
    logq: ArrayLike, p: ArrayLike, *, reduction: str = 'mean', log_target: bool = False
) -> Tensor:
    """y = reduce(p (log p - logq)); with log_target, p is given by its logarithm"""

def kthvalue(x: ArrayLike, *, k: Any, dim: float = -1) -> tuple[Tensor, Tensor]:
    """value = the k-th least of x along dim, index = where it was"""

def l1_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = 'mean') -> Tensor:
    """y = reduce(|x - target|)"""

def layer_norm(
    x: ArrayLike, w: ArrayLike | None = None, b: ArrayLike | None = None, *, normalized_shape: Any,
    eps: float = 1e-05
) -> Tensor:
    """y = standardize(x over its last dimensions) * w + b"""

def le(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x <= y"""

def leaky_relu(x: ArrayLike, *, slope: float = 0.01) -> Tensor:
    """y = x > 0 ? x : slope * x"""

def lerp(start: ArrayLike, end: ArrayLike, weight: ArrayLike) -> Tensor:
    """y = start + weight * (end - start)"""

def lgamma(x: ArrayLike) -> Tensor:
    """y = log |Gamma(x)|"""

def linear(x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None) -> Tensor:
    """y = x w^T + b over the last dimension"""

def linear_recurrence(a: ArrayLike, b: ArrayLike, *, dim: Any, reverse: bool = False) -> Tensor:
    """y[0] = 0, y[i] = a[i-1] * y[i-1] + b[i-1] along dim"""

def linspace(*, start: Any, end: Any, steps: Any, dtype: DType | str = DType.f32) -> Tensor:
    """y[i] = start + i * (end - start) / (steps - 1)"""

def local_response_norm(
    x: ArrayLike, *, size: Any, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """y = x / (k + alpha * mean of x^2 over nearby channels)^beta"""

def log(x: ArrayLike) -> Tensor:
    """y = log(x)"""

def log10(x: ArrayLike) -> Tensor:
    """y = log(x) / log(10)"""

def log1p(x: ArrayLike) -> Tensor:
    """y = log(1 + x)"""

def log2(x: ArrayLike) -> Tensor:
    """y = log(x) / log(2)"""

def log_softmax(x: ArrayLike, *, dim: Any) -> Tensor:
    """y = x - log(sum of e^x along dim)"""

def logaddexp(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = log(e^x + e^y)"""

def logcumsumexp(x: ArrayLike, *, dim: Any) -> Tensor:
    """y[i] = log(exp(x[0]) + ... + exp(x[i])) along dim"""

def logical_and(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x and y"""

def logical_not(x: ArrayLike) -> Tensor:
    """y = not x"""

def logical_or(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x or y"""

def logical_xor(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x or y, not both"""

def logsigmoid(x: ArrayLike) -> Tensor:
    """y = log(1 / (1 + e^-x))"""

def logsumexp(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = log(sum of exp(x) over dim)"""

def lp_pool2d(x: ArrayLike, *, p: Any, kernel: Any, stride: Any = None) -> Tensor:
    """y = (sum of x^p over each window)^(1/p)"""

def lt(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x < y"""

def masked_fill(x: ArrayLike, mask: ArrayLike, *, value: Any) -> Tensor:
    """y = value where mask, else x"""

def masked_scatter(x: ArrayLike, mask: ArrayLike, src: ArrayLike) -> Tensor:
    """y = mask ? the next element of src : x"""

def masked_select(x: ArrayLike, mask: ArrayLike, *, count: Any = None) -> Tensor:
    """y[k] = x where the k-th place of mask is true"""

def matmul(a: ArrayLike, b: ArrayLike, *, transpose_b: bool = False) -> Tensor:
    """y = a b, or a b^T, over the last two dimensions, the others broadcast; a 1-d operand is a row
    on the left, a column on the right
    """

def max_all(x: ArrayLike) -> Tensor:
    """y = amax(x), over all dimensions"""

def max_dim(x: ArrayLike, *, dim: Any, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """values = the greatest x along dim, indices = the first place it is at"""

def max_pool(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], dilation:
    int | Sequence[int] = [1], ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """values = the greatest x of each window, indices = where it is in x[n, c], row-major"""

def max_pool1d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], dilation:
    int | Sequence[int] = [1], ceil_mode: bool = False
) -> Tensor:
    """y = the greatest x of each window"""

def max_pool2d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], dilation:
    int | Sequence[int] = [1], ceil_mode: bool = False
) -> Tensor:
    """y = the greatest x of each window"""

def max_pool2d_idx(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], dilation:
    int | Sequence[int] = [1], ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """y = max_pool2d(x), indices = where it is in x[n, c], h*W + w"""

def max_pool3d(
    x: ArrayLike, *, kernel: Any, stride: Any = None, padding: int | Sequence[int] = [0], dilation:
    int | Sequence[int] = [1], ceil_mode: bool = False
) -> Tensor:
    """y = the greatest x of each window"""

def maximum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = max(x, y), NaN if either is; ties halve the gradient"""

def mean(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = mean of x over dim; of nothing, NaN"""

def median_dim(x: ArrayLike, *, dim: float = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """value = the middle one of x in order along dim, index = its place"""

def meshgrid(*x: ArrayLike | Sequence[ArrayLike] | None) -> tuple[Tensor, ...]:
    """y_k[i_0, i_1, ..] = x_k[i_k]"""

def min_all(x: ArrayLike) -> Tensor:
    """y = amin(x), over all dimensions"""

def min_dim(x: ArrayLike, *, dim: Any, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """values = the least x along dim, indices = the first place it is at"""

def minimum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = min(x, y), NaN if either is; ties halve the gradient"""

def mish(x: ArrayLike) -> Tensor:
    """y = x * tanh(log(1 + e^x))"""

def mm(a: ArrayLike, b: ArrayLike) -> Tensor:
    """y = a b of two matrices"""

def movedim(x: ArrayLike, *, source: Any, destination: Any) -> Tensor:
    """y = x with dimensions `source` at `destination`"""

def mse_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = 'mean') -> Tensor:
    """y = reduce((x - target)^2)"""

def mul(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x * y"""

def mv(a: ArrayLike, x: ArrayLike) -> Tensor:
    """y = a x of a matrix and a vector"""

def nan_to_num(x: ArrayLike, *, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """y = x, NaN and infinities replaced (by the dtype's extremes)"""

def narrow(x: ArrayLike, *, dim: Any, start: Any, length: Any) -> Tensor:
    """y[.., i, ..] = x[.., start + i, ..], i < length"""

def ne(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x != y"""

def neg(x: ArrayLike) -> Tensor:
    """y = -x"""

def nll_loss(
    logp: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = 'mean',
    ignore_index: float = -100
) -> Tensor:
    """y = reduce(-weight[target] * logp[target]); the mean by weight"""

def nonzero(x: ArrayLike, *, count: Any = None) -> Tensor:
    """y[k, d] = the k-th place of x != 0 along dimension d"""

def norm(x: ArrayLike, *, p: float = 2.0, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = (sum of |x|^p over dim)^(1/p); p may be 0, inf or -inf"""

def normal(key: ArrayLike, *, shape: Any, dtype: DType | str = DType.f32) -> Tensor:
    """random y[i], of mean 0 and variance 1"""

def normal_cdf(x: ArrayLike) -> Tensor:
    """y = erfc(-x / sqrt(2)) / 2"""

def normal_pdf(x: ArrayLike) -> Tensor:
    """y = e^(-x^2 / 2) / sqrt(2 pi)"""

def normalize(x: ArrayLike, *, p: float = 2.0, dim: float = 1, eps: float = 1e-12) -> Tensor:
    """y = x / max(norm(x over dim), eps)"""

def one_hot(x: ArrayLike, *, classes: Any) -> Tensor:
    """y[.., c] = 1 if c = x[..] else 0, as i64"""

def one_minus_square(x: ArrayLike) -> Tensor:
    """y = 1 - x^2"""

def outer(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z[i, j] = x[i] * y[j]"""

def pad(x: ArrayLike, *, pad: Any, mode: str = 'constant', value: float = 0.0) -> Tensor:
    """y = x with borders: constant, reflect, replicate, circular"""

def pairwise_distance(x: ArrayLike, y: ArrayLike, *, p: float = 2.0, eps: float = 1e-06) -> Tensor:
    """d = norm(x - y + eps) over the last dimension"""

def permute(x: ArrayLike, *, dims: Any) -> Tensor:
    """dimension k of y is dims[k] of x"""

def pixel_shuffle(x: ArrayLike, *, r: Any) -> Tensor:
    """y[.., c, i*r + p, j*r + q] = x[.., (c*r + p)*r + q, i, j]"""

def poisson_nll_loss(
    x: ArrayLike, target: ArrayLike, *, log_input: bool = True, full: bool = False, eps: float =
    1e-08, reduction: str = 'mean'
) -> Tensor:
    """y = reduce(e^x - target x), or of x - target log(x + eps); full adds log(target!), by
    Stirling
    """

def polygamma(x: ArrayLike, *, n: Any) -> Tensor:
    """y = the n-th derivative of digamma(x), n from 0 to 30"""

def pow(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x^y"""

def prelu(x: ArrayLike, w: ArrayLike) -> Tensor:
    """y = x > 0 ? x : w * x, w per channel"""

def prod(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = product of x over dim; integers and bool multiply as i64"""

def random_bits(key: ArrayLike, *, shape: Any) -> Tensor:
    """y[i] = number i of key, in [0, 2^32)"""

def reciprocal(x: ArrayLike) -> Tensor:
    """y = 1 / x"""

def relu(x: ArrayLike) -> Tensor:
    """y = max(x, 0); its derivative at 0 is 0"""

def relu6(x: ArrayLike) -> Tensor:
    """y = min(max(x, 0), 6); derivative 0 at 0 and 6"""

def remainder(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x - y * floor(x / y), the sign of y"""

def repeat(x: ArrayLike, *, repeats: Any) -> Tensor:
    """y = x, repeats[k] times along dimension k"""

def repeat_interleave(x: ArrayLike, *, repeats: Any, dim: Any = None) -> Tensor:
    """y[.., i, ..] = x[.., i // repeats, ..]; flat without `dim`"""

def reshape(x: ArrayLike, *, shape: Any) -> Tensor:
    """y: the elements of x in row-major order; one size may be -1"""

def roll(x: ArrayLike, *, shifts: Any, dims: int | Sequence[int] = []) -> Tensor:
    """y[.., (i + shift) mod n, ..] = x[.., i, ..]; flat without `dims`"""

def round(x: ArrayLike) -> Tensor:
    """y = the integer nearest to x, ties to even"""

def rsqrt(x: ArrayLike) -> Tensor:
    """y = 1 / sqrt(x)"""

def scatter(x: ArrayLike, index: ArrayLike, src: ArrayLike, *, dim: Any) -> Tensor:
    """y = x, but y[i, index[i, j, ..], ..] = src[i, j, ..]"""

def scatter_add(x: ArrayLike, index: ArrayLike, src: ArrayLike, *, dim: Any) -> Tensor:
    """y = x; y[i, index[i, j, ..], ..] += src[i, j, ..]"""

def select(x: ArrayLike, *, dim: Any, index: Any) -> Tensor:
    """y[..] = x[.., index, ..]"""

def select_scatter(x: ArrayLike, src: ArrayLike, *, dim: Any, index: Any) -> Tensor:
    """y = x, but y[.., index, ..] = src"""

def selu(x: ArrayLike) -> Tensor:
    """y = 1.0507... * (x > 0 ? x : 1.6733... * (e^x - 1))"""

def sigmoid(x: ArrayLike) -> Tensor:
    """y = 1 / (1 + e^-x)"""

def sign(x: ArrayLike) -> Tensor:
    """y = 1 if x > 0, -1 if x < 0, else 0"""

def silu(x: ArrayLike) -> Tensor:
    """y = x / (1 + e^-x)"""

def sin(x: ArrayLike) -> Tensor:
    """y = sin(x)"""

def sinh(x: ArrayLike) -> Tensor:
    """y = (e^x - e^-x) / 2"""

def slice(
    x: ArrayLike, *, dim: float = 0, start: Any = None, end: Any = None, step: float = 1
) -> Tensor:
    """y[.., i, ..] = x[.., start + i*step, ..], up to end"""

def slice_scatter(
    x: ArrayLike, src: ArrayLike, *, dim: float = 0, start: Any = None, end: Any = None, step: float
    = 1
) -> Tensor:
    """y = x, but y[.., start:end:step, ..] = src"""

def smooth_l1_loss(
    x: ArrayLike, target: ArrayLike, *, reduction: str = 'mean', beta: float = 1.0
) -> Tensor:
    """y = reduce(z < beta ? z^2 / (2 beta) : z - beta / 2), z = |x - target|"""

def soft_margin_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = 'mean') -> Tensor:
    """y = reduce(log(1 + e^(-target x)))"""

def softmax(x: ArrayLike, *, dim: Any) -> Tensor:
    """y = e^x / sum of e^x along dim"""

def softmin(x: ArrayLike, *, dim: Any) -> Tensor:
    """y = softmax(-x)"""

def softplus(x: ArrayLike, *, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """y = log(1 + e^(beta * x)) / beta; x where beta * x > threshold"""

def softshrink(x: ArrayLike, *, lambd: float = 0.5) -> Tensor:
    """y = x - lambd if x > lambd, x + lambd if x < -lambd, else 0"""

def softsign(x: ArrayLike) -> Tensor:
    """y = x / (1 + |x|)"""

def sort(x: ArrayLike, *, dim: float = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """values = x in order along dim, indices = where they were"""

def split(x: ArrayLike, *, sizes: Any, dim: float = 0) -> tuple[Tensor, ...]:
    """x cut along `dim` into these sizes"""

def sqrt(x: ArrayLike) -> Tensor:
    """y = sqrt(x)"""

def square(x: ArrayLike) -> Tensor:
    """y = x * x"""

def squeeze(x: ArrayLike, *, dim: Any = None) -> Tensor:
    """y = x without `dim` if its size is 1; without any such"""

def stack(*x: ArrayLike | Sequence[ArrayLike] | None, dim: float = 0) -> Tensor:
    """y = the operands along a new `dim`"""

def standardize(x: ArrayLike, *, dim: Any = None, eps: float = 1e-05) -> tuple[Tensor, Tensor]:
    """scale = 1 / sqrt(var + eps), y = (x - mean) * scale, with the mean and the biased variance of
    x over dim
    """

def std(x: ArrayLike, *, dim: Any = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """y = sqrt(var(x)); where that is 0, its derivative too"""

def sub(x: ArrayLike, y: ArrayLike, *, alpha: float = 1) -> Tensor:
    """z = x - alpha * y"""

def sum(x: ArrayLike, *, dim: Any = None, keepdim: bool = False) -> Tensor:
    """y = sum of x over dim; integers and bool add up as i64"""

def take(x: ArrayLike, index: ArrayLike) -> Tensor:
    """y[..] = x_flat[index[..]]"""

def tan(x: ArrayLike) -> Tensor:
    """y = tan(x)"""

def tanh(x: ArrayLike) -> Tensor:
    """y = (e^x - e^-x) / (e^x + e^-x)"""

def tanhshrink(x: ArrayLike) -> Tensor:
    """y = x - tanh(x)"""

def threshold(x: ArrayLike, *, threshold: Any, value: Any) -> Tensor:
    """y = x <= threshold ? value : x"""

def tile(x: ArrayLike, *, dims: Any) -> Tensor:
    """y = x, dims[k] times; missing leading counts are 1"""

def topk(x: ArrayLike, *, k: Any, dim: float = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """values = the k greatest (or least) of x along dim, the best first, indices = where they were
    """

def trace(x: ArrayLike) -> Tensor:
    """y = sum of x[i, i] of a matrix"""

def transpose(x: ArrayLike, *, dim0: Any, dim1: Any) -> Tensor:
    """y[.., j, .., i, ..] = x[.., i, .., j, ..]"""

def triangular_solve(
    a: ArrayLike, b: ArrayLike, *, upper: bool = False, transpose: bool = False
) -> Tensor:
    """y with a y = b, a lower (or `upper`) triangular, or with a^T"""

def tril(x: ArrayLike, *, diagonal: float = 0) -> Tensor:
    """y[.., i, j] = x[.., i, j] if j <= i + diagonal else 0"""

def triplet_margin_loss(
    a: ArrayLike, p_: ArrayLike, /, n: ArrayLike, *, margin: float = 1.0, p: float = 2.0, reduction:
    str = 'mean'
) -> Tensor:
    """y = reduce(max(distance(a, p) - distance(a, n) + margin, 0)), by pairwise_distance"""

def triu(x: ArrayLike, *, diagonal: float = 0) -> Tensor:
    """y[.., i, j] = x[.., i, j] if j >= i + diagonal else 0"""

def trunc(x: ArrayLike) -> Tensor:
    """y = x without its fraction"""

def unbind(x: ArrayLike, *, dim: float = 0) -> tuple[Tensor, ...]:
    """y[i] = x[.., i, ..], one result each"""

def unfold(x: ArrayLike, *, dim: Any, size: Any, step: Any) -> Tensor:
    """y[.., i, .., j] = x[.., i*step + j, ..], j < size"""

def unfold_im2col(
    x: ArrayLike, *, kernel: Any, dilation: int | Sequence[int] = [1], padding: int | Sequence[int]
    = [0], stride: int | Sequence[int] = [1]
) -> Tensor:
    """y[n, (c, p, q), (i, j)] = x[n, c, i*stride - padding + p*dilation, ..]"""

def unfold_sum(x: ArrayLike, *, length: Any, dim: Any, step: Any) -> Tensor:
    """y = zeros; y[.., i*step + j, ..] += x[.., i, .., j]"""

def uniform(key: ArrayLike, *, shape: Any, dtype: DType | str = DType.f32) -> Tensor:
    """random y[i], uniform in [0, 1)"""

def unsqueeze(x: ArrayLike, *, dim: Any) -> Tensor:
    """y = x with a size 1 before `dim`"""

def upsample_bilinear2d(x: ArrayLike, *, size: Any, align_corners: bool = False) -> Tensor:
    """y = x between its four nearest elements, of spatial sizes `size`"""

def upsample_nearest2d(x: ArrayLike, *, scale: Any) -> Tensor:
    """y[.., i, j] = x[.., i // scale, j // scale]"""

def var(x: ArrayLike, *, dim: Any = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """y = sum of (x - mean)^2 over dim / max(n - correction, 0)"""

def where(cond: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x where cond, else y"""

def xlogy(x: ArrayLike, y: ArrayLike) -> Tensor:
    """z = x * log(y); 0 where x is 0"""
