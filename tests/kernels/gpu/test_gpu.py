"""The kernels for CUDA devices, run by Triton's interpreter on a processor, beside PyTorch's operations."""

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton, whose interpreter runs these kernels on a processor, is not installed")
