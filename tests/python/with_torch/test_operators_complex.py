"""Complex numbers and Fourier transforms of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
import gradus.torch
from torch_operators import check, draw, exported

C, R = torch.view_as_complex, torch.view_as_real
f64, c64, c128 = torch.float64, torch.complex64, torch.complex128
fft = torch.fft


def parts(z):
    return R(z.resolve_conj()) if z.is_complex() else z


def real(f):
    """The function with the parts of complex numbers, last, in the place of complex numbers."""

    def g(*args):
        results = f(*[C(a) if a.dim() and a.shape[-1] == 2 else a for a in args])
        results = [results] if isinstance(results, torch.Tensor) else results
        return tuple(parts(r) for r in results)

    return g


# Of complex [4, 3, 5].
FUNCTIONS = {
    "abs": lambda z: (z.abs(), z.abs() ** 2, torch.absolute(z)),
    "angle": lambda z: z.angle(),
    "sgn": lambda z: z.sgn(),
    "parts": lambda z: (z.real * z.imag, R(z), C(R(z) * 2)),
    "conj": lambda z: (z.conj() * z, z.conj_physical() + 1, z.conj().resolve_conj(), z.conj()),
    "adjoint": lambda z: (z.mH @ z, z[0].H, z.adjoint()),
    "sums": lambda z: (z + z[0], z - 2.5, 1 - z, z + z.real, z.real - z, torch.add(z, z, alpha=3)),
    "mul": lambda z: (z * z[0], z * 2, z * z.real, z.imag * z, z * 1j, z.real * (2 - 3j), -z),
    "div": lambda z: (z / (z[0] + 5), z / 3, z / (z.real + 9), z.real / (z + 9), 1 / (z + 9)),
    "pow": lambda z: (z**2, z**3, (z + 9) ** -2, z.square(), z**0),
    "functions": lambda z: (z.exp(), z.sin(), z.cos(), (z + 9).log(), (z + 9).sqrt()),
    "sum": lambda z: (z.sum(), z.sum((0, 2)), z.mean(1), z.cumsum(1), z.diff()),
    "norm": lambda z: (torch.linalg.vector_norm(z), torch.linalg.vector_norm(z, 3, (0, 1))),
    "products": lambda z: (z[0] @ z[1].mT, torch.bmm(z, z.mT), z @ z[0, 0]),
    "vectors": lambda z: (torch.vdot(z[0, 0], z[1, 1]), torch.dot(z[0, 0], z[1, 1]), torch.outer(z[0, 0], z[1, 1])),
    "einsum": lambda z: (
        torch.einsum("bix,iox->box", z, z[:3].mT.contiguous().mT[:, :, :]),
        torch.einsum("bix,bx,ci->cx", z, z[:, 0], z[:, :, 0]),
        torch.tensordot(z, z, ([1, 2], [1, 2])),
    ),
    "linear": lambda z: torch.nn.functional.linear(z, z[0] * 1j, z[0, :, 0]),
    "made": lambda z: (
        torch.complex(z.real, z.imag[0]),
        torch.polar(z.real.abs() + 1, z.imag),
        z.real.to(z.dtype) * z,
        z + torch.ones_like(z) + torch.full((5,), 2 - 1j, dtype=z.dtype) + torch.eye(5, dtype=z.dtype)[0],
        z * torch.zeros(3, 5, dtype=z.dtype),
    ),
    "shapes": lambda z: (
        z.reshape(12, 5) * 1,
        z.permute(2, 0, 1)[1:, :, -1],
        z.transpose(0, -1).contiguous().view(-1, 6),
        z.unsqueeze(-1).expand(4, 3, 5, 2).flatten(1),
        z[:, None].squeeze(1).movedim(-1, 0),
        z.flip(-1).roll(2, 1),
    ),
    "joined": lambda z: (torch.cat([z, z.real], -1), torch.stack([z, z * 2], -1), z.repeat(1, 2, 1)),
    "chosen": lambda z: (
        torch.where(z.real > 0, z, z * 2),
        torch.where(z.real > 0, z, 1.5),
        z.masked_fill(z.imag > 0, 3.0),
        z[:, torch.tensor([2, 0, 0])],
        z.index_select(2, torch.tensor([4, 1])),
        torch.nn.functional.pad(z, (1, 2)),
        torch.nn.functional.pad(z, (1, 2), value=2.5),
        torch.tril(z),
    ),
    "parted": lambda z: (*z.split(2, -1), *z.chunk(2, 0), *z.unbind(1)),
    "tests": lambda z: (z == z.conj(), z != 1, z.isfinite(), z.isnan()),
}

# Of complex [4, 3, 5] and its real part.
TRANSFORMS = {
    "fft": lambda z, x: (fft.fft(z), fft.fft(z, dim=0), fft.fft(x, 7, 1), fft.fft(z, 2, norm="ortho")),
    "ifft": lambda z, x: (fft.ifft(z), fft.ifft(z, 4, 0, "ortho"), fft.ifft(x, norm="forward")),
    "rfft": lambda z, x: (fft.rfft(x), fft.rfft(x, 8, 1), fft.rfft(x, 3, 0, "ortho")),
    "irfft": lambda z, x: (fft.irfft(z), fft.irfft(z, 5, 1), fft.irfft(z, 6, 0, "forward"), fft.irfft(x)),
    "hfft": lambda z, x: (fft.hfft(z), fft.hfft(z, 5, 0, "ortho"), fft.ihfft(x), fft.ihfft(x, 4, 1)),
    "two": lambda z, x: (fft.fft2(z), fft.ifft2(z, (2, 6)), fft.rfft2(x), fft.irfft2(z, (3, 8))),
    "all": lambda z, x: (fft.fftn(z), fft.ifftn(z, dim=(0, 2)), fft.rfftn(x), fft.irfftn(z, norm="ortho")),
    "sizes": lambda z, x: (fft.fftn(z, (2, 7)), fft.rfftn(x, (-1, 4)), fft.irfftn(z, (4, 7), (0, 1))),
    "shift": lambda z, x: (fft.fftshift(z), fft.ifftshift(z, -1), fft.fftshift(x, 0), fft.ifftshift(x)),
    "primitive": lambda z, x: (
        torch._fft_c2c(z, [0, 2], 1, True),
        torch._fft_c2c(z, [1], 2, False),
        torch._fft_r2c(x, [0, 1], 0, True),
        torch._fft_r2c(x, [1], 0, False),
        torch._fft_c2r(z, [1, 2], 2, 8),
    ),
    "spectral": lambda z, x: fft.irfft(fft.rfft(x) * z[:, :, :3], n=5),
    "fnet": lambda z, x: fft.fft(fft.fft(x), dim=1).real,
    "primes": lambda z, x: fft.fft(z.reshape(-1).repeat(3)[:134].reshape(2, 67)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_complex_numbers_follow_torch(name):
    check(real(FUNCTIONS[name]), draw((4, 3, 5, 2)))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_follow_torch(name):
    check(real(TRANSFORMS[name]), draw((4, 3, 5, 2)), draw((4, 3, 5), seed=1))
    check(real(TRANSFORMS[name]), draw((4, 3, 5, 2)).float(), draw((4, 3, 5), seed=1).float())


def test_sizes_may_have_names():
    def f(x):
        z = fft.rfft(x, dim=0)
        return parts(z), fft.irfft(z * 2, n=x.shape[0], dim=0), fft.fftshift(x)

    check(f, draw((6, 3)), dynamic=True)
    check(f, draw((7, 3)), dynamic=True)


def test_frequencies_follow_torch():
    def f(x):
        return x * fft.fftfreq(5, dtype=f64), x + fft.fftfreq(5, 0.3), x[:3] * fft.rfftfreq(5, 2.0)

    check(f, draw((5,)))


def test_windows_of_a_signal_follow_torch():
    def f(x, w):
        one = torch.stft(x, 8, 3, window=w, center=False, return_complex=True)
        two = torch.stft(x, 6, 2, 4, w[:4], return_complex=True, normalized=True)
        return parts(one), parts(two)

    check(f, draw((2, 20)), draw((8,), seed=1))


def test_frames_back_to_their_signal_follow_torch():
    def f(z, w):
        z = torch.view_as_complex(z)
        return (
            torch.istft(z, 8, 3, window=w, length=17),
            torch.istft(z, 8, 2, 6, w[:6], normalized=True),
            torch.istft(z, 8, 4, window=w, center=False),
            torch.istft(z[0], 8, window=w, length=40),
            torch.istft(torch.cat([z, z[:, 1:4]], 1), 8, 3, window=w, onesided=False),
        )

    check(f, draw((2, 5, 6, 2)), draw((8,), 0.5, 1.5, seed=1))


def test_writes_to_complex_tensors_are_seen():
    def f(z):
        y = torch.zeros(4, 6, dtype=z.dtype)
        y[:, 1:3] = z[:, :2]
        y[0] += z[1, 0]
        y.real[1] = 2.0
        y *= 1j
        return y, y.real.sum(), torch.view_as_real(y)

    check(real(f), draw((4, 3, 2)))


def test_gradients_at_zero_follow_torch():
    check(real(lambda z: (z.abs(), z.angle(), z.sgn())), torch.zeros(3, 2, dtype=f64), order=1)


@pytest.mark.parametrize(
    "f",
    [
        lambda z: torch.cumprod(z, 0),
        lambda z: z.sigmoid(),
        lambda z: z.prod(),
        lambda z: torch.linalg.inv(z),
        lambda z: z.var(),
        lambda z: torch.linalg.svdvals(z),
        lambda z: z**1.5,
    ],
)
def test_what_has_no_complex_rule_is_refused_by_name(f):
    with pytest.raises(gradus.Error, match="node '.*' \\(aten\\..*\\)(.|\n)*(complex|powers)"):
        exported(Module(f), [C(draw((3, 3, 2)))])


class Module(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, z):
        return self.f(z)


class Spectral(torch.nn.Module):
    """A layer of a Fourier Neural Operator."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        weight = torch.randn(3, 2, 3, 2, dtype=f64, generator=generator)
        self.weight = torch.nn.Parameter(C(weight))
        self.register_buffer("turn", torch.tensor([1j, 1 - 1j, 2.0], dtype=c128))

    def forward(self, x, z):
        modes = fft.rfft(x)[..., :3]
        out = torch.einsum("bix,iox->box", modes, self.weight) * self.turn
        return fft.irfft(out, n=x.shape[-1]), out.conj() * z


def test_torch_functions_take_and_give_complex_tensors():
    module = Spectral()
    ours = gradus.torch.function(module, order=2)
    for size in (2, 4):
        x = draw((size, 3, 6)).requires_grad_()
        z = C(draw((size, 2, 3, 2), seed=1)).conj().detach().requires_grad_()
        wanted = [x, z, module.weight]

        def derivatives(f):
            y, w = f(x, z)
            loss = (y**3).sum() + (w * w * (1 + 2j)).real.sum()
            first = torch.autograd.grad(loss, wanted, create_graph=True)
            total = sum((g.abs() ** 2).sum() for g in first)
            return [y, w, *first, *torch.autograd.grad(total, wanted)]

        for got, want in zip(derivatives(ours), derivatives(module), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
