"""The source folders in the order of scripts/check-includes, and drawings of the includes between
them."""

import pathlib
import re
from collections import Counter

import plots

ROOT = pathlib.Path(__file__).resolve().parents[2]


def order_and_headers():
    """The folders in dependency order; the folder of each public header, a path from include/."""
    script = (ROOT / "scripts/check-includes").read_text()
    order = re.search(r"my @order = qw\((.*?)\)", script)[1].split()
    table = re.search(r"my %headers = \((.*?)\n  \);", script, re.S)[1]
    headers = {f"gradus/{name}.h": folder for folder, names in re.findall(r'"(.*?)" => "(.*?)"', table)
               for name in names.split()}
    return order, headers


def source_files():
    """(folder, file) of all folders and their public headers."""
    order, headers = order_and_headers()
    for folder in sorted({name.split("/")[0] for name in order}):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield folder_of(str(path.relative_to(ROOT)), order, headers), path
    for name, folder in headers.items():
        yield folder, ROOT / "include" / name


def folder_of(path, order, headers):
    """The folder of the order that has a path as in an #include; None for one of a library."""
    if path in headers:
        return headers[path]
    return max((f for f in order if path.startswith(f + "/")), key=len, default=None)


def edges_and_lines():
    """{(folder, folder that it includes from): files that do}, {folder: lines}."""
    order, headers = order_and_headers()
    edges, lines = Counter(), Counter()
    for folder, path in source_files():
        text = path.read_text()
        lines[folder] += text.count("\n")
        for name in set(re.findall(r'^#include "(.*?)"', text, re.M)):
            target = folder_of(name, order, headers)
            if target not in (None, folder):
                edges[folder, target] += 1
    return edges, lines


def arrows_of(order, edges):
    """{folder: those that it includes from, without those that follow from others}."""
    direct = {f: {target for source, target in edges if source == f} for f in order}
    reached = {}
    for folder in order:
        reached[folder] = direct[folder].union(*(reached[t] for t in direct[folder]))
    return {f: {t for t in direct[f] if not any(t in reached[other] for other in direct[f])}
            for f in order}


def places(arrows):
    """Of each folder, and of each (folder, target, row) that an arrow passes by: its column and row.
    A folder is below those that it includes from, about in the middle of them."""
    rows, above = {}, {}
    for folder, targets in arrows.items():
        rows[folder] = max((rows[t] + 1 for t in targets), default=0)
        above[folder] = []
        for target in sorted(targets):
            bends = [(folder, target, row) for row in range(rows[target] + 1, rows[folder])]
            rows.update({bend: bend[2] for bend in bends})
            chain = [target, *bends, folder]
            above.update({bend: [chain[k]] for k, bend in enumerate(bends)})
            above[folder].append(chain[-2])
    place = {}
    for row in range(max(rows.values()) + 1):
        middle = {n: sum(place[a][0] for a in above[n]) / max(len(above[n]), 1)
                  for n in rows if rows[n] == row}
        nodes = sorted(middle, key=middle.get)
        columns = [0.0]
        for left, right in zip(nodes, nodes[1:]):
            columns.append(columns[-1] + (1 if left in arrows and right in arrows else 0.64))
        shift = (sum(middle.values()) - sum(columns)) / len(nodes)
        place.update({n: (x + shift, row) for n, x in zip(nodes, columns)})
    return place, above


def layers(order, edges, lines):
    wide, high, across, down, margin = 158, 40, 190, 68, 14
    arrows = arrows_of(order, edges)
    place, above = places(arrows)
    left = min(place[f][0] for f in order)
    middle = {n: (margin + wide / 2 + (x - left) * across, margin + row * down)
              for n, (x, row) in place.items()}
    parts = ['<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
             'markerHeight="7" orient="auto"><path d="M0,0L8,4L0,8z" fill="#7b8794"/></marker></defs>']
    for node, targets in above.items():
        x1, y1 = middle[node]
        for target in targets:
            x2, y2 = middle[target][0], middle[target][1] + high
            through = f"M{x1:.1f},{y1 + high}V{y1}" if node not in arrows else f"M{x1:.1f},{y1}"
            head = ' marker-end="url(#head)"' if target in arrows else ""
            parts.append(f'<path d="{through}C{x1:.1f},{y1 - 20} {x2:.1f},{y2 + 24} {x2:.1f},{y2}" '
                         f'fill="none" stroke="#7b8794"{head}/>')
    for folder in order:
        x, y = middle[folder]
        parts.append(f'<rect x="{x - wide / 2:.1f}" y="{y}" width="{wide}" height="{high}" rx="5" '
                     'fill="#e3f0fb" stroke="#4a90c8"/>')
        parts.append(plots.text(x, y + 17, folder, "middle", 'font-weight="bold"'))
        parts.append(plots.text(x, y + 32, f"{lines[folder]:,} lines", "middle"))
    width = max(middle[f][0] for f in order) + wide / 2 + margin
    height = max(y for _, y in middle.values()) + high + margin
    return plots.svg(round(width), round(height), "The source folders in dependency order", parts)


def matrix(order, edges):
    cell, left, top = 32, 120, 130
    parts = []
    for k, folder in enumerate(order):
        y, x = top + k * cell, left + k * cell
        parts.append(plots.text(left - 8, y + 20, folder, "end"))
        parts.append(plots.text(0, 0, folder, extra=f'transform="translate({x + 20},{top - 8}) '
                                                    'rotate(-60)"'))
        parts.append(f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="#ccd3da"/>')
        for j, target in enumerate(order):
            if count := edges[folder, target]:
                shade = min(0.15 + count / 100, 0.7)
                parts.append(f'<rect x="{left + j * cell}" y="{y}" width="{cell}" height="{cell}" '
                             f'fill="#4a90c8" fill-opacity="{shade:.2f}"/>')
                parts.append(plots.text(left + j * cell + cell / 2, y + 20, str(count), "middle"))
    side = len(order) * cell
    for k in range(len(order) + 1):
        parts.append(plots.line(left, top + k * cell, left + side, top + k * cell))
        parts.append(plots.line(left + k * cell, top, left + k * cell, top + side))
    return plots.svg(left + side + 40, top + side + 14, "Files that include from a folder", parts)


def draw(out):
    """Writes the drawings beside the pages. Markdown that shows them."""
    order, _ = order_and_headers()
    edges, lines = edges_and_lines()
    (out / "folders.svg").write_text(layers(order, edges, lines))
    (out / "includes.svg").write_text(matrix(order, edges))
    return ("![The source folders in dependency order](folders.svg)\n\n"
            "An arrow leads from a folder to one that it includes from. Includes that follow from "
            "other arrows are left out. The lines of a folder include those of its public headers.\n\n"
            "![Files that include from a folder](includes.svg)\n\n"
            "A cell has the number of files of its row's folder that include a file of its column's "
            "folder.")
