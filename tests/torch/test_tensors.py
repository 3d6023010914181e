# SPDX-License-Identifier: MIT
"""Tensors as arrays: which share their memory, and which are refused. Needs PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.errors import UnsupportedError

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "uint16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "float8_e4m3fn",
    ],
)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 5)])
def test_a_contiguous_tensor_shares_its_memory(dtype: str, shape: tuple[int, ...]) -> None:
    import torch
    from netsum.torch.numpy_view import lend

    tensor = torch.ones(shape).to(getattr(torch, dtype))
    lent = lend(tensor)
    assert lent.array.size == tensor.numel()
    lent.array.view(np.uint8)[...] = 0
    lent.give_back()
    assert not tensor.to(torch.complex64).real.any()
    if tensor.numel():
        assert lent.array.ctypes.data == tensor.data_ptr()


def test_other_tensors_get_the_result_back() -> None:
    import torch
    from netsum.torch.numpy_view import lend

    whole = torch.zeros(4, 6)
    for view in (whole.t()[::2], whole[:, 1:3], torch.ones(2, 3).expand(2, 3).t(), whole[1]):
        lent = lend(view)
        lent.array[...] = np.arange(view.numel())
        lent.give_back()
        assert torch.equal(view.flatten(), torch.arange(float(view.numel())))
    leaf = torch.ones(3, requires_grad=True)
    assert np.shares_memory(lend(leaf).array, leaf.detach().numpy())


def test_values_that_netsum_cannot_compute_with_are_refused_by_name() -> None:
    import torch
    from netsum.torch.numpy_view import lend

    cases: list[tuple[Any, str]] = [
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (torch.ones(2).to(torch.float8_e5m2), "float8_e5m2"),
    ]
    for tensor, name in cases:
        with pytest.raises(UnsupportedError, match=name):
            lend(tensor, values=True)
    assert lend(torch.ones(2, dtype=torch.complex64), values=True).array.tolist() == [1, 0, 1, 0]
