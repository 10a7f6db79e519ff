"""That both ways compute the same, which ``prepare`` checks, and that every case can be measured."""

import dataclasses

import pytest
import torch

from benchmarks.plain_attention import CASES, measure


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_case_is_measured(case, dtype):
    small = dataclasses.replace(case, batch=3, queries=min(case.queries, 7), keys=min(case.keys, 7))
    plain, fused, ratio = measure(small, dtype, 3)
    assert float(plain) >= 0
    assert float(fused) >= 0
    median, least, most = (float(each.strip("()")) for each in ratio.replace(" to ", " ").split())
    assert 0 <= least <= median <= most
