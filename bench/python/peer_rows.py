"""The rows of `scripts/bench peers`: what each computes, in each peer's words.

A row has inputs and one or more formulations of the same results: functions `step(m, *inputs)`, where `m` is a
peer's module with the same names in all peers (`Words`). A peer runs every formulation that it has, and the fastest
one counts. Formulations of one peer alone are in `extra`. A peer that takes no `step` (CasADi, NumExpr) has its own
functions in `extra`, from the inputs to a call that gives the results.
"""

from __future__ import annotations

import math
import os
from types import SimpleNamespace as Words
from typing import Any, Callable, NamedTuple

import numpy as np

GRADUS = ("gradus", "gradus call")
PEERS = (*GRADUS, "torch", "torch.compile", "jax", "casadi", "numexpr")


class Row(NamedTuple):
    name: str
    inputs: Callable[[], list[np.ndarray]]
    steps: list[Callable[..., Any]]
    tolerance: float  # of the largest difference between peers, by a result's largest element
    extra: dict[str, list[Callable[..., Any]]] = {}
    without: tuple[str, ...] = ()  # peers that do not run `steps`
    direct: Callable[..., Any] | None = None  # from inputs to the call of "gradus call"; else a gradus.function
    program: Callable[..., Any] | None = None  # from inputs to the program of "gradus"; else a recording of `steps`


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


# Words: each peer's names for the same functions.


def gradus_words() -> Words:
    import gradus
    from gradus import ops

    def vjp(f, args, cotangent):
        y, pull = gradus.vjp(f, *args)
        return y, pull(cotangent)

    return Words(
        fast_tanh=ops.fast_tanh, fast_sigmoid=ops.fast_sigmoid,
        tanh=ops.tanh, sigmoid=ops.sigmoid, exp=ops.exp, sqrt=ops.sqrt, sin=ops.sin, cos=ops.cos, relu=ops.relu,
        gelu=ops.gelu, linear=ops.linear, softmax=lambda x: ops.softmax(x, -1), stack=lambda xs: ops.stack(xs),
        layer_norm=lambda x, w, b: ops.layer_norm(x, w, b, normalized_shape=[x.shape[-1]]),
        logsumexp=lambda x: ops.logsumexp(x, -1), cat=ops.cat, minimum=ops.minimum, square=ops.square,
        reshape=ops.reshape, permute=ops.permute, swap=lambda x: ops.transpose(x, -1, -2),
        conv=lambda x, w, b: ops.conv2d(x, w, b, padding=[1]), pool=lambda x: ops.max_pool2d(x, [2, 2]),
        cross_entropy=lambda x, y: ops.cross_entropy(x, y), eye=lambda n: ops.eye(n, dtype="f64"),
        grad=gradus.grad, value_and_grad=gradus.value_and_grad, jvp=gradus.jvp, vjp=vjp, hvp=gradus.hvp,
        hessian=lambda f: lambda *args: gradus.hessian(f, *args),
        laplacian=lambda f, x, *rest: gradus.laplacian(f, x, *rest, mapped=0),
        jacobian=lambda f, x, *rest: gradus.jacobian(f, x, *rest, mapped=(0, 1)),
    )  # fmt: skip


