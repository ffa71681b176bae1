"""What the tests of gradus.torch share."""

import pytest


@pytest.fixture
def model():
    import torch
    from models import Energy

    torch.manual_seed(7)
    return Energy().double()


@pytest.fixture
def x():
    import torch

    torch.manual_seed(8)
    return torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
