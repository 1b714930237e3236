"""The HTML of objects in a notebook: well-formed, with every value escaped."""

from xml.etree import ElementTree

import pytest
import torch

from everlearn import CoPE, Evaluator, as_stream, run
from everlearn.notebook import card, curve


@pytest.fixture(scope="module")
def result():
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(4, 3, generator=generator), ["a", "b"] * 2) for _ in range(5)]
    source = as_stream(batches, name="own <stream>", tests=batches[0])
    return run(CoPE("mlp", hidden=4, memory_size=10, device="cpu"), source, Evaluator(every=1))


def test_a_result_shows_its_numbers_and_its_curve(result):
    shown = ElementTree.fromstring(result._repr_html_())
    cells = [cell.text for cell in shown.iter("td")]
    assert cells[cells.index("accuracy") + 1] == f"{100 * result.accuracy:.2f} %"
    assert shown.find("strong").text == "cope on own <stream>, seed 0"
    (line,) = shown.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.get("points").split()) == len(result.history) == 5


def test_the_repr_of_a_result_is_one_line_with_its_numbers(result):
    assert repr(result).startswith(
        f"Result(cope on own <stream>, seed 0: accuracy {100 * result.accuracy:.2f} %"
    )
    assert "\n" not in repr(result)
    assert "missed" not in repr(result)


def test_a_result_without_evaluations_shows_no_accuracy_and_no_curve():
    unmeasured = run(CoPE("mlp", hidden=4, device="cpu"), [(torch.randn(2, 3), ["a", "b"])])
    assert "accuracy" not in repr(unmeasured)
    assert "<svg" not in unmeasured._repr_html_()


def test_what_a_card_says_is_escaped():
    shown = card("<b>", {"<i>": "<script>"})
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_curve_leaves_out_what_was_not_measured_and_lies_in_its_box():
    drawn = ElementTree.fromstring(curve([(0, 0.0), (5, float("nan")), (10, 1.0)], "accuracy & more"))
    points = drawn.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    assert len(points) == 2
    for point in points:
        x, y = map(float, point.split(","))
        assert 0 <= x <= int(drawn.get("width"))
        assert 0 <= y <= int(drawn.get("height"))
