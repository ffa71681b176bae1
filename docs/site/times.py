"""Time against size, from the rows of bench_peer_fusion: a drawing for the pointwise chain, one for
softmax and one for layer norm over rows; a panel for each order."""

import math

COLOURS = {"Gradus": "#0b62a4", "libtorch": "#c4521a"}
PANEL, HEIGHT, LEFT, TOP, BOTTOM, GAP = 270, 230, 62, 74, 46, 28
ORDERS = ["forward", "forward and backward", "and second backward"]
# Rows have 1024 columns.
DRAWINGS = {"chain": ("tanh(a b + c) sigmoid(a) − c / 2, f32", 1, "elements"),
            "softmax": ("softmax of rows of 1,024, f32", 1024, "elements"),
            "layer_norm": ("layer norm of rows of 1,024, f32", 1024, "elements")}


def points(benchmarks, drawing, scale):
    """{order: {(who, threads): [(elements, microseconds)]}} of rows NAME/SIZE/order_N/THREADS."""
    orders = {}
    for row in benchmarks:
        name, *rest = row["name"].split("/")
        if name != drawing or len(rest) < 3 or not rest[0].isdigit() or "gradus_us" not in row:
            continue
        order, threads = int(rest[1].removeprefix("order_")), int(rest[2])
        for who, key in (("Gradus", "gradus_us"), ("libtorch", "bare_us")):
            lines = orders.setdefault(order, {})
            lines.setdefault((who, threads), []).append((int(rest[0]) * scale, row[key]))
    for lines in orders.values():
        for line in lines.values():
            line.sort()
    return orders


def duration(microseconds):
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1), ("ns", 1e-3)):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds * 1e3:g} ns"


def decades(values):
    return range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)


def power(exponent):
    digits = str(exponent).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    return f"10{digits}"


def panel(svg, x0, order, lines, xs, ys, unit, labels):
    def place(x, y):
        across = (math.log10(x) - xs[0]) / (xs[-1] - xs[0])
        up = (math.log10(y) - ys[0]) / (ys[-1] - ys[0])
        return x0 + across * PANEL, TOP + (1 - up) * HEIGHT

    svg.append(f'<text x="{x0 + PANEL / 2}" y="{TOP - 10}" class="middle">{ORDERS[order]}</text>')
    for e in xs:
        x, bottom = place(10**e, 10 ** ys[0])
        svg.append(f'<path class="grid" d="M{x:.1f},{TOP}V{bottom:.1f}"/>')
        svg.append(f'<text x="{x:.1f}" y="{bottom + 16:.1f}" class="middle">{power(e)}</text>')
    for e in ys:
        x, y = place(10 ** xs[0], 10**e)
        svg.append(f'<path class="grid" d="M{x:.1f},{y:.1f}h{PANEL}"/>')
        if labels:
            svg.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" class="end">{duration(10.0**e)}'
                       "</text>")
    svg.append(f'<text x="{x0 + PANEL / 2}" y="{TOP + HEIGHT + 36}" class="middle">{unit}</text>')
    for (who, threads), line in sorted(lines.items()):
        dashed = "" if threads == 1 else ' stroke-dasharray="5 3"'
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in line))
        svg.append(f'<polyline stroke="{COLOURS[who]}"{dashed} points="{path}"/>')
        svg += [f'<circle fill="{COLOURS[who]}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
                for x, y in (place(*p) for p in line)]


def draw(title, unit, orders):
    values = [p for lines in orders.values() for line in lines.values() for p in line]
    xs, ys = decades([p[0] for p in values]), decades([p[1] for p in values])
    width = LEFT + max(2, len(orders)) * (PANEL + GAP)
    height = TOP + HEIGHT + BOTTOM
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" role="img">',
           f"<title>{title}: time against size</title>",
           "<style>text{font:11px sans-serif;fill:#333}.middle{text-anchor:middle}"
           ".end{text-anchor:end}.grid{stroke:#ddd}polyline{fill:none;stroke-width:1.6}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           f'<text x="{LEFT}" y="18" style="font-weight:bold">{title}</text>']
    x = LEFT
    for who, colour in COLOURS.items():
        for threads in (1, 2):
            dashed = "" if threads == 1 else ' stroke-dasharray="5 3"'
            svg.append(f'<polyline stroke="{colour}"{dashed} points="{x},36 {x + 24},36"/>')
            label = f"{who}, {threads} thread{'' if threads == 1 else 's'}"
            svg.append(f'<text x="{x + 29}" y="40">{label}</text>')
            x += 140
    for i, (order, lines) in enumerate(sorted(orders.items())):
        panel(svg, LEFT + i * (PANEL + GAP), order, lines, xs, ys, unit, i == 0)
    return "\n".join([*svg, "</svg>", ""])


def drawings(benchmarks):
    """(name, title, SVG) of each that there are sizes of."""
    for name, (title, scale, unit) in DRAWINGS.items():
        orders = points(benchmarks, name, scale)
        if orders:
            yield name, f"{title}: time against size", draw(title, unit, orders)
