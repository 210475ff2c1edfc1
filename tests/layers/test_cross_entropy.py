"""The one-pass cross-entropy equals torch's in value, accuracy and every gradient, also where softmax saturates."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.layers.cross_entropy import ROWS, tied_cross_entropy


def inputs(places: int, width: int, size: int, scale: float, seed: int, dtype: torch.dtype) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    hidden = torch.randn(places, width, generator=source, dtype=dtype) * scale
    table = torch.randn(size, width, generator=source, dtype=dtype)
    bias = torch.randn(size, generator=source, dtype=dtype)
    return [tensor.requires_grad_() for tensor in (hidden, table, bias)]


def reference(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = hidden @ table.t() + bias
    return F.cross_entropy(logits, targets, reduction="sum"), (logits.argmax(1) == targets).sum()


@given(
    st.integers(1, 20) | st.sampled_from([ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3]),
    st.integers(1, 12),
    st.integers(2, 40),
    st.sampled_from([1e-3, 1.0, 30.0, 1e3, 1e4]),
    st.integers(0, 10_000),
    st.floats(0.01, 10),
)
@settings(max_examples=60, deadline=None)
def test_loss_accuracy_and_gradients_equal_torch(
    places: int, width: int, size: int, scale: float, seed: int, upstream: float
) -> None:
    tensors = inputs(places, width, size, scale, seed, torch.float64)
    targets = torch.randint(size, (places,), generator=torch.Generator().manual_seed(seed + 1))
    expected, right = reference(*tensors, targets)
    wanted = torch.autograd.grad(expected * upstream, tensors)
    found, correct = tied_cross_entropy(*tensors, targets)  # type: ignore[call-arg]
    gradients = torch.autograd.grad(found * upstream, tensors)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert int(correct) == int(right)
    for gradient, reference_gradient in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, reference_gradient, rtol=1e-7, atol=1e-9 * max(1.0, scale))


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_single_precision_stays_finite_and_close(scale: float) -> None:
    tensors = inputs(64, 8, 500, scale, 3, torch.float32)
    targets = torch.randint(500, (64,), generator=torch.Generator().manual_seed(4))
    expected, _ = reference(*tensors, targets)
    found, _ = tied_cross_entropy(*tensors, targets)  # type: ignore[call-arg]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    for gradient, wanted in zip(
        torch.autograd.grad(found, tensors), torch.autograd.grad(expected, tensors), strict=True
    ):
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4 * scale)


def test_one_logit_far_above_or_below_all_others() -> None:
    """Logits of +-1e4: the right answer certain (loss 0), and certainly wrong (loss 1e4 each)."""
    table = torch.eye(6, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    for sign, expected in ((1e4, 0.0), (-1e4, 1e4 + torch.tensor(5.0).log().item())):
        hidden = (sign * torch.eye(6, dtype=torch.float64)[:3]).requires_grad_()
        loss, correct = tied_cross_entropy(hidden, table, bias, torch.arange(3))
        assert abs(float(loss.detach()) - 3 * expected) < 1e-5
        assert int(correct) == (3 if sign > 0 else 0)
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, [hidden, table, bias]))


def test_a_logit_that_is_not_finite_shows_in_the_loss() -> None:
    """The loop checks the loss; it must not be hidden here."""
    hidden, table, bias = inputs(4, 3, 7, 1.0, 5, torch.float32)
    for bad in (float("inf"), float("nan")):
        broken = hidden.detach().clone()
        broken[1, 0] = bad
        loss, _ = tied_cross_entropy(broken, table, bias, torch.zeros(4, dtype=torch.long))
        assert not torch.isfinite(loss)


@pytest.mark.parametrize("places", [1, 63, 64, 65, ROWS, ROWS + 1])
def test_padding_under_half_precision_has_no_gradient(places: int) -> None:
    """Under autocast rows are padded to round numbers; bf16 has 8 significant bits, so a hundredth is its error."""
    tensors = inputs(places, 32, 90, 1.0, 7, torch.float32)
    targets = torch.zeros(places, dtype=torch.long)  # the padding's answer too
    expected, right = reference(*tensors, targets)
    with torch.autocast("cpu", torch.bfloat16):
        found, correct = tied_cross_entropy(*tensors, targets)  # type: ignore[call-arg]
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-1)
    assert abs(int(correct) - int(right)) <= 1
    wanted = torch.autograd.grad(expected, tensors)
    for gradient, reference_gradient in zip(torch.autograd.grad(found, tensors), wanted, strict=True):
        assert (gradient - reference_gradient).norm() < 0.02 * reference_gradient.norm()


def test_nothing_is_stored_without_a_gradient() -> None:
    tensors = [t.detach() for t in inputs(5, 4, 9, 1.0, 6, torch.float32)]
    loss, _ = tied_cross_entropy(*tensors, torch.zeros(5, dtype=torch.long))  # type: ignore[call-arg]
    assert not loss.requires_grad
