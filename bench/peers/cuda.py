#!/usr/bin/env python3
"""PyTorch's times of the rows that bench/device/rows.cpp measures, on cuda:0, eager and compiled.

Prints a line for each row: its name, microseconds of eager PyTorch, microseconds of torch.compile
("-" where that cannot run it), between tabs. Says on standard error why it cannot run at all, and
exits with 3 where there is no PyTorch with CUDA. --tiny: sizes that only show that it runs;
--device cpu: the same without a GPU.
"""

import argparse
import math
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print(f"PyTorch is not here: {e}", file=sys.stderr)
    sys.exit(3)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--device", default="cuda:0")
options = parser.parse_args()
DEVICE = options.device
if DEVICE != "cpu" and not torch.cuda.is_available():
    print("PyTorch finds no CUDA device", file=sys.stderr)
    sys.exit(3)
SECONDS = 0 if options.tiny else 0.3


def wait():
    if DEVICE != "cpu":
        torch.cuda.synchronize()


def timed(run):
    """Microseconds a run, the median of batches that are each waited for once."""
    for _ in range(3):
        run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    batch = max(1, min(10000, int(SECONDS / 10 / max(time.perf_counter() - start, 1e-7))))
    times = []
    spent = 0.0
    while spent < SECONDS or len(times) < 3:
        start = time.perf_counter()
        for _ in range(batch):
            run()
        wait()
        spent += time.perf_counter() - start
        times.append((time.perf_counter() - start) / batch)
    return statistics.median(times) * 1e6


def compiled(function):
    # Backward passes are run more than once from one forward pass.
    import torch._functorch.config as config

    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False
    torch._dynamo.reset()
    return torch.compile(function)


def put(name, ways):
    """`ways`: what makes a run of eager PyTorch, and of the compiled function."""
    cells = []
    for make in ways:
        try:
            cells.append(f"{timed(make()):.3f}" if make else "-")
        except Exception as e:  # what cannot be compiled
            print(f"{name}: {type(e).__name__}: {str(e).splitlines()[0]}", file=sys.stderr)
            cells.append("-")
    print(name, *cells, sep="\t", flush=True)


def drawn(*shape, scale=1.0):
    return (torch.randn(*shape, device=DEVICE) * scale).requires_grad_(True)


def stages(name, function, inputs):
    """Forward, backward and second backward, each timed by itself."""

    def forward(f):
        return lambda: f(*inputs)

    def backward(f):
        y = f(*inputs)
        ct = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, inputs, ct, retain_graph=True)

    def second(f):
        y = f(*inputs)
        ct = torch.randn_like(y).requires_grad_(True)
        slopes = torch.autograd.grad(y, inputs, ct, create_graph=True)
        cts = [torch.randn_like(s) for s in slopes]
        wanted = [*inputs, ct]
        return lambda: torch.autograd.grad(slopes, wanted, cts, retain_graph=True,
                                           allow_unused=True)

    put(f"{name}, forward", [lambda: forward(function), lambda: forward(compiled(function))])
    put(f"{name}, backward", [lambda: backward(function), lambda: backward(compiled(function))])
    put(f"{name}, second backward", [lambda: second(function), lambda: second(compiled(function))])


def step(name, loss, parameters, compiles=True):
    def run(f):
        return lambda: torch.autograd.grad(f(), parameters, allow_unused=True)

    put(name, [lambda: run(loss), (lambda: run(compiled(loss))) if compiles else None])


def main():
    tiny = options.tiny
    chain = 256 if tiny else (1 << 30) // 12
    rows, columns = (2, 64) if tiny else (4096, 4096)
    stages("pointwise chain", lambda a, b, c: torch.tanh(a * b + c) * torch.sigmoid(a) - c * 0.5,
           [drawn(chain) for _ in range(3)])
    stages("softmax", lambda x: x.softmax(-1), [drawn(rows, columns)])
    stages("layer norm", lambda x, w, b: F.layer_norm(x, (columns,), w, b),
           [drawn(rows, columns), drawn(columns), drawn(columns)])

    steps, batch, hidden = (2, 2, 4) if tiny else (20, 64, 512)
    s = 1 / math.sqrt(hidden)
    wi, wh = drawn(4 * hidden, hidden, scale=s), drawn(4 * hidden, hidden, scale=s)
    bi, bh = drawn(4 * hidden, scale=s), drawn(4 * hidden, scale=s)
    xs = torch.randn(steps, batch, hidden, device=DEVICE)

    def lstm():
        h = c = torch.zeros(batch, hidden, device=DEVICE)
        for x in xs.unbind(0):
            i, f, g, o = (F.linear(x, wi, bi) + F.linear(h, wh, bh)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h.square().mean()

    step("LSTM step", lstm, [wi, wh, bi, bh])

    batch, width, hidden = (2, 4, 4) if tiny else (128, 64, 256)
    w1, w2, w3 = drawn(hidden, width, scale=s), drawn(hidden, hidden, scale=s), drawn(1, hidden)
    b1, b2, b3 = drawn(hidden), drawn(hidden), drawn(1)
    real, fake = (torch.randn(batch, width, device=DEVICE) for _ in range(2))
    alpha = torch.rand(batch, 1, device=DEVICE)

    def critic(x):
        return F.linear(F.linear(F.linear(x, w1, b1).tanh(), w2, b2).tanh(), w3, b3)

    def wgan_gp():
        between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        penalty = (slope.norm(2, 1) - 1).square().mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    step("WGAN-GP step", wgan_gp, [w1, b1, w2, b2, w3, b3], compiles=False)

    batch, length, width, heads = (1, 4, 8, 4) if tiny else (8, 128, 256, 4)
    x = torch.randn(batch, length, width, device=DEVICE)
    p = [drawn(width), drawn(width), drawn(width), drawn(width),
         drawn(3 * width, width, scale=0.05), drawn(3 * width), drawn(width, width, scale=0.05),
         drawn(width), drawn(4 * width, width, scale=0.05), drawn(4 * width),
         drawn(width, 4 * width, scale=0.05), drawn(width)]

    def transformer():
        n = F.layer_norm(x, (width,), p[0], p[1])
        q, k, v = (F.linear(n, p[4], p[5]).view(batch, length, 3, heads, width // heads)
                   .permute(2, 0, 3, 1, 4).unbind(0))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
        o = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        y = x + F.linear(o, p[6], p[7])
        up = F.gelu(F.linear(F.layer_norm(y, (width,), p[2], p[3]), p[8], p[9]))
        return (y + F.linear(up, p[10], p[11])).square().mean()

    step("transformer step", transformer, p)

    n = 4 if tiny else 200
    v, w = torch.randn(64, device=DEVICE), torch.randn(64, device=DEVICE)

    def instructions(v):
        for i in range(n):
            v = v + w if i % 3 else v * w
        return v

    with torch.no_grad():
        put(f"{n} tiny instructions", [lambda: lambda: instructions(v),
                                       lambda: (lambda f: lambda: f(v))(compiled(instructions))])


main()
