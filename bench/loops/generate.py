"""Writes the programs that are long: generate.py, in this folder."""

import itertools
import pathlib

here = pathlib.Path(__file__).parent

# Of 200 steps there are graphs whose types say so: they can be unrolled.
graphs = [(f"{what}{n}", n.strip("_") or "T") for n in ("", "_200") for what in ("forward", "gradient")]


def run_by(name, steps):
    return f"  graph {name}_200" if steps == 200 else f"  graph {name}\n  set T = {steps}"


def cell(hidden):
    lines = f"""# A recurrent cell, h' = tanh(W h + U x + b), of {hidden} units in f32; its last state's energy and the
# gradients of that with respect to the parameters and to all that came in. "training" has the energy
# of all states: its gradient does not vanish in the earlier steps.

graph cell {{
  stage 0 (%h: f32[{hidden}], %x: f32[{hidden}], %w: f32[{hidden}, {hidden}], %u: f32[{hidden}, {hidden}], %b: f32[{hidden}]) {{
    %r = mv(%w, %h)
    %i = mv(%u, %x)
    %s = add(%r, %i)
    %a = add(%s, %b)
    %n = tanh(%a)
    return %n
  }}
}}
graph cell_and_state {{
  stage 0 (%h: f32[{hidden}], %x: f32[{hidden}], %w: f32[{hidden}, {hidden}], %u: f32[{hidden}, {hidden}], %b: f32[{hidden}]) {{
    %n = call(%h, %x, %w, %u, %b) {{graph = "cell"}}
    return %n, y = %n
  }}
}}
graph training {{
  stage 0 (%h0: f32[{hidden}], %xs: f32[T, {hidden}], %w: f32[{hidden}, {hidden}], %u: f32[{hidden}, {hidden}], %b: f32[{hidden}]) {{
    %h, %hs = scan(%h0, %xs, %w, %u, %b) {{body = "cell_and_state", carries = 1, sequences = 1}}
    %q = mul(%hs, %hs)
    %l = sum(%q)
    %dw, %du, %db, %dxs = grad(%l, %w, %u, %b, %xs)
    return %l, %dw, %du, %db, %dxs
  }}
}}
"""
    for name, length in graphs:
        is_forward = name.startswith("forward")
        grad = "" if is_forward else "    %dw, %du, %db, %dxs = grad(%l, %w, %u, %b, %xs)\n"
        results = "" if is_forward else ", %dw, %du, %db, %dxs"
        lines += f"""graph {name} {{
  stage 0 (%h0: f32[{hidden}], %xs: f32[{length}, {hidden}], %w: f32[{hidden}, {hidden}], %u: f32[{hidden}, {hidden}], %b: f32[{hidden}]) {{
    %h = scan(%h0, %xs, %w, %u, %b) {{body = "cell", carries = 1, sequences = 1}}
    %q = mul(%h, %h)
    %l = sum(%q)
{grad}    return %l{results}
  }}
}}
"""
    scale = hidden**-0.5
    for name in ("forward", "gradient", "training"):
        for steps in (1000, 8192) if name == "training" else (200, 1000, 8192):
            lines += f"""case {name}_{steps} {{
{run_by(name, steps)}
  input h0 = random(-0.5, 0.5)
  input xs = random(-1.0, 1.0)
  input w = random({-scale:.4f}, {scale:.4f})
  input u = random({-scale:.4f}, {scale:.4f})
  input b = random(-0.1, 0.1)
}}
"""
    return lines


