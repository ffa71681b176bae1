"""How objects are shown, in a terminal and in a notebook.

Names come with programs from elsewhere, so they are escaped: in HTML, and where they have control
characters.
"""

from __future__ import annotations

import html
import math
import sys
from typing import TYPE_CHECKING, Any, Sequence

from . import _gradus
from ._gradus import DType, Program, Tensor, Type
from ._trees import unflatten

if TYPE_CHECKING:
    from ._function import Function, _Known
    from ._results import Results

_most_drawn = 300  # instructions
_most_in_line = 8  # elements of a tensor, inputs of a stage
_longest_line = 400
_most_signatures = 10


class _Text(str):
    """Is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def type_text(x: Tensor) -> str:
    """`f64[3]`, and where it is if that is a device."""
    where = "" if x.device == "cpu" else f"@{x.device}"
    return f"{Type(x.dtype, x.shape)}{where}"


def tensor_text(x: Tensor) -> str:
    """`Tensor(f64[2] [1., 2.])`; its lines and what it leaves out are as NumPy's print options say."""
    import numpy

    options = numpy.get_printoptions()
    head = f"Tensor({type_text(x)}"
    # Rows begin below the type.
    gap, indent = ("\n       ", "       ") if x.ndim > 1 else (" ", head + " ")
    values = _values(x, options["threshold"], options["edgeitems"], indent)
    return head + (values and gap + values) + _end_of(x)


def without_values(x: Any) -> str:
    """The repr, for a message: of tensors, and those in tuples, lists and dicts, the types alone."""
    if isinstance(x, Tensor):
        return f"Tensor({type_text(x)}{_end_of(x)}"
    if isinstance(x, list):
        return f"[{', '.join(map(without_values, x))}]"
    if isinstance(x, tuple):
        return f"({', '.join(map(without_values, x))}{',' * (len(x) == 1)})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{k!r}: {without_values(v)}' for k, v in x.items())}}}"
    return repr(x)


def _end_of(x: Tensor) -> str:
    return ", requires_grad)" if x.requires_grad else ")"


def _values(x: Tensor, most: int, edges: int, indent: str = "", width: int | None = None) -> str:
    """As NumPy shows them: of more than `most` elements those at the `edges`. Nothing else is read.
    Empty where values cannot be shown."""
    memory = _gradus.shown_values(x)
    if memory is None:
        return ""
    import numpy

    array = numpy.asarray(memoryview(memory))  # type: ignore[arg-type]
    whole = array.size <= most
    if not whole:

        def count(e: int) -> int:
            return math.prod(min(n, 2 * e) for n in array.shape)

        edges = next((e for e in range(edges, 0, -1) if count(e) <= most), 0)
        if edges == 0:
            return "[...]"
        # One more than is shown, so that NumPy leaves something out.
        places = [
            range(n) if n <= 2 * edges + 1 else [*range(edges + 1), *range(n - edges, n)]
            for n in array.shape
        ]
        array = array[numpy.ix_(*places)]
    if x.dtype == DType.bf16:  # the upper half of an f32
        array = numpy.asarray(numpy.left_shift(array, 16, dtype="u4")).view("f4")
    return numpy.array2string(
        array,
        max_line_width=width,
        separator=", ",
        prefix=indent,
        threshold=most if whole else 0,
        edgeitems=edges,
    )


def _line_of(x: Tensor) -> str:
    return " ".join(_values(x, _most_in_line, 3, width=sys.maxsize).split())


_zero = "None (structurally zero)"


def results_text(results: Results) -> str:
    """A line for each result: `y = f64[2] [1., 2.]`."""
    lines = [
        f"  {_name(n)} = " + (_zero if x is None else f"{type_text(x)} {_line_of(x)}".rstrip())
        for n, x in zip(results.names, results)
    ]
    return "\n".join(["Results(", *lines]) + "\n)" if lines else "Results()"


def results_html(results: Results) -> str:
    """A table of the results."""
    rows = ["<tr><th>name</th><th>dtype</th><th>shape</th><th>values</th></tr>"]
    for n, x in zip(results.names, results):
        dtype, bracket, shape = ("", "", "") if x is None else type_text(x).partition("[")
        cells = [_name(n), dtype, bracket + shape, _zero if x is None else _line_of(x)]
        rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    return "<table>\n" + "\n".join(rows) + "\n</table>\n"


def program_text(program: Program) -> str:
    """A line for each stage: its inputs and results."""
    lines = [
        f"  stage {s} ({_typed(program.inputs(s))}) -> ({_typed(program.results(s))})"
        for s in range(program.stages)
    ]
    counts = _counted(program.stages, "stage") + ", " + _counted(program.instructions, "instruction")
    head = f"{_name(program.name)}: {counts}"
    return "\n".join([head, *lines])


def program_html(program: Program) -> str:
    """The drawing; of a large program the text."""
    if program.instructions > _most_drawn:
        return _preformatted(program_text(program))
    return program.view().html


def function_text(function: Function[Any]) -> str:
    """A line for each of the last signatures, the last one called at the end."""
    name = getattr(function, "__name__", type(function.function).__name__)
    recordings = function.recordings()
    older = len(recordings) - _most_signatures
    lines = [f"  {older} older"] * (older > 0)
    lines += [_signature_text(known) for known in recordings[-_most_signatures:]]
    head = f"<gradus.function '{_name(name)}', order {function.order}" + ("" if lines else ", not called")
    return "\n".join([head, *lines]) + ">"


def _signature_text(known: _Known) -> str:
    """`(x: f64[5]) -> f64[]: 1 stage; 3 stages by x`, where x requires gradients."""
    program, names, structure, _ = known.recorded
    given = ", ".join(f"{n}: {_with_types(a, program.inputs())}" for n, a in known.arguments.items())
    stages: dict[str, None] = {}  # contexts have the same ones
    for (wrt, _), staged in list(known.staged.items()):
        count = _counted(staged.derivatives + 1, "stage")
        by = ", ".join(_name(n) for n, w in zip(names, wrt) if w)
        stages[count + (by and f" by {by}")] = None
    made = "; ".join(stages) or "recorded"
    return f"  ({_cut(given)}) -> {_cut(_with_types(structure, program.results()))}: {_cut(made)}"


def function_html(function: Function[Any]) -> str:
    """Its signatures, and the stages of the last one."""
    text = _preformatted(function_text(function))
    recordings = function.recordings()
    return text + program_html(function.staged_program(recordings[-1])) if recordings else text


def _with_types(structure: Any, typed: Sequence[tuple[str, Type | None]]) -> str:
    return repr(unflatten(structure, [_Text(t) for _, t in typed]))


def _typed(values: Sequence[tuple[str, Type | None]]) -> str:
    shown = [f"{_name(n)}: {'none' if t is None else t}" for n, t in values[:_most_in_line]]
    left = len(values) - len(shown)
    return ", ".join(shown + [f"{left} more"] * (left > 0))


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _name(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _cut(text: str) -> str:
    return text if len(text) <= _longest_line else text[:_longest_line] + "..."


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>\n"