def jax_words() -> Words:
    import jax
    from jax import lax
    from jax import numpy as jnp

    def layer_norm(x, w, b):
        d = x - x.mean(-1, keepdims=True)
        return d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b

    def cross_entropy(x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    def pool(x):  # several times as fast as lax.reduce_window, whose derivative scatters
        b, c, h, w = x.shape
        return x.reshape(b, c, h // 2, 2, w // 2, 2).max((3, 5))

    def vjp(f, args, cotangent):
        y, pull = jax.vjp(f, *args)
        return y, pull(cotangent)

    def hvp(f, primals, tangents):
        return jax.jvp(jax.grad(f, tuple(range(len(primals)))), primals, tangents)[1]

    return Words(
        tanh=jnp.tanh, sigmoid=jax.nn.sigmoid, exp=jnp.exp, sqrt=jnp.sqrt, sin=jnp.sin, cos=jnp.cos,
        relu=jax.nn.relu, gelu=lambda x: jax.nn.gelu(x, approximate=False), linear=lambda x, w, b: x @ w.T + b,
        softmax=jax.nn.softmax, stack=jnp.stack, layer_norm=layer_norm, cat=jnp.concatenate,
        logsumexp=lambda x: jax.nn.logsumexp(x, -1), minimum=jnp.minimum, square=jnp.square,
        reshape=jnp.reshape, permute=jnp.transpose, swap=lambda x: jnp.swapaxes(x, -1, -2),
        conv=lambda x, w, b: lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None], pool=pool,
        cross_entropy=cross_entropy, eye=lambda n: jnp.eye(n), grad=jax.grad, value_and_grad=jax.value_and_grad,
        jvp=jax.jvp, vjp=vjp, hvp=hvp, hessian=jax.hessian,
        jacobian=lambda f, x, *rest: jax.vmap(jax.jacrev(f))(x, *rest),
    )  # fmt: skip


def torch_words(way: str) -> Words:
    """"eager": gradients by torch.autograd. "function": by torch.func, to be compiled as a whole. "loss": the outermost
    function is compiled, and torch.autograd differentiates it."""
    import torch
    from torch.nn import functional as F

    depth = 0

    def pull(f, args, argnums, cotangent=None):
        nonlocal depth
        args, again = list(args), depth > 0
        for n in argnums:
            args[n] = args[n] if args[n].requires_grad else args[n].detach().requires_grad_()
        depth += 1
        try:
            with torch.enable_grad():
                y = f(*args)
        finally:
            depth -= 1
        found = torch.autograd.grad(y, [args[n] for n in argnums], cotangent, create_graph=again)
        return (y if again else y.detach()), found

    def by_argnums(result, argnums):
        return result[0] if isinstance(argnums, int) else tuple(result)

    compiled: dict[Any, Any] = {}

    def outermost(f):
        if f.__code__ not in compiled:
            compiled[f.__code__] = torch.compile(f, dynamic=False)
        return compiled[f.__code__]

    def value_and_grad(f, argnums=0):
        places = (argnums,) if isinstance(argnums, int) else argnums

        def both(*args):
            if way == "eager" or (way == "loss" and not torch.compiler.is_compiling()):
                y, found = pull(outermost(f) if way == "loss" else f, args, places)
                return y, by_argnums(found, argnums)
            found, y = torch.func.grad_and_value(f, argnums)(*args)
            return y, found

        return both

    def vjp(f, args, cotangent):
        if way == "function":
            y, back = torch.func.vjp(f, *args)
            return y, back(cotangent)
        return pull(outermost(f) if way == "loss" else f, args, range(len(args)), cotangent)

    def slope_of(f, x, *rest):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return x, torch.autograd.grad(f(x, *rest), x, create_graph=True)[0]

    def hessian(f):
        def eager(x, *rest):
            x, slope = slope_of(f, x, *rest)
            return torch.autograd.grad(slope, x, torch.eye(len(x), dtype=x.dtype), is_grads_batched=True)[0]

        return eager if way == "eager" else torch.func.hessian(f)

    def hvp(f, primals, tangents):
        if way == "eager":
            x, slope = slope_of(f, *primals)
            return torch.autograd.grad(slope, x, tangents[0])
        return torch.func.jvp(torch.func.grad(f, tuple(range(len(primals)))), primals, tangents)[1]

    return Words(
        compiled=compiled, tanh=torch.tanh, sigmoid=torch.sigmoid, exp=torch.exp, sqrt=torch.sqrt, sin=torch.sin,
        cos=torch.cos, relu=torch.relu, gelu=F.gelu, linear=F.linear, stack=torch.stack,
        softmax=lambda x: torch.softmax(x, -1),
        layer_norm=lambda x, w, b: F.layer_norm(x, [x.shape[-1]], w, b), cat=torch.cat,
        logsumexp=lambda x: torch.logsumexp(x, -1), minimum=torch.clamp_max, square=torch.square,
        reshape=torch.reshape, permute=torch.permute, swap=lambda x: x.transpose(-1, -2),
        conv=lambda x, w, b: F.conv2d(x, w, b, padding=1), pool=lambda x: F.max_pool2d(x, 2),
        cross_entropy=F.cross_entropy, eye=lambda n: torch.eye(n, dtype=torch.float64),
        grad=lambda f, argnums=0: lambda *args: value_and_grad(f, argnums)(*args)[1],
        value_and_grad=value_and_grad, jvp=torch.func.jvp, vjp=vjp, hvp=hvp,
        hessian=hessian,
        jacobian=lambda f, x, *rest: torch.func.vmap(torch.func.jacrev(f))(x, *rest),
    )  # fmt: skip


# Inputs.


def normal(*shapes, dtype="f4", seed=0):
    """For each (scale, size, size...)."""
    rng = np.random.default_rng(seed)
    return [(s[0] * rng.standard_normal(s[1:])).astype(dtype) for s in shapes]


def layers(*sizes):
    """Weights and biases of a network, scaled for its widths."""
    return [s for i, o in zip(sizes, sizes[1:]) for s in ((i**-0.5, o, i), (i**-0.5, o))]


# Chains, softmax, layer norm.


def chain(m, a, b, c):
    return m.tanh(a * b + c) * m.sigmoid(a) - c * 0.5


def chain_fast(m, a, b, c):
    """With functions within 4 ulp where there is a choice."""
    tanh, sigmoid = getattr(m, "fast_tanh", m.tanh), getattr(m, "fast_sigmoid", m.sigmoid)
    return tanh(a * b + c) * sigmoid(a) - c * 0.5


def chain_and_gradient(m, a, b, c, cotangent):
    return m.vjp(lambda a, b, c: chain(m, a, b, c), (a, b, c), cotangent)


def chain_numexpr(a, b, c):
    import numexpr

    half, one, out = np.float32(0.5), np.float32(1), np.empty_like(a)  # Python's own numbers would be f64
    names = {"a": a, "b": b, "c": c, "half": half, "one": one}
    return lambda: numexpr.evaluate("tanh(a * b + c) / (one + exp(-a)) - c * half", names, out=out)


def softmax_and_derivative(m, x, cotangent):
    return m.vjp(m.softmax, (x,), cotangent)


def softmax_order_2(m, x, cotangent):
    def squared(x):
        return m.square(m.grad(lambda x: (m.softmax(x) * cotangent).sum())(x)).sum()

    return m.value_and_grad(squared)(x)


def layer_norm_and_derivative(m, x, w, b, cotangent):
    return m.vjp(m.layer_norm, (x, w, b), cotangent)


# The tiny function.


def tiny(m, a, b):
    return m.tanh(a * b) * a - b


def tiny_loss(m):
    def loss(a, b):  # its Hessian has no zeros
        total = (m.tanh(a * b) * a - b).sum()
        return total * total * 0.5

    return loss


def tiny_value_and_grad(m, a, b):
    return m.value_and_grad(tiny_loss(m))(a, b)


def tiny_hvp(m, a, b, v):
    return m.hvp(lambda a: tiny_loss(m)(a, b), (a,), (v,))[0]


def tiny_hessian(m, a, b):
    return m.hessian(tiny_loss(m))(a, b)


def gradus_tiny(of):
    """A call of a derivative of a plain function, which Gradus keeps with the function; and the program for it."""

    def loss_and_module():
        import gradus
        from gradus import ops

        def loss(a, b):
            total = (ops.tanh(a * b) * a - b).sum()
            return total * total * 0.5

        return loss, gradus

    def make(*inputs):
        loss, gradus = loss_and_module()
        a, b, v = (*map(gradus.tensor, inputs), None)[:3]
        zero = gradus.tensor(np.zeros(b.shape))
        if of == "hvp":
            return lambda: gradus.hvp(loss, (a, b), (v, zero))[0]
        if of == "hessian":
            return lambda: gradus.hessian(loss, a, b)
        call = gradus.value_and_grad(loss)
        return lambda: call(a, b)

    def program(*inputs):
        loss, gradus = loss_and_module()
        one = gradus.trace(loss, *inputs[:2])
        if of == "hvp":
            return one.hvp(["a"]).select_results(["hvp_a"])
        return one.hessian(["a"]).select_results(["hessian_a_a"])

    return {"direct": make, "program": program if of in ("hvp", "hessian") else None}


def casadi_call(make_results):
    """CasADi's function on fixed memory: by its virtual machine, and compiled by g++."""

    def of(options):
        def make(*inputs):
            import casadi

            words = Words(tanh=casadi.tanh, sqrt=casadi.sqrt, sin=casadi.sin, cos=casadi.cos)
            f = make_results(casadi, words, options(), *inputs)
            buffer, call = f.buffer()
            given = [np.ascontiguousarray(x, "f8") for x in inputs]
            # CasADi's matrices are stored by columns.
            out = [np.zeros(f.size_out(i)[::-1]) for i in range(f.n_out())]
            shaped = [x.reshape([n for n in x.shape if n > 1]) for x in out]
            for i, x in enumerate(given):
                buffer.set_arg(i, memoryview(x.reshape(-1)))
            for i, x in enumerate(out):
                assert f.nnz_out(i) == x.size, "a result is sparse"
                buffer.set_res(i, memoryview(x.reshape(-1)))

            def run():
                call()
                return shaped

            run.keep = (f, buffer, given)
            return run

        return make

    def compiled():
        march = os.environ.get("GRADUS_PEERS_MARCH", "native")
        flags = ["-O3", f"-march={march}", "-mprefer-vector-width=512", "-ffast-math", "-w"]
        return {"jit": True, "compiler": "shell", "jit_options": {"flags": flags, "compiler": "g++ -x c++"}}

    return [of(dict), of(compiled)]


def casadi_tiny(what):
    def results(casadi, m, options, *inputs):
        given = [casadi.SX.sym(n, x.size) for n, x in zip("abv", inputs)]
        a, b = given[:2]
        y = m.tanh(a * b) * a - b
        total = casadi.sum1(y)
        loss = total * total * 0.5
        if what == "function":
            out = [y]
        elif what == "value_and_grad":
            out = [loss, casadi.gradient(loss, a)]
        elif what == "hvp":
            out = [casadi.jtimes(casadi.gradient(loss, a), a, given[2])]
        else:
            out = [casadi.densify(casadi.hessian(loss, a)[0])]
        return casadi.Function("f", given, out, options)

    return casadi_call(results)


# The Laplacian of a network.


def mlp(m, x, *weights):
    h = x
    for i in range(0, len(weights) - 2, 2):
        h = m.tanh(m.linear(h, weights[i], weights[i + 1]))
    return m.linear(h, weights[-2], weights[-1])


def laplacian(m, xs, *weights):
    return m.laplacian(lambda x, *w: mlp(m, x, *w).sum(), xs, *weights)


def laplacian_jax_hessian(m, xs, *weights):
    import jax
    from jax import numpy as jnp

    slope = jax.grad(lambda x: mlp(m, x, *weights).sum())
    basis = jnp.eye(xs.shape[1], dtype=xs.dtype)

    def at(x):
        return jax.vmap(lambda v: jax.jvp(slope, (x,), (v,))[1] @ v)(basis).sum()

    return jax.vmap(at)(xs)


def laplacian_folx(m, xs, *weights):
    import folx
    import jax

    forward = folx.forward_laplacian(lambda x: mlp(m, x, *weights)[0])
    return jax.vmap(lambda x: forward(x).laplacian)(xs)


def laplacian_torch(m, xs, *weights):
    """By hand (Li et al., 2023): slopes along all coordinates, and sums of second derivatives."""
    import torch

    n = xs.shape[1]
    h, second = xs, torch.zeros_like(xs)
    along = torch.eye(n, dtype=xs.dtype).reshape(n, 1, n).expand(n, len(xs), n)
    for w, b in zip(weights[0::2], weights[1::2]):
        h, along, second = h @ w.T + b, along @ w.T, second @ w.T
        if len(w) > 1:
            h = torch.tanh(h)
            slope = 1 - h * h
            second = second * slope - 2 * h * slope * (along * along).sum(0)
            along = along * slope
    return second[:, 0]


# Models.


def lstm_cell(m, gates, c):
    n = c.shape[1]
    i, f, o = (m.sigmoid(gates[:, k * n : (k + 1) * n]) for k in (0, 1, 3))
    c = f * c + i * m.tanh(gates[:, 2 * n : 3 * n])
    return o * m.tanh(c), c


def lstm_loss(m, wi, wh, bi, bh, x, h, c):
    given = m.linear(x, wi, bi)
    for t in range(x.shape[0]):
        h, c = lstm_cell(m, given[t] + m.linear(h, wh, bh), c)
    return m.square(h).mean()


def lstm_loss_by_steps(m, wi, wh, bi, bh, x, h, c):
    for t in range(x.shape[0]):
        h, c = lstm_cell(m, m.linear(x[t], wi, bi) + m.linear(h, wh, bh), c)
    return m.square(h).mean()


def lstm_loss_scan(m, wi, wh, bi, bh, x, h, c):
    from jax import lax

    def step(carry, given):
        return lstm_cell(m, given + m.linear(carry[0], wh, bh), carry[1]), None

    (h, c), _ = lax.scan(step, (h, c), m.linear(x, wi, bi))
    return m.square(h).mean()


def lstm_loss_torch(m, wi, wh, bi, bh, x, h, c):
    import torch

    _, h, _ = torch._VF.lstm(x, (h[None], c[None]), [wi, wh, bi, bh], True, 1, 0.0, True, False, False)
    return m.square(h).mean()


def lstm_inputs(batch=64, hidden=256, steps=20):
    s = hidden**-0.5
    w, b = (s, 4 * hidden, hidden), (s, 4 * hidden)
    return normal(w, w, b, b, (1, steps, batch, hidden), (0, batch, hidden), (0, batch, hidden))


def training(loss, parameters):
    """The loss and its gradients by the first inputs."""

    def step(m, *inputs):
        def of(*given):
            return loss(m, *given)

        return m.value_and_grad(of, tuple(range(parameters)))(*inputs)

    step.__name__ = loss.__name__
    return step


def attention(m, q, k, v):
    return m.softmax((q @ m.swap(k)) * (1 / math.sqrt(q.shape[-1]))) @ v


def attention_torch(m, q, k, v):
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def block(m, n1, c1, n2, c2, wq, bq, wo, bo, w1, b1, w2, b2, x, attend=attention, heads=4):
    batch, length, width = x.shape
    every = m.reshape(m.linear(m.layer_norm(x, n1, c1), wq, bq), (batch, length, 3, heads, width // heads))
    every = m.permute(every, (2, 0, 3, 1, 4))
    o = m.reshape(m.permute(attend(m, every[0], every[1], every[2]), (0, 2, 1, 3)), (batch, length, width))
    y = x + m.linear(o, wo, bo)
    return y + m.linear(m.gelu(m.linear(m.layer_norm(y, n2, c2), w1, b1)), w2, b2)


def transformer(m, *inputs):
    return m.square(block(m, *inputs)).mean()


def transformer_torch(m, *inputs):
    return m.square(block(m, *inputs, attend=attention_torch)).mean()


def transformer_penalty(m, *inputs):
    """The mean square, and that of the gradient of the sum of squares by x."""
    z = block(m, *inputs)
    slope = m.grad(lambda x: m.square(block(m, *inputs[:-1], x)).sum())(inputs[-1])
    return m.square(z).mean() + m.square(slope).mean()


def transformer_inputs(batch=8, length=128, width=256):
    n = width
    return normal((1, n), (0.01, n), (1, n), (0.01, n), (0.05, 3 * n, n), (0.05, 3 * n), (0.05, n, n), (0.05, n),
                  (0.05, 4 * n, n), (0.05, 4 * n), (0.05, n, 4 * n), (0.05, n), (1, batch, length, n))  # fmt: skip


def cifar(m, w1, b1, w2, b2, w3, b3, w4, b4, x, y):
    h = m.pool(m.relu(m.conv(x, w1, b1)))
    h = m.pool(m.relu(m.conv(h, w2, b2)))
    h = m.relu(m.linear(m.reshape(h, (x.shape[0], 4096)), w3, b3))
    return m.cross_entropy(m.linear(h, w4, b4), y)


def cifar_inputs(batch=64):
    drawn = normal((0.1, 32, 3, 3, 3), (0.1, 32), (0.1, 64, 32, 3, 3), (0.1, 64), (0.05, 128, 4096), (0.05, 128),
                   (0.05, 10, 128), (0.05, 10), (1, batch, 3, 32, 32))  # fmt: skip
    return [*drawn, np.arange(batch) * 7 % 10]


def wgan_gp(m, w1, b1, w2, b2, w3, b3, real, fake, alpha):
    def critic(x):
        return mlp(m, x, w1, b1, w2, b2, w3, b3)

    between = alpha * real + (1 - alpha) * fake
    slope = m.grad(lambda x: critic(x).sum())(between)
    length = m.sqrt(m.square(slope).sum(axis=1))
    return critic(fake).mean() - critic(real).mean() + 10 * m.square(length - 1).mean()


def wgan_gp_inputs(batch=128, n=64, hidden=256):
    return normal(*layers(n, hidden, hidden, 1), (1, batch, n), (1, batch, n), (0.3, batch, 1))


def pinn(m, w1, b1, w2, b2, w3, b3, x, t, x_border, t_border, u_border):
    """Burgers' equation, as in examples/pinn; u_x and u_t by gradients of sums over the points."""

    def u(x, t):
        return mlp(m, m.cat([x, t], 1), w1, b1, w2, b2, w3, b3)

    def slopes(x, t):
        return m.grad(lambda x, t: u(x, t).sum(), (0, 1))(x, t)

    ux, ut = slopes(x, t)
    uxx = m.grad(lambda x: slopes(x, t)[0].sum())(x)
    return pinn_loss(m, u(x, t), ux, ut, uxx, u(x_border, t_border) - u_border)


def pinn_forward(m, w1, b1, w2, b2, w3, b3, x, t, x_border, t_border, u_border):
    """The same in forward mode: a direction of ones moves all points."""

    def u(x, t):
        return mlp(m, m.cat([x, t], 1), w1, b1, w2, b2, w3, b3)

    one, zero = x * 0 + 1, x * 0

    def along(x):
        return m.jvp(u, (x, t), (one, zero))[1]

    ux, uxx = m.jvp(along, (x,), (one,))
    value, ut = m.jvp(u, (x, t), (zero, one))
    return pinn_loss(m, value, ux, ut, uxx, u(x_border, t_border) - u_border)


def pinn_loss(m, u, ux, ut, uxx, miss):
    return m.square(ut + u * ux - uxx * 0.05).mean() + m.square(miss).mean() * 10


def pinn_inputs():
    inside, border = (1, 200, 1), (1, 90, 1)
    return normal(*layers(2, 24, 24, 1), inside, inside, border, border, border, dtype="f8")


def force_field(m, w1, b1, w2, b2, w3, b3, r, energy_ref, force_ref, centre, shift, scale):
    """As in examples/force_field: a loss over energies and forces."""
    atoms = r.shape[1]
    self = m.eye(atoms)

    def energies(r):
        d = r[:, None] - r[:, :, None]
        distance = m.sqrt(m.square(d).sum(axis=3) + self)
        window = (m.cos(m.minimum(distance, 10.0) * 0.3141592653589793) + 1) * 0.5 * (1 - self)
        far = distance[:, :, :, None]
        g = m.exp(m.square(far - centre) * -4.0) * window[:, :, :, None]
        angular = m.square(m.swap(g) @ (d / far)).sum(axis=3)
        x = (m.cat([g.sum(axis=2), angular], 2) - shift) * scale
        return mlp(m, x, w1, b1, w2, b2, w3, b3).sum(axis=(1, 2))

    force = -m.grad(lambda r: energies(r).sum())(r)
    energy = energies(r)
    return m.square(force - force_ref).mean() + m.square((energy - energy_ref) / atoms).mean()


def force_field_inputs(clusters=16, atoms=13, functions=16, width=24):
    place = [[a % 3, a // 3 % 3, a // 9] for _ in range(clusters) for a in range(atoms)]
    r = 3.9 * np.array(place).ravel() + 0.2 * np.sin(3.7 * np.arange(3 * clusters * atoms))
    weights = normal(*layers(2 * functions, width, width, 1), dtype="f8")
    rest = normal((1, clusters), (1, clusters, atoms, 3), dtype="f8", seed=1)
    two = normal((1, 2 * functions), (1, 2 * functions), dtype="f8", seed=2)
    return [*weights, r.reshape(clusters, atoms, 3), *rest, 3 + 0.4 * np.arange(functions), *two]


# Objectives.


def gmm(m, alphas, means, q, l, x, below, gamma=1.0):
    """The log-likelihood of a mixture of k Gaussians with a Wishart prior, with inverse square roots of covariances
    Q_k = diag(exp(q_k)) + strictly lower part of l_k:
    sum_i logsumexp_k(alpha_k + sum(q_k) - |Q_k (x_i - mu_k)|^2 / 2) - n logsumexp(alpha)
    + gamma^2 / 2 sum(exp(q)^2 + l^2) - sum(q)."""
    d = m.permute(x[:, None] - means, (1, 0, 2))  # k, n, d
    turned = m.exp(q)[:, None] * d + d @ m.swap(l * below)
    inner = alphas + q.sum(axis=1) - 0.5 * m.swap(m.square(turned).sum(axis=2))
    prior = 0.5 * gamma**2 * (m.square(m.exp(q)).sum() + m.square(l * below).sum()) - q.sum()
    return m.logsumexp(inner).sum() - x.shape[0] * m.logsumexp(alphas) + prior


def gmm_inputs(n=1000, d=10, k=25):
    drawn = normal((1, k), (1, k, d), (0.3, k, d), (0.3, k, d, d), (1, n, d), dtype="f8")
    return [*drawn, np.tril(np.ones((d, d)), -1)]


def reprojection(m, v, feature):
    """The two residuals of an observation; v: rotation vector, centre, focal length, principal point, two radial
    coefficients, point, weight. w ((1 + k1 p.p + k2 (p.p)^2) f p + x0 - feature), where p is the point turned by
    Rodrigues' formula and divided by its depth."""
    rx, ry, rz, cx, cy, cz, f, x0, y0, k1, k2, px, py, pz, w = (v[i] for i in range(15))
    px, py, pz = px - cx, py - cy, pz - cz
    angle = m.sqrt(rx * rx + ry * ry + rz * rz)
    s, c = m.sin(angle), m.cos(angle)
    ux, uy, uz = rx / angle, ry / angle, rz / angle
    dot = (ux * px + uy * py + uz * pz) * (1 - c)
    x = px * c + (uy * pz - uz * py) * s + ux * dot
    y = py * c + (uz * px - ux * pz) * s + uy * dot
    z = pz * c + (ux * py - uy * px) * s + uz * dot
    x, y = x / z, y / z
    r2 = x * x + y * y
    radial = (1 + k1 * r2 + k2 * r2 * r2) * f
    return w * (radial * x + x0 - feature[0]), w * (radial * y + y0 - feature[1])


def bundle(m, v, features):
    return m.jacobian(lambda v, feature: m.stack(reprojection(m, v, feature)), v, features)


def casadi_bundle(casadi, m, options, v, features):
    one, feature = casadi.SX.sym("v", 15), casadi.SX.sym("f", 2)
    found = casadi.jacobian(casadi.vertcat(*reprojection(m, one, feature)), one)
    f = casadi.Function("f", [one, feature], [casadi.densify(found).T], options)
    return f.map(len(v))


def bundle_inputs(n=4096):
    v = normal((0.3, n, 15), dtype="f8")[0]
    v[:, 13] += 5  # in front of the camera
    v[:, 6] += 2
    return [v, normal((1, n, 2), dtype="f8", seed=1)[0]]


def rows() -> list[Row]:
    found = []

    def add(name, inputs, *steps, tolerance=1e-5, **more):
        found.append(Row(name, inputs, list(steps), tolerance, **more))

    for e in (10, 16, 20):
        same = [(1, 2**e)] * 4
        add(f"chain 2^{e}", lambda same=same: normal(*same[:3]), chain, extra={"numexpr": [chain_numexpr]})
        add(f"chain 2^{e}, fast", lambda same=same: normal(*same[:3]), chain_fast)
        add(f"chain 2^{e}, gradient", lambda same=same: normal(*same), chain_and_gradient)
    x, w = (1, 4096, 1024), (1, 1024)
    add("softmax", lambda: normal(x), lambda m, x: m.softmax(x))
    add("softmax, backward", lambda: normal(x, x), softmax_and_derivative)
    add("softmax, order 2", lambda: normal(x, x), softmax_order_2)
    add("layer norm", lambda: normal(x, w, w), lambda m, *given: m.layer_norm(*given))
    add("layer norm, backward", lambda: normal(x, w, w, x), layer_norm_and_derivative, tolerance=1e-4)

    eight = [(1, 8)] * 3
    for what, step, n in (("function", tiny, 2), ("value_and_grad", tiny_value_and_grad, 2), ("hvp", tiny_hvp, 3),
                          ("hessian", tiny_hessian, 2)):  # fmt: skip
        add(f"[8] f64, {what}", lambda n=n: normal(*eight[:n], dtype="f8"), step, tolerance=1e-12,
            extra={"casadi": casadi_tiny(what)}, **({} if what == "function" else gradus_tiny(what)))  # fmt: skip

    for points in (64, 256):
        add(f"Laplacian, {points} points", lambda n=points: normal((1, n, 30), *layers(30, 128, 128, 1)), laplacian,
            tolerance=1e-4, without=("torch", "torch.compile", "jax"),
            extra={"torch": [laplacian_torch], "torch.compile": [laplacian_torch],
                   "jax": [laplacian_folx, laplacian_jax_hessian]})  # fmt: skip
    add("LSTM step", lstm_inputs, training(lstm_loss, 4), training(lstm_loss_by_steps, 4), tolerance=1e-4,
        extra={"jax": [training(lstm_loss_scan, 4)], "torch": [training(lstm_loss_torch, 4)]})  # fmt: skip
    add("CNN step", cifar_inputs, training(cifar, 8), tolerance=1e-4)
    add("PINN step", pinn_inputs, training(pinn, 6), training(pinn_forward, 6), tolerance=1e-10)
    add("force field step", force_field_inputs, training(force_field, 6), tolerance=1e-9)
    add("WGAN-GP step", wgan_gp_inputs, training(wgan_gp, 6), tolerance=1e-4)
    fused = training(transformer_torch, 12)
    add("transformer step", transformer_inputs, training(transformer, 12), tolerance=1e-4,
        extra={"torch": [fused], "torch.compile": [fused]})  # fmt: skip
    add("transformer with penalty", transformer_inputs, training(transformer_penalty, 12), tolerance=1e-4)
    add("GMM gradient", gmm_inputs, training(gmm, 4), tolerance=1e-9)
    add("bundle adjustment Jacobian", bundle_inputs, bundle, tolerance=1e-9,
        extra={"casadi": casadi_call(casadi_bundle)})  # fmt: skip
    return found


# Rows of the first call, each in a process of its own.


def long_chain(m, x):
    """400 operators that a compiler cannot remove."""
    y = x
    for i in range(100):
        y = m.tanh(y * x + 0.01 * i) + x
    return y.sum()


def first_rows() -> list[Row]:
    return [
        Row("LSTM step", lstm_inputs, [training(lstm_loss_by_steps, 4)], 1e-4),
        Row("chain of 400", lambda: normal((0.5, 4096)), [training(long_chain, 1)], 1e-3),
    ]
