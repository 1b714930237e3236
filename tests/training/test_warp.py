"""Affine maps of images beside torch's own."""

import pytest
import torch
from torch.nn.functional import affine_grid, grid_sample

from everlearn.training.warp import warped


@pytest.mark.parametrize("outside", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_pixels_come_from_where_the_matrix_says(mode, outside):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 3, 6, 9, generator=generator)
    matrix = torch.eye(2, 3) + 0.3 * torch.randn(5, 2, 3, generator=generator)
    grid = affine_grid(matrix, list(images.shape), align_corners=False)
    expected = grid_sample(images, grid, mode=mode, padding_mode=outside, align_corners=False)
    rows = list(matrix.flatten(1).unbind(1))
    torch.testing.assert_close(warped(images, rows, mode, outside), expected, rtol=1e-4, atol=1e-4)


def test_one_map_for_all_images():
    images = torch.rand(4, 1, 3, 3)
    nothing, one = torch.zeros(1), torch.ones(1)
    mirrored = warped(images, [-one, nothing, nothing, nothing, one, nothing])
    torch.testing.assert_close(mirrored, images.flip(-1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_map_has_the_same_bits_as_an_eager_one():
    images, rows = torch.rand(8, 3, 32, 32, device="cuda"), list(torch.randn(6, 8, device="cuda"))
    eager = warped(images, rows, "nearest")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = warped(images, rows, "nearest")
    graph.replay()
    assert torch.equal(captured, eager)
