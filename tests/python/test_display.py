"""How objects show themselves, in a terminal and in a notebook."""

import html.parser
import tracemalloc
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import gradus
from gradus import ops

SWING = """
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y
  }
}"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def nothing_prints(capfd):
    yield
    assert capfd.readouterr() == ("", "")


def markup(text):
    """The elements: names, text, all closed. Browsers read HTML by rules that are laxer than XML's, so
    both parsers must find the same ones."""
    tree = ElementTree.fromstring(f"<body>{text}</body>")
    found = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, _: found.append(tag)
    parser.feed(text)
    assert found == [e.tag.replace(SVG, "").lower() for e in tree.iter()][1:]
    return tree


def columns(tree):
    """The titles of a drawing's columns."""
    return [e.text for e in tree.iter(f"{SVG}text") if e.get("class") == "column-title"]


@pytest.mark.parametrize("dtype", [d for d in gradus.DType if d != gradus.DType.bf16])
def test_a_tensor_shows_its_type_and_values(dtype):
    a = np.array([0, 1, 100]).astype(gradus.ones(1, dtype).numpy().dtype)
    name = str(dtype.name).replace("boolean", "bool")
    assert repr(gradus.from_numpy(a)) == f"Tensor({name}[3] {np.array2string(a, separator=', ')})"
    assert str(gradus.from_numpy(a[1])) == f"Tensor({name}[] {np.array2string(a[1])})"


def test_bf16(rng):
    # Values that it has exactly.
    a = rng.integers(-100, 100, size=(40, 50)).astype("f4") / 8
    x = gradus.from_numpy(a).to("bf16")
    for got, want in [(x, a), (x.T, a.T), (x[3:5, :2], a[3:5, :2]), (x[0, 0], a[0, 0])]:
        shown = np.array2string(np.asarray(want), separator=", ", prefix="       ")
        assert repr(got).split() == f"Tensor({gradus.Type('bf16', got.shape)} {shown})".split()


def test_rows_and_gradients(rng):
    a = rng.normal(size=(2, 3))
    x = gradus.tensor(a, requires_grad=True)
    rows = np.array2string(a, separator=", ", prefix="       ")
    assert repr(x) == f"Tensor(f64[2, 3]\n       {rows}, requires_grad)"
    assert repr(x[0].detach()) == f"Tensor(f64[3] {np.array2string(a[0], separator=', ')})"
    assert "requires_grad" in repr(x.sum())  # read without being differentiated
    assert repr(gradus.zeros((0, 2))) == "Tensor(f64[0, 2]\n       [])"
    assert repr(gradus.zeros(0)) == "Tensor(f64[0] [])"


@pytest.mark.parametrize("shape", [(1001,), (7, 200), (6, 200), (3, 20, 40), (12, 11, 10)])
def test_large_tensors_are_shortened_as_numpy_does(shape):
    a = np.arange(np.prod(shape), dtype=float).reshape(shape)
    indent = "       " if a.ndim > 1 else f"Tensor(f64[{shape[0]}] "
    assert np.array2string(a, separator=", ", prefix=indent) in repr(gradus.from_numpy(a))


def test_options_are_numpys():
    x = gradus.tensor([0.123456789, 1.0, 2.0, 3.0, 4.0])
    with np.printoptions(precision=3, threshold=4, edgeitems=1):
        assert repr(x) == "Tensor(f64[5] [0.123, ..., 4.   ])"


def test_only_what_is_shown_is_read():
    x = gradus.tensor(1.0).expand(10**6, 10**6)  # of one element's memory
    many = gradus.zeros((2,) * 14)
    repr(x)  # imports what it needs
    for dtype in ("f64", "bf16"):
        wide = gradus.zeros(4 * 10**6, dtype)
        tracemalloc.start()
        text = repr(wide), repr(x), repr(many)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 500_000
        assert text[0] == f"Tensor({dtype}[4000000] [0., 0., 0., ..., 0., 0., 0.])"
        assert text[1].count("1.") == 36
        assert text[2].endswith("\n       [...])")


def test_a_device_tensor_shows_its_type():
    native = pytest.importorskip("gradus_native", reason="the tests' own module is not built")
    x = native.on_device()
    assert repr(x) == "Tensor(f64[2]@cuda:7)"
    results = gradus._results.Results([x], ["y"])
    assert repr(results) == "Results(\n  y = f64[2]@cuda:7\n)"
    assert "@cuda:7" in results._repr_html_()


def test_a_recording_shows_types():
    """It may read no values, and keeps none; what a function shows does not end it."""
    shown = []
    left = []

    def f(x, w):
        shown.append(repr(x * w))
        shown.append(repr(w))
        left.append(x * 2)
        return (x * w).sum()

    f = gradus.function(f)
    f(np.ones(3), np.ones(3))
    assert [s.partition(",")[0].rstrip(")") for s in shown] == ["Tensor(f64[3]"] * 2
    assert repr(left[0]).startswith("Tensor(f64[3]") and "[1" not in repr(left[0])


