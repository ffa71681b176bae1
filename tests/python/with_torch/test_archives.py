"""Archives of torch.export, loaded as modules: gradus.torch.function and the backend of
torch.compile give what eager torch gave, at every order that the reference has. SPEC T4, T5"""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from archives import NAMES, Archive
from models import close

import gradus
import gradus.torch

# What is refused, and how the message names it.
REFUSED = {
    "hop_associative_scan": "predispatch",
}


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.set_default_dtype(torch.float32)


def load(name):
    archive = Archive(name)
    torch.set_default_dtype(archive.dtype)
    return archive


def through_function(module):
    return gradus.torch.function(module)


def through_backend(module, **options):
    options = {"order": 2, "strict": True, **options}
    return torch.compile(module, backend=gradus.torch.backend, options=options)


DOORS = {"function": through_function, "backend": through_backend}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in REFUSED])
def test_archive(name, door):
    archive = load(name)
    if (name, door) == ("operators_losses", "function"):
        # torch.export cannot trace a loaded program with a literal tensor. The message is its own.
        with pytest.raises(gradus.torch.NotExported, match="torch.export.*detach views in-place"):
            archive.check(DOORS[door](archive.module))
        return
    for prefix in archive.prefixes():
        archive.check(DOORS[door](archive.module), prefix)
        archive = load(name)  # buffers are as they were


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, door):
    archive = load(name)
    with pytest.raises(gradus.Unsupported, match=REFUSED[name]):
        DOORS[door](archive.module)(*archive.inputs().values())


class Pairs(torch.nn.Module):
    """Energies of pairs, as a list of edges has them: the numbers of atoms and edges vary."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(3, 4, dtype=torch.float64)
        self.net = torch.nn.Linear(5, 1, dtype=torch.float64)

    def forward(self, pos, z, edges):
        d = (pos[edges[0]] - pos[edges[1]]).square().sum(-1, keepdim=True)
        h = self.embedding(z)[edges[1]]
        message = torch.tanh(self.net(torch.cat([h, torch.exp(-d)], -1)))
        return torch.zeros_like(pos[:, :1]).index_add(0, edges[0], message).sum()


@pytest.mark.parametrize("door", DOORS)
def test_other_sizes_compile_nothing(door, monkeypatch):
    """The second combination of sizes gives the program with named ones; no further one is made."""
    made = []
    importing, staged = gradus.torch._function, gradus.torch._staged
    for module, name in ((importing, "import_function"), (staged, "Compiled")):
        plain = getattr(module, name)
        counted = lambda *a, plain=plain, name=name: made.append(name) or plain(*a)
        monkeypatch.setattr(module, name, counted)
    model = Pairs()
    f = DOORS[door](model)
    counts = []
    for atoms, edges in [(5, 7), (6, 9), (8, 20), (7, 31), (30, 11), (9, 90), (101, 2)]:
        pos = torch.randn(atoms, 3, dtype=torch.float64, requires_grad=True)
        given = (pos, torch.randint(3, (atoms,)), torch.randint(atoms, (2, edges)))
        tables = []
        for g in (f, model):
            energy = g(*given)
            (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
            loss = slope.square().sum() + energy
            tables.append([energy, slope, *torch.autograd.grad(loss, list(model.parameters()))])
        assert close(*tables)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        counts.append((graphs, made.count("import_function"), made.count("Compiled")))
    # The call after it leaves out the gradients that it has not wanted.
    assert counts[2:] == [counts[2]] * (len(counts) - 2), counts
    assert all(c[:2] == counts[1][:2] for c in counts[1:]), counts
    assert counts[1][:2] == ((2, 2) if door == "backend" else (0, 2))
