"""Models of packages, with random weights, beside eager torch at orders 0, 1 and 2: results,
gradients by all inputs and parameters, and the gradients of those. Each asks for its package.
SPEC T4, T7"""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus.torch

os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # e3nn's table of constants


@pytest.fixture(autouse=True)
def doubles():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def check(module, args, tolerance=1e-9):
    report = gradus.torch.verify(module, args, order=2, tolerance=tolerance)
    assert report, report
    assert {r.order for r in report.rows} == {0, 1, 2}


TORCHVISION = {"resnet18": 32, "shufflenet_v2_x0_5": 32, "squeezenet1_1": 32}


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name):
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    size = TORCHVISION[name]
    model = getattr(models, name)(weights=None, num_classes=4).eval()
    check(model, (torch.randn(1, 3, size, size),))


SMALL_VIT = dict(img_size=32, embed_dim=24, depth=2, num_heads=2)
TIMM = {"vit_tiny_patch16_224": SMALL_VIT, "efficientnet_lite0": {}}


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    model = timm.create_model(name, pretrained=False, num_classes=4, **TIMM[name]).eval()
    check(model, (torch.randn(1, 3, 32, 32),))


SMALL = dict(
    vocab_size=100,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
)
GPT2 = dict(vocab_size=100, n_embd=16, n_layer=2, n_head=2, n_positions=16, use_cache=False)
T5 = dict(vocab_size=100, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
GROUPED = dict(SMALL, num_key_value_heads=1, use_cache=False)
# The last compute norms and positions in f32, whatever the dtype of the weights.
TRANSFORMERS = {
    "BertModel": ("BertConfig", SMALL, 1e-9),
    "GPT2LMHeadModel": ("GPT2Config", GPT2, 1e-9),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", dict(SMALL, use_cache=False), 1e-9),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED, 1e-5),
    "MistralForCausalLM": ("MistralConfig", GROUPED, 1e-5),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED, 1e-5),
    "T5EncoderModel": ("T5Config", T5, 1e-5),
}


class First(torch.nn.Module):
    """The first of a model's results."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0]


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config, sizes, tolerance = TRANSFORMERS[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
    check(First(model).double(), (torch.randint(0, 90, (2, 7)),), tolerance)


class TensorProduct(torch.nn.Module):
    def __init__(self, o3):
        super().__init__()
        self.o3 = o3
        self.product = o3.FullyConnectedTensorProduct("4x0e+4x1o", "0e+1o+2e", "4x0e+4x1o")
        self.linear = o3.Linear("4x0e+4x1o", "4x0e")

    def forward(self, x, v):
        edges = self.o3.spherical_harmonics("0e+1o+2e", v, True, "component")
        return torch.tanh(self.linear(self.product(x, edges)))


@pytest.fixture
def e3nn():
    """With code that torch.export sees into, in the place of TorchScript's."""
    e3nn = pytest.importorskip("e3nn", reason="e3nn is not installed")
    before = e3nn.get_optimization_defaults()["jit_script_fx"]
    e3nn.set_optimization_defaults(jit_script_fx=False)
    yield e3nn
    e3nn.set_optimization_defaults(jit_script_fx=before)


def test_e3nn(e3nn):
    from e3nn import o3

    check(TensorProduct(o3), (torch.randn(5, 16), torch.randn(5, 3)))


class Mace(torch.nn.Module):
    """The energies of MACE. Forces are taken from outside, or by energy_forces."""

    def __init__(self, o3, modules):
        super().__init__()
        block = modules.RealAgnosticResidualInteractionBlock
        self.model = modules.ScaleShiftMACE(
            r_max=4.0,
            num_bessel=6,
            num_polynomial_cutoff=5,
            max_ell=2,
            interaction_cls=block,
            interaction_cls_first=block,
            num_interactions=2,
            num_elements=2,
            hidden_irreps=o3.Irreps("8x0e+8x1o"),
            MLP_irreps=o3.Irreps("8x0e"),
            gate=torch.nn.functional.silu,
            atomic_energies=torch.tensor([-1.0, -3.0]).numpy(),
            avg_num_neighbors=6.0,
            atomic_numbers=[1, 8],
            correlation=2,
            radial_type="bessel",
            atomic_inter_scale=1.3,
            atomic_inter_shift=0.1,
        )

    def forward(self, positions, node_attrs, edge_index, shifts, unit_shifts, batch, ptr, cell):
        data = dict(positions=positions, node_attrs=node_attrs, edge_index=edge_index)
        data.update(shifts=shifts, unit_shifts=unit_shifts, batch=batch, ptr=ptr, cell=cell)
        return self.model(data, compute_force=False)["energy"]


@pytest.fixture
def mace(e3nn):
    modules = pytest.importorskip("mace.modules", reason="mace-torch is not installed")
    compiling = pytest.importorskip("mace.tools.compile")
    from e3nn import o3

    model = compiling.prepare(lambda: Mace(o3, modules))()
    positions = torch.randn(6, 3) * 1.5
    near = torch.cdist(positions, positions) + torch.eye(6) * 9 < 4.0
    edges = torch.nonzero(near).T.contiguous()
    kinds = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 0, 1, 0]), 2).to(positions)
    zeros = torch.zeros(edges.shape[1], 3)
    batch, ptr = torch.zeros(6, dtype=torch.int64), torch.tensor([0, 6])
    return model, (positions, kinds, edges, zeros, zeros, batch, ptr, torch.eye(3) * 20)


def test_mace(mace):
    check(*mace)


def test_mace_trains_through_forces(mace):
    model, (positions, *rest) = mace
    trained = [p for p in model.parameters() if p.requires_grad]
    tables = []
    f = gradus.torch.energy_forces(model, positions="positions")
    for ours in (True, False):
        if ours:
            out = f(positions, *rest)
            energy, forces = out.energy, out.forces
        else:
            moved = positions.clone().requires_grad_()
            energy = model(moved, *rest)
            (slope,) = torch.autograd.grad(energy.sum(), moved, create_graph=True)
            forces = -slope
        loss = forces.square().sum() + energy.sum()
        tables.append([energy, forces, *torch.autograd.grad(loss, trained, allow_unused=True)])
    for mine, eager in zip(*tables):
        mine = torch.zeros_like(eager) if mine is None and eager is not None else mine
        assert mine is eager or torch.allclose(mine, eager, rtol=1e-9, atol=1e-11)