def test_messages_show_no_values():
    large = np.ones((30, 30))
    with pytest.raises(gradus.Error) as e:
        gradus.grad(lambda x: x * x)(large)
    assert "Tensor(f64[30, 30]" in str(e.value) and "1." not in str(e.value)
    with pytest.raises(gradus.Error) as e:
        gradus.vjp(lambda x: {"y": (x, [x], 3)}, large, has_aux=True)
    assert "{'y': (Tensor(f64[30, 30]" in str(e.value) and "1." not in str(e.value)


def results():
    program = gradus.parse("""
graph g {
  stage 0 (%x: f64[N]) {
    %y = tanh(%x)
    %s = sum(%y)
    return "<b>&" = %y, z = none, s = %s
  }
}""")
    return gradus.State(program.compile()).run(np.arange(100.0))


def test_results():
    lines = repr(results()).split("\n")
    assert lines[0] == "Results(" and lines[-1] == ")"
    assert lines[1].startswith("  <b>& = f64[100] [0. , 0.76159416, 0.96402758, ..., 1. ")
    assert lines[2] == "  z = None (structurally zero)"
    assert lines[3].startswith("  s = f64[] 98.")
    assert repr(gradus._results.Results([], [])) == "Results()"
    odd = gradus._results.Results([gradus.ones((3, 4))], ["\x1b[31m\n"])
    assert repr(odd) == "Results(\n  '\\x1b[31m\\n' = f64[3, 4] [[1., ..., 1.], ..., [1., ..., 1.]]\n)"


def test_results_in_a_notebook():
    rows = [[cell.text for cell in row] for row in markup(results()._repr_html_()).iter("tr")]
    assert rows[0] == ["name", "dtype", "shape", "values"]
    assert rows[1][:3] == ["<b>&", "f64", "[100]"] and "..." in rows[1][3]
    assert rows[2] == ["z", None, None, "None (structurally zero)"]
    assert rows[3][:3] == ["s", "f64", "[]"] and float(rows[3][3]) > 98


def test_a_view_is_the_drawing():
    program = gradus.parse(SWING).differentiate(1)
    view = program.view(sizes={"N": 8})
    assert repr(view).startswith("<View of 'swing', ")
    svg = ElementTree.fromstring(view.svg)
    assert svg.tag == f"{SVG}svg" and "N = 8" in svg[0].text
    assert columns(svg) == ["stage 0", "held after stage 0", "stage 1"]
    titles = [e.text for e in svg.iter(f"{SVG}text") if e.get("class") == "title"]
    assert {"tanh", "sum", "%x", "d1_x"} <= set(titles)
    written = ElementTree.fromstring(program.view(written=True).svg)
    assert columns(written) == columns(svg) and "kernels" not in written[0].text
    with pytest.raises(gradus.Error, match="no dimension 'M'; it has N"):
        program.view(sizes={"M": 8})
    with pytest.raises(gradus.Error, match="memory budget is for what is compiled"):
        program.view(written=True, memory_budget=0)
    assert "3 values, 24*N B" in view.svg
    assert "2 values, 16*N B" in program.view({"N": 8}, memory_budget=0).svg


def test_a_drawing_in_a_notebook_keeps_its_style():
    view = gradus.parse(SWING).view()
    assert view._repr_html_() == view.html
    shown = markup(view.html)
    (svg,) = shown.iter(f"{SVG}svg")
    (style,) = shown.iter(f"{SVG}style")
    rules = style.text.strip().split("\n")
    assert len(rules) > 10 and all(r.startswith(f"#{svg.get('id')} ") for r in rules)
    # Nothing else differs from the file.
    file = ElementTree.fromstring(view.svg)
    (own,) = file.iter(f"{SVG}style")
    assert own.text == style.text.replace("#drawing ", "")
    own.text = style.text
    assert ElementTree.tostring(file).strip() == ElementTree.tostring(svg).strip()


def test_a_program_in_a_notebook():
    program = gradus.parse(SWING).differentiate(2)
    assert program._repr_html_() == program.view().html
    assert columns(markup(program._repr_html_()))[::2] == ["stage 0", "stage 1", "stage 2"]
    assert repr(program) == "<Program 'swing', 3 stages>"


def test_sizes_that_fit_no_plan():
    program = gradus.parse("""graph g {
  stage 0 (%x: f32[N]) {
    %y = reshape(%x) {shape = [3, 7]}
    return %y
  }
}""")
    (svg,) = markup(program._repr_html_()).iter(f"{SVG}svg")
    assert "kernels are not known for N = 256; say sizes (--set, or Python's view(sizes))" in svg[0].text
    assert "not known" not in program.view(sizes={"N": 21}).svg