def leaves(nodes):
    """Nodes of a chain, each of a mean, a precision and a volatility, all of them scalars: what one
    node predicts for the next is corrected by its error, weighted by its precision."""
    carries = [f"{what}{n}" for n in range(nodes) for what in ("m", "p", "v")]
    inputs = ", ".join(f"%{c}: f64[]" for c in carries)
    text = f"""# {3 * nodes} carries of one f64 each: a chain of {nodes} nodes, each of a mean, a precision and a volatility.
# A node is corrected by what the one before expected of it, weighted by the precisions.

graph step {{
  stage 0 ({inputs}, %x: f64[], %rate: f64[]) {{
"""
    last, results = "x", []
    for n in range(nodes):
        text += f"""    %e{n} = exp(%v{n})
    %i{n} = mul(%e{n}, %rate)
    %j{n} = reciprocal(%p{n})
    %k{n} = add(%i{n}, %j{n})
    %pp{n} = reciprocal(%k{n})
    %d{n} = sub(%{last}, %m{n})
    %q{n} = add(%pp{n}, 1.0)
    %w{n} = reciprocal(%q{n})
    %c{n} = mul(%d{n}, %w{n})
    %nm{n} = add(%m{n}, %c{n})
    %s{n} = mul(%d{n}, %c{n})
    %t{n} = tanh(%s{n})
    %u{n} = mul(%t{n}, 0.1)
    %z{n} = mul(%v{n}, 0.9)
    %nv{n} = add(%z{n}, %u{n})
"""
        last = f"nm{n}"
        results += [f"nm{n}", f"q{n}", f"nv{n}"]
    text += f"    return {', '.join('%' + r for r in results)}, %c0\n  }}\n}}\n"
    starts = ", ".join(f"%{c}" for c in carries)
    for name in ("forward", "gradient"):
        text += f"""graph {name} {{
  stage 0 ({inputs}, %xs: f64[T], %rate: f64[]) {{
    {', '.join('%l' + c for c in carries)}, %cs = scan({starts}, %xs, %rate) {{body = "step", carries = {len(carries)}, sequences = 1}}
    %sq = mul(%cs, %cs)
    %sum = sum(%sq)
    %loss = add(%sum, %lm{nodes - 1})
"""
        if name == "gradient":
            text += f"""    %drate, %dxs, {', '.join('%d_' + c for c in carries)} = grad(%loss, %rate, %xs, {starts})
    return %loss, %drate, %dxs, {', '.join('%d_' + c for c in carries)}
"""
        else:
            text += "    return %loss\n"
        text += "  }\n}\n"
    ranges = {"m": "random(-0.5, 0.5)", "p": "random(0.8, 1.2)", "v": "random(-0.5, 0.5)"}
    for name in ("forward", "gradient"):
        text += f"case {name}_2000 {{\n  graph {name}\n  set T = 2000\n"
        text += "".join(f"  input {c} = {ranges[c[0]]}\n" for c in carries)
        text += "  input xs = random(-1.0, 1.0)\n  input rate = random(0.1, 0.2)\n}\n"
    return text


def rk4(steps):
    """A ten-dimensional equation y' = tanh(A y + b) - y by steps of Runge and Kutta's."""
    text = """# y' = tanh(A y + b) - y in ten dimensions, f64, by steps of Runge and Kutta's fourth order.

graph step {
  stage 0 (%y: f64[10], %a: f64[10, 10], %b: f64[10]) {
"""
    at = "y"
    for k, (ahead, weight) in enumerate(((0.005, 0), (0.005, 0), (0.01, 0), (0, 0)), 1):
        text += f"""    %p{k} = mv(%a, %{at})
    %s{k} = add(%p{k}, %b)
    %t{k} = tanh(%s{k})
    %k{k} = sub(%t{k}, %{at})
"""
        if ahead:
            text += f"    %h{k} = mul(%k{k}, {ahead})\n    %y{k} = add(%y, %h{k})\n"
            at = f"y{k}"
    text += """    %m = add(%k2, %k3)
    %mm = mul(%m, 2.0)
    %o = add(%k1, %k4)
    %w = add(%o, %mm)
    %d = mul(%w, 0.0016666666666666668)
    %n = add(%y, %d)
    return %n
  }
}
"""
    for count in steps:
        for name in ("forward", "gradient"):
            text += f"""graph {name}_{count} {{
  stage 0 (%y0: f64[10], %a: f64[10, 10], %b: f64[10]) {{
    %y = scan(%y0, %a, %b) {{body = "step", carries = 1, length = {count}}}
    %q = mul(%y, %y)
    %l = sum(%q)
"""
            if name == "gradient":
                text += "    %dy0, %da, %db = grad(%l, %y0, %a, %b)\n    return %l, %dy0, %da, %db\n"
            else:
                text += "    return %l\n"
            text += "  }\n}\n"
    for count in steps:
        for name in ("forward", "gradient"):
            text += f"""case {name}_{count} {{
  graph {name}_{count}
  input y0 = random(-1.0, 1.0)
  input a = random(-0.8, 0.8)
  input b = random(-0.3, 0.3)
}}
"""
    return text


def cholesky():
    text = """# The recurrence of a quasiseparable Cholesky factorisation: a carry of 3x3 in f64, a root and a quotient in
# each step.

graph step {
  stage 0 (%f: f64[3, 3], %d: f64[], %p: f64[3], %q: f64[3], %a: f64[3, 3]) {
    %fp = mv(%f, %p)
    %pfp = dot(%p, %fp)
    %r = sub(%d, %pfp)
    %c = sqrt(%r)
    %at = transpose(%a) {dim0 = 0, dim1 = 1}
    %t = mm(%f, %at)
    %pt = linear(%p, %at)
    %tp = transpose(%t) {dim0 = 0, dim1 = 1}
    %u = mv(%tp, %p)
    %e = sub(%q, %u)
    %w = div(%e, %c)
    %at2 = mm(%a, %t)
    %ww = outer(%w, %w)
    %n = add(%at2, %ww)
    return %n, %c, %w
  }
}
""".replace("    %pt = linear(%p, %at)\n", "")
    for name, length in graphs:
        text += f"""graph {name} {{
  stage 0 (%f0: f64[3, 3], %d: f64[{length}], %p: f64[{length}, 3], %q: f64[{length}, 3], %a: f64[{length}, 3, 3]) {{
    %f, %c, %w = scan(%f0, %d, %p, %q, %a) {{body = "step", carries = 1, sequences = 4}}
    %g = log(%c)
    %s = sum(%g)
    %ww = mul(%w, %w)
    %v = sum(%ww)
    %l = add(%s, %v)
"""
        if name.startswith("gradient"):
            text += "    %dd, %dp, %dq, %da = grad(%l, %d, %p, %q, %a)\n    return %l, %dd, %dp, %dq, %da\n"
        else:
            text += "    return %l\n"
        text += "  }\n}\n"
    for name, steps in itertools.product(("forward", "gradient"), (200, 2000)):
        text += f"""case {name}_{steps} {{
{run_by(name, steps)}
  input f0 = random(0.0, 0.01)
  input d = random(4.0, 5.0)
  input p = random(-0.3, 0.3)
  input q = random(-0.3, 0.3)
  input a = random(-0.4, 0.4)
}}
"""
    return text


