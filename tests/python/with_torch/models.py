"""Models and comparisons of the tests of gradus.torch."""

import torch


class Energy(torch.nn.Module):
    """Small, smooth, with a parameter that is frozen and a buffer."""

    def __init__(self, inputs=3, hidden=5):
        super().__init__()
        self.first = torch.nn.Linear(inputs, hidden)
        self.second = torch.nn.Linear(hidden, 1)
        self.register_buffer("scale", torch.full((), 0.5))
        self.first.bias.requires_grad_(False)

    def forward(self, x):
        return (self.second(torch.tanh(self.first(x))) * self.scale).sum()


def close(a, b, tolerance=1e-11):
    """Trees of tensors, one as the other."""
    from torch.utils import _pytree as pytree

    ours, eager = pytree.tree_leaves(a), pytree.tree_leaves(b)
    assert len(ours) == len(eager)
    for p, q in zip(ours, eager):
        if q is None or p is None:
            assert p is q
        elif isinstance(q, torch.Tensor):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
        else:
            assert p == q
    return True