def test_a_large_program_in_a_notebook():
    body = "\n".join(f"    %v{i + 1} = sin(%v{i})" for i in range(400))
    inputs = "%v0: f64[N], " + ", ".join(f'%"<i{i}>": f64[]' for i in range(20))
    program = gradus.parse(f"graph chain {{\n  stage 0 ({inputs}) {{\n{body}\n    return %v400\n  }}\n}}")
    assert program.instructions == 400
    shown = markup(program._repr_html_())
    assert [e.tag for e in shown] == ["pre"]
    assert shown[0].text.split("\n") == [
        "chain: 1 stage, 400 instructions",
        "  stage 0 (v0: f64[N], " + ", ".join(f"<i{i}>: f64[]" for i in range(7)) + ", 13 more)"
        " -> (v400: f64[N])",
    ]


def test_instructions_of_bodies_count_once():
    program = gradus.parse("""
graph step {
  stage 0 (%x: f64[], %d: f64[]) {
    %s = sin(%x)
    %y = add(%s, %d)
    return %y, again = %y
  }
}
graph walk {
  stage 0 (%x: f64[], %ds: f64[5]) {
    %y, %ys = scan(%x, %ds) {body = "step", carries = 1, sequences = 1}
    %z, %zs = scan(%y, %ds) {body = "step", carries = 1, sequences = 1}
    return %z
  }
}""")
    assert program.instructions == 4
    assert columns(markup(program.view(written=True).html)) == ["stage 0", "graph step"]


def test_names_are_no_markup():
    program = gradus.parse(r"""graph g {
  stage 0 (%"</style><script>alert(1)</script>": f64[N], %"a\"b'c&d<e>": f64[N]) {
    %y = mul(%"</style><script>alert(1)</script>", %"a\"b'c&d<e>")
    return "</title><img src=x onerror=alert(2)>" = %y
  }
}""")
    for shown in (program._repr_html_(), program.view(written=True).html):
        tags = {e.tag for e in markup(shown).iter()}
        assert f"{SVG}svg" in tags and not tags & {"script", f"{SVG}script", "img", f"{SVG}img"}


def test_a_function_shows_its_signatures():
    @gradus.function(order=2)
    def energy(x, p, n=2):
        return {"e": (ops.tanh(x * p["w"]) ** n).sum(), "x": [x]}

    assert repr(energy) == "<gradus.function 'energy', order 2, not called>"
    assert [e.tag for e in markup(energy._repr_html_())] == ["pre"]
    x = np.ones(5)
    energy(x, {"w": x})
    head = "<gradus.function 'energy', order 2"
    first = "  (x: f64[5], p: {'w': f64[5]}, n: 2) -> {'e': f64[], 'x': [f64[5]]}: 1 stage"
    assert repr(energy) == f"{head}\n{first}>"
    assert columns(markup(energy._repr_html_())) == ["stage 0"]
    a = gradus.tensor(np.ones(3, "f4"), requires_grad=True)
    energy(a, {"w": np.ones(3, "f4")}, n=3)
    second = "  (x: f32[3], p: {'w': f32[3]}, n: 3) -> {'e': f32[], 'x': [f32[3]]}: 3 stages by x"
    assert repr(energy) == f"{head}\n{first}\n{second}>"
    shown = markup(energy._repr_html_())
    assert [e.tag for e in shown] == ["pre", "div"] and shown[0].text == repr(energy)
    assert columns(shown)[::2] == ["stage 0", "stage 1", "stage 2"]
    energy(x, {"w": x})  # the last call's are drawn, and stand at the end
    assert repr(energy) == f"{head}\n{second}\n{first}>"
    assert columns(markup(energy._repr_html_())) == ["stage 0"]
    energy(gradus.tensor(x, requires_grad=True), {"w": x})
    assert repr(energy).endswith(first + "; 3 stages by x>")


def test_a_function_that_is_only_recorded():
    f = gradus.function(lambda **named: sum(named.values()) * 2)
    f.record(**{"<k>": np.ones(2)})
    assert repr(f) == (
        "<gradus.function '<lambda>', order 1\n  (named: {'<k>': f64[2]}) -> f64[2]: recorded>"
    )
    assert markup(f._repr_html_())[0].text == repr(f)
    wide = gradus.function(lambda *xs: sum(xs))
    wide(*[np.ones(2)] * 200)
    assert len(repr(wide)) < 1000
    for n in range(12):
        f(x=np.ones(n))
    lines = repr(f).split("\n")
    assert len(lines) == 12 and lines[1] == "  3 older" and "f64[11]" in lines[-1]