def md(steps):
    text = """# Thirteen atoms under Lennard-Jones forces, velocity Verlet, f64: the kinetic energy at the end, and its
# gradients with respect to the potential's parameters.

graph energy {
  stage 0 (%x: f64[13, 3], %epsilon: f64[], %sigma: f64[]) {
    %xi = unsqueeze(%x) {dim = 1}
    %xj = unsqueeze(%x) {dim = 0}
    %d = sub(%xi, %xj)
    %dd = mul(%d, %d)
    %rr = sum(%dd) {dim = [2]}
    %one = eye() {n = 13, dtype = f64}
    %r = add(%rr, %one)
    %s2 = mul(%sigma, %sigma)
    %q = div(%s2, %r)
    %q2 = mul(%q, %q)
    %q6 = mul(%q2, %q)
    %q12 = mul(%q6, %q6)
    %pair = sub(%q12, %q6)
    %other = sub(1.0, %one)
    %apart = mul(%pair, %other)
    %sum = sum(%apart)
    %scaled = mul(%sum, 2.0)
    %e = mul(%scaled, %epsilon)
    return %e
  }
}
graph slope {
  stage 0 (%x: f64[13, 3], %epsilon: f64[], %sigma: f64[]) {
    %e = call(%x, %epsilon, %sigma) {graph = "energy"}
    %g = grad(%e, %x)
    return %g
  }
}
graph step {
  stage 0 (%x: f64[13, 3], %v: f64[13, 3], %g: f64[13, 3], %epsilon: f64[], %sigma: f64[]) {
    %half = mul(%g, -0.001)
    %vh = add(%v, %half)
    %dx = mul(%vh, 0.002)
    %nx = add(%x, %dx)
    %ng = call(%nx, %epsilon, %sigma) {graph = "slope"}
    %rest = mul(%ng, -0.001)
    %nv = add(%vh, %rest)
    return %nx, %nv, %ng
  }
}
"""
    for count in steps:
        for name in ("forward", "gradient"):
            text += f"""graph {name}_{count} {{
  stage 0 (%x0: f64[13, 3], %v0: f64[13, 3], %epsilon: f64[], %sigma: f64[]) {{
    %g0 = call(%x0, %epsilon, %sigma) {{graph = "slope"}}
    %x, %v, %g = scan(%x0, %v0, %g0, %epsilon, %sigma) {{body = "step", carries = 3, length = {count}}}
    %vv = mul(%v, %v)
    %k = sum(%vv)
"""
            if name == "gradient":
                text += "    %depsilon, %dsigma = grad(%k, %epsilon, %sigma)\n    return %k, %depsilon, %dsigma\n"
            else:
                text += "    return %k\n"
            text += "  }\n}\n"
    # An icosahedron around an atom, at the distance of the least energy.
    phi = (1 + 5**0.5) / 2
    corners = [(0, a, b * phi) for a in (-1, 1) for b in (-1, 1)]
    atoms = [(0.0, 0.0, 0.0)]
    for turn in range(3):
        atoms += [tuple(c[(i - turn) % 3] for i in range(3)) for c in corners]
    length = 1.08 / (1 + phi**2) ** 0.5
    places = ", ".join("[" + ", ".join(repr(x * length) for x in a) + "]" for a in atoms)
    for count in steps:
        for name in ("forward", "gradient"):
            text += f"""case {name}_{count} {{
  graph {name}_{count}
  input x0 = f64[13, 3] [{places}]
  input v0 = random(-0.2, 0.2)
  input epsilon = f64[] 1.0
  input sigma = f64[] 1.0
}}
"""
    return text


programs = {
    "cell_16": cell(16),
    "cell_256": cell(256),
    "leaves": leaves(20),
    "cholesky": cholesky(),
    "rk4": rk4((200, 1000, 100000)),
    "md": md((200, 1000)),
}
for name, text in programs.items():
    (here / f"{name}.ir").write_text(text)
