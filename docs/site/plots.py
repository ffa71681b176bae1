"""Plots of bench/results/*.json as SVG."""

import json
import math
import re
from xml.sax.saxutils import escape

import times

COLOURS = ("#2f6db3", "#e08a2e", "#4a9c59")
FONT = 'font-family="DejaVu Sans, sans-serif" font-size="12"'


def results(folder, name):
    file = folder / f"{name}.json"
    return json.loads(file.read_text())["benchmarks"] if file.exists() else []


def text(x, y, value, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {FONT} {extra}>{escape(value)}</text>'


def line(x1, y1, x2, y2, colour="#ddd", extra=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f"{extra}/>")


def svg(width, height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}"><title>{escape(title)}</title>'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts)
            + "\n</svg>\n")


def legend(series, x, y):
    parts = []
    for k, name in enumerate(series):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[k]}"/>')
        parts.append(text(x + 18, y, name))
        x += 40 + 7.2 * len(name)
    return parts


def ticks_of(low, high):
    """Powers of ten, with 2 and 5 between them where there are few."""
    steps = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [s * 10.0 ** e for e in exponents for s in steps if low <= s * 10.0 ** e <= high * 1.001]


def scale_of(values):
    low, high = min(values) * 0.8, max(max(values) * 1.25, 1.2)
    return low, high, lambda v, size: size * math.log(v / low) / math.log(high / low)


def bars(title, rows, series):
    """rows: (name, a ratio or None for each of the series). One line means equal."""
    left, wide, thick = 310, 420, 13
    low, high, along = scale_of([v for _, values in rows for v in values if v])
    step = thick * len(series) + 10
    height = 70 + step * len(rows) + 20
    parts = [text(12, 22, title, extra='font-weight="bold"'), *legend(series, left, 44)]
    bottom = 58 + step * len(rows)
    for tick in ticks_of(low, high):
        x = left + along(tick, wide)
        parts += [line(x, 56, x, bottom), text(x, bottom + 16, f"{tick:g}", "middle")]
    for r, (name, values) in enumerate(rows):
        y = 60 + r * step
        parts.append(text(left - 8, y + step / 2, name, "end"))
        for k, value in enumerate(values):
            if value is None:
                continue
            width = max(along(value, wide), 1)
            parts.append(f'<rect x="{left}" y="{y + k * thick}" width="{width:.1f}" '
                         f'height="{thick - 2}" fill="{COLOURS[k]}"/>')
            parts.append(text(left + width + 4, y + k * thick + 10, f"{value:.3g}"))
    one = left + along(1, wide)
    parts.append(line(one, 54, one, bottom, "#b00", 'stroke-dasharray="4 3"'))
    return svg(left + wide + 60, height, title, parts)


def curves(title, series, x_name):
    """series: name -> [(x, ratio)], both axes logarithmic."""
    left, top, wide, high_px = 60, 60, 560, 260
    low, high, up = scale_of([v for points in series.values() for _, v in points])
    xs = sorted({x for points in series.values() for x, _ in points})

    def place(x, v):
        return (left + wide * math.log(x / xs[0]) / math.log(xs[-1] / xs[0]),
                top + high_px - up(v, high_px))
    parts = [text(12, 22, title, extra='font-weight="bold"'), *legend(series, left, 44)]
    for tick in ticks_of(low, high):
        y = place(xs[0], tick)[1]
        parts += [line(left, y, left + wide, y), text(left - 6, y + 4, f"{tick:g}", "end")]
    for x in xs:
        parts.append(text(place(x, high)[0], top + high_px + 18, f"2^{math.log2(x):.0f}", "middle"))
    parts.append(text(left + wide, top + high_px + 36, x_name, "end"))
    y = place(xs[0], 1)[1]
    parts.append(line(left, y, left + wide, y, "#b00", 'stroke-dasharray="4 3"'))
    for k, points in enumerate(series.values()):
        way = " ".join("{:.1f},{:.1f}".format(*place(*p)) for p in sorted(points))
        parts.append(f'<polyline points="{way}" fill="none" stroke="{COLOURS[k]}" '
                     'stroke-width="2"/>')
        for p in points:
            x, y = place(*p)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[k]}"/>')
    return svg(left + wide + 50, top + high_px + 50, title, parts)


def by_threads(benchmarks, keep=lambda name: True):
    rows = {}
    for b in benchmarks:
        found = re.match(r"(.*)/([12])/(iterations:\d+/)?manual_time$", b["name"])
        if found and "ratio" in b and keep(found[1]):
            rows.setdefault(found[1], [None, None])[int(found[2]) - 1] = b["ratio"]
    return list(rows.items())


def draw(folder, out):
    """Writes the plots beside the pages. Markdown that shows them."""
    shown = []

    def add(name, caption, drawing):
        (out / f"plot-{name}.svg").write_text(drawing)
        shown.append(f"![{caption}](plot-{name}.svg)")

    threads = ["one thread", "two threads"]
    models = by_threads(results(folder, "peer_models"))
    if models:
        title = "Training steps: our time over libtorch's (left of the line is faster)"
        add("models", title, bars(title, models, threads))
    chain = {}
    for b in results(folder, "peer_fusion"):
        found = re.match(r"chain/(\d+)/order_(\d)/([12])/", b["name"])
        if found and "ratio" in b and found[3] == "1":
            kind = "forward" if found[2] == "0" else "both stages"
            chain.setdefault(kind, []).append((int(found[1]), b["ratio"]))
    if chain:
        title = "A pointwise chain, one thread: our time over libtorch's"
        add("chain", title, curves(title, chain, "elements"))
    for name, title, drawing in times.drawings(results(folder, "peer_fusion")):
        add(f"times-{name}", title, drawing)
    # Of several numbers of rows, the most.
    rows = by_threads(results(folder, "peer_fusion"),
                      lambda n: re.match(r"\w+/(4096/)?order_", n) is not None)
    if rows:
        title = "Softmax and layer norm, stages up to an order: our time over libtorch's"
        add("rows", title, bars(title, rows, threads))
    products = {}
    for name, values in by_threads(results(folder, "products")):
        what, _, dtype = name.partition("/")
        if dtype in ("f32", "f64", "bf16") and values[0]:
            row = products.setdefault(what, [None] * 3)
            row[("f32", "f64", "bf16").index(dtype)] = values[0]
    products = {name: row for name, row in products.items() if row[1]}  # no convolutions
    if products:
        title = "Products, one worker: our time over the bare library's"
        add("products", title, bars(title, list(products.items()), ["f32", "f64", "bf16"]))
    return "\n\n".join(shown) + "\n\nDrawn from `bench/results/*.json`, one run of each."
