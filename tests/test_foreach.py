"""The loops that replace torch's functions on lists of tensors compute the same."""

import copy
import importlib.util

import pytest
import torch

from everlearn import foreach


@pytest.fixture(scope="module")
def loops():
    """The module as it is with a torch that has none of these functions."""
    with pytest.MonkeyPatch.context() as patch:
        for name in foreach.__all__:
            patch.delattr(torch, f"_foreach_{name}", raising=False)
        spec = importlib.util.spec_from_file_location("loops", foreach.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) + 0.1 for shape in ((3, 4), (5,), ())]


CALLS = {
    "add": (tensors(1), -0.5),
    "add_": (tensors(1), -0.5),
    "addcdiv": (tensors(1), tensors(2), [0.1, 0.2, 0.3]),
    "addcmul_": (tensors(1), tensors(2), 0.5),
    "clamp_": (0.5,),
    "copy_": (tensors(1),),
    "div": (tensors(1),),
    "div_": ([2.0, 3.0, 4.0],),
    "lerp": (tensors(1), 0.3),
    "lerp_": (tensors(1), 0.3),
    "mul": (0.3,),
    "mul_": (torch.tensor(0.3),),
    "norm": (),
    "sqrt": (),
    "sub": (tensors(1),),
}


def call(module, name):
    changed, arguments = tensors(0), copy.deepcopy(CALLS[name])
    keywords = {}
    if name in ("add", "add_"):
        *arguments, keywords["alpha"] = arguments
    if name == "addcmul_":
        *arguments, keywords["value"] = arguments
    result = getattr(module, name)(changed, *arguments, **keywords)
    return changed if result is None or name.endswith("_") else result


@pytest.mark.parametrize("name", [name for name in foreach.__all__ if name != "largest"])
def test_a_loop_computes_what_torch_does(loops, name):
    assert getattr(loops, name) is not getattr(torch, f"_foreach_{name}", None)
    for one, other in zip(call(loops, name), call(foreach, name), strict=True):
        torch.testing.assert_close(one, other)


def test_one_number_can_be_added_to_all(loops):
    for module in (loops, foreach):
        changed = tensors(0)
        module.add_(changed, 1.5)
        for one, before in zip(changed, tensors(0), strict=True):
            torch.testing.assert_close(one, before + 1.5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_largest_absolute_value_of_all(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    values = [torch.tensor([[1.0, -7.0], [2.0, 3.0]], device=device), torch.tensor([5.0], device=device)]
    assert float(foreach.largest(values)) == 7
    assert foreach.largest([torch.tensor([1.0, float("nan")], device=device)]).isnan()
