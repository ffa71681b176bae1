"""Full factorisations of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
np = pytest.importorskip("numpy")

import gradus
from torch_operators import Function, check, draw, exported


FULL = {
    "svd": lambda a: (
        torch.linalg.svd(a)[1],
        torch.linalg.svd(a)[0][..., :2].abs(),
        torch.linalg.svd(a)[2][..., :2, :].abs(),
    ),
    "svd_some": lambda a: torch.svd(a, some=False)[1],
    "qr": lambda a: torch.linalg.qr(a.mT, mode="complete")[1].abs(),
}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("shape", [(4, 2), (2, 2, 4)])
def test_full_factorization(name, shape):
    # ATen has no derivative of a complete q.
    order = 0 if name == "qr" and shape == (2, 2, 4) else 2
    check(FULL[name], draw(shape), order=order, tolerance=1e-7)


def test_what_completes_a_basis():
    # The projection on the vectors that the reduced form has not, of which ATen's derivative is 0.
    def by_others(a):
        u, q = torch.linalg.svd(a)[0][:, 2:], torch.linalg.qr(a, mode="complete")[0][:, 2:]
        return u @ u.mT, q @ q.mT

    check(by_others, draw((5, 2)), order=0)
    projection = lambda a: (lambda u: u @ u.mT)(torch.linalg.svd(a)[0][:, 2:])
    by_inverse = lambda a: torch.eye(5, dtype=a.dtype) - a @ torch.linalg.solve(a.mT @ a, a.mT)
    a, directions = draw((5, 2)), [draw((5, 5), seed=1), draw((5, 2), seed=2)]
    wanted = [a.clone().requires_grad_()]
    wanted.append(
        torch.autograd.grad((by_inverse(wanted[0]) * directions[0]).sum(), wanted[0], create_graph=True)[0]
    )
    wanted.append(torch.autograd.grad((wanted[1] * directions[1]).sum(), wanted[0])[0])
    program = exported(Function(projection), (a,)).differentiate(2)
    ((name, _),), ((result, _),) = program.inputs(0), program.results(0)
    state = gradus.State(program.compile())
    state.run(**{name: a.numpy()})
    first = state.run(**{f"ct1_{result}": directions[0].numpy()})[f"d1_{name}"]
    second = state.run(**{f"ct2_d1_{name}": directions[1].numpy()})[f"d2_{name}"]
    for got, want in zip((first, second), wanted[1:]):
        np.testing.assert_allclose(np.asarray(got), want.detach().numpy(), atol=1e-9)


def test_derivatives_of_a_complete_q_are_refused():
    program = exported(Function(lambda a: torch.linalg.qr(a, mode="complete")[0]), (draw((5, 2)),))
    with pytest.raises(gradus.Error, match="any basis, which has no derivative"):
        program.differentiate(1)
