"""The PPP-loss against a slow loop over the paper's equations 2 to 6, and against a worked example."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from everlearn.losses import ppp_fast, ppp_loss
from everlearn.losses.ppp_fast import _value_and_gradient, ppp_gradient


def posterior(f, proxy, label, prototypes, seen, temperature):
    """Equation 5: P(c | f, p̃), and 1 − P, of which no digit is lost by a subtraction."""
    own = torch.exp(f @ proxy / temperature)
    rest = sum(torch.exp(f @ prototypes[k] / temperature) for k in seen if k != label)
    return own / (own + rest), rest / (own + rest)


def loss_by_the_equations(
    features, labels, prototypes, temperature, seen=None, pseudo_prototypes=True, gradient="full"
):
    """Equations 2 to 6, sample by sample."""
    seen = range(len(prototypes)) if seen is None else seen
    detach = {"full": (False, False), "released": (True, False), "detached": (True, True)}[gradient]
    attractor_proxy = features.detach() if detach[0] else features
    repellor_proxy = features.detach() if detach[1] else features
    total = 0.0
    for i, c in enumerate(labels):
        attractors = [prototypes[c]]
        repellors = [prototypes[c]]
        if pseudo_prototypes:
            attractors += [attractor_proxy[j] for j, k in enumerate(labels) if k == c and j != i]
            repellors += [repellor_proxy[i]]
        expected = [posterior(features[i], p, c, prototypes, seen, temperature)[0] for p in attractors]
        total = total + torch.log(sum(expected) / len(expected))  # eq. 3
        for j, k in enumerate(labels):
            if k != c:
                others = [posterior(features[j], p, c, prototypes, seen, temperature)[1] for p in repellors]
                total = total + torch.log(sum(others) / len(others))  # eq. 4
    return -total / len(labels)  # eq. 6


@given(
    st.integers(2, 7),
    st.integers(2, 10),
    st.integers(2, 8),
    st.floats(0.08, 1.0),
    st.sampled_from(["released", "full", "detached"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_value_and_gradient_are_those_of_the_equations(
    classes, batch, d, temperature, gradient, pseudo, seed
):
    g = torch.Generator().manual_seed(seed)
    features = normalize(torch.randn(batch, d, generator=g, dtype=torch.float64), dim=1).requires_grad_()
    prototypes = torch.randn(classes, d, generator=g, dtype=torch.float64)
    prototypes = normalize(prototypes, dim=1) * (0.7 + 0.3 * torch.rand(classes, 1, generator=g))
    labels = torch.randint(0, classes, (batch,), generator=g)
    ours = ppp_loss(features, labels, prototypes, temperature, pseudo_prototypes=pseudo, gradient=gradient)
    slow = loss_by_the_equations(
        features, labels.tolist(), prototypes, temperature, pseudo_prototypes=pseudo, gradient=gradient
    )
    torch.testing.assert_close(ours, slow, rtol=1e-9, atol=1e-9)
    (ours_slope,) = torch.autograd.grad(ours, features)
    (slow_slope,) = torch.autograd.grad(slow, features)
    torch.testing.assert_close(ours_slope, slow_slope, rtol=1e-7, atol=1e-8)


@given(
    st.integers(1, 7),
    st.integers(1, 9),
    st.floats(0.05, 1.0),
    st.sampled_from(["released", "full", "detached"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 0.3]),
    st.integers(0, 10**6),
)
def test_the_fast_path_gives_the_values_and_gradients_of_the_plain_loss(
    classes, batch, temperature, gradient, pseudo, masked, repellor, seed
):
    g = torch.Generator().manual_seed(seed)
    features = normalize(torch.randn(batch, 5, generator=g, dtype=torch.float64), dim=1).requires_grad_()
    prototypes = normalize(torch.randn(classes, 5, generator=g, dtype=torch.float64), dim=1)
    labels = torch.randint(0, classes, (batch,), generator=g)
    seen = torch.arange(classes) <= labels.max() if masked else None
    valid = torch.arange(batch) < max(batch - 2, 1) if masked else None
    options = {
        "seen": seen,
        "valid": valid,
        "pseudo_prototypes": pseudo,
        "gradient": gradient,
        "repellor": repellor,
    }
    fast = ppp_loss(features, labels, prototypes, temperature, **options)
    plain = ppp_loss.plain(features, labels, prototypes, temperature, **options)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)
    (expected,) = torch.autograd.grad(plain, features)
    torch.testing.assert_close(torch.autograd.grad(fast, features)[0], expected, rtol=1e-7, atol=1e-8)
    closed = ppp_loss.gradient(features.detach(), labels, prototypes, temperature, **options)
    torch.testing.assert_close(closed, expected, rtol=1e-7, atol=1e-8)


FEATURES = torch.tensor([[0.8, 0.6], [0.96, -0.28], [-0.28, 0.96], [-0.8, -0.6]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 2])
PROTOTYPES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]], dtype=torch.float64)
WORKED_GRADIENTS = {
    "released": [
        [-0.4393422731, 0.4478917983],
        [-0.1883387319, -0.0036841309],
        [0.1570194637, -0.1456138580],
        [0.0966327554, 0.1299101319],
    ],
    "full": [
        [-0.4937850637, 0.4637709456],
        [-0.2811060927, -0.0732596515],
        [0.1570194637, -0.1456138580],
        [0.0966327554, 0.1299101319],
    ],
    "detached": [
        [-0.4214514947, 0.4022072537],
        [-0.1770295926, -0.0087784380],
        [0.0976282111, -0.1788510507],
        [0.0882343840, 0.1154044885],
    ],
}


@pytest.mark.parametrize("gradient", WORKED_GRADIENTS)
def test_the_worked_example(gradient):
    features = FEATURES.clone().requires_grad_()
    loss = ppp_loss(features, LABELS, PROTOTYPES, 0.5, gradient=gradient)
    assert loss.item() == pytest.approx(0.4875415311070679, abs=1e-14)
    loss.backward()
    expected = torch.tensor(WORKED_GRADIENTS[gradient], dtype=torch.float64)
    torch.testing.assert_close(features.grad, expected, rtol=0, atol=1e-9)


def test_variants_of_the_worked_example():
    scale = torch.tensor([[0.5], [0.8], [0.9]], dtype=torch.float64)
    cases = {
        0.45458670926798: ppp_loss(FEATURES, LABELS, PROTOTYPES, 0.5, pseudo_prototypes=False),
        0.73659757652971: ppp_loss(FEATURES, LABELS, PROTOTYPES * scale, 0.5),
        0.07721164185897: ppp_loss(FEATURES, LABELS, PROTOTYPES, 0.05),
        0.41405802632141: ppp_loss(FEATURES[:2], LABELS[:2], PROTOTYPES, 0.5),
    }
    for expected, loss in cases.items():
        assert loss.item() == pytest.approx(expected, abs=1e-13)


def test_padding_and_unseen_classes_change_nothing():
    features = torch.cat([FEATURES, torch.ones(2, 2, dtype=torch.float64)]).requires_grad_()
    prototypes = torch.cat([PROTOTYPES, torch.full((2, 2), 9.0, dtype=torch.float64)])
    loss = ppp_loss(
        features,
        torch.tensor([0, 0, 1, 2, 4, 0]),
        prototypes,
        0.5,
        seen=torch.tensor([True, True, True, False, False]),
        valid=torch.tensor([True, True, True, True, False, False]),
    )
    assert loss.item() == pytest.approx(0.4875415311070679, abs=1e-14)
    loss.backward()
    expected = torch.tensor(WORKED_GRADIENTS["released"], dtype=torch.float64)
    torch.testing.assert_close(features.grad[:4], expected, rtol=0, atol=1e-9)
    assert not features.grad[4:].any()


def test_the_hand_written_gradient_passes_gradcheck():
    features = FEATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda f: ppp_loss(f, LABELS, PROTOTYPES, 0.3, gradient="full"), (features,)
    )


@pytest.mark.parametrize("pseudo", [True, False])
@pytest.mark.parametrize("gradient", ["released", "full", "detached"])
def test_torch_and_numpy_compute_the_same(gradient, pseudo):
    """On a GPU the loss is computed by torch, on the host by numpy, from the same lines."""
    arrays = [FEATURES, LABELS, PROTOTYPES, torch.tensor([True] * 3), torch.tensor([True, True, True, False])]
    options = 0.3, pseudo, gradient, 0.5, True
    by_torch = _value_and_gradient(torch, *arrays, *options)
    by_numpy = _value_and_gradient(np, *(part.numpy() for part in arrays), *options)
    assert by_torch[0].item() == pytest.approx(
        by_numpy[0].item(), abs=1e-6
    )  # torch takes logs of counts in float32
    torch.testing.assert_close(by_torch[1], torch.from_numpy(by_numpy[1]))


def test_the_gradient_alone_is_that_of_the_loss():
    features = FEATURES.clone().requires_grad_()
    ppp_loss(features, LABELS, PROTOTYPES, 0.5).backward()
    torch.testing.assert_close(ppp_gradient(FEATURES, LABELS, PROTOTYPES, 0.5), features.grad)


def test_one_seen_class_gives_zero_loss_and_zero_gradient():
    features = FEATURES[:2].clone().requires_grad_()
    loss = ppp_loss(features, LABELS[:2], PROTOTYPES, 0.5, seen=torch.tensor([True, False, False]))
    loss.backward()
    assert loss.item() == 0.0
    assert not features.grad.any()


@pytest.mark.parametrize("flip", [1.0, -1.0], ids=["all right", "all wrong"])
def test_it_stays_finite_in_float32_with_saturated_pairs_at_temperature_0_05(flip):
    prototypes = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 1, 1])
    f32 = (features * flip).requires_grad_()
    loss = ppp_loss(f32, labels, prototypes, 0.05)
    loss.backward()
    f64 = (features.double() * flip).requires_grad_()
    exact = ppp_loss(f64, labels, prototypes.double(), 0.05)
    exact.backward()
    assert math.isfinite(loss.item()) and f32.grad.isfinite().all()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    torch.testing.assert_close(f32.grad.double(), f64.grad, rtol=1e-4, atol=1e-4)


def test_an_unknown_gradient_is_named():
    with pytest.raises(ValueError, match="released, full, detached, not 'code'"):
        ppp_loss(FEATURES, LABELS, PROTOTYPES, 0.5, gradient="code")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"temperature": 0.0}, "temperature is above 0, not 0.0"),
        ({"temperature": -1.0}, "temperature is above 0, not -1.0"),
        ({"temperature": math.nan}, "temperature is above 0, not nan"),
        ({"slots": torch.tensor([0, -1, 2])}, "slots are rows of prototypes, 0 to 2, .* not -1"),
        ({"slots": torch.tensor([0, 1, 3])}, "slots are rows of prototypes, 0 to 2, .* not 3"),
        ({"pseudo_prototypes": "released"}, "pseudo_prototypes is True or False, not 'released'"),
    ],
)
def test_arguments_that_would_give_a_wrong_number_are_refused(changed, sentence):
    features, slots, prototypes = random_batch(3)
    given = {"slots": slots, "prototypes": prototypes, "temperature": 0.1} | changed
    with pytest.raises(ValueError, match=sentence):
        ppp_loss(features, **given)


@pytest.mark.parametrize("loss", [ppp_loss, ppp_loss.plain], ids=["fast", "plain"])
@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_a_batch_without_samples_has_no_loss_and_no_gradient(loss, xp, monkeypatch):
    if xp == "torch":
        monkeypatch.setattr(ppp_fast, "as_arrays", lambda *tensors: (torch, tensors))
    features, slots, prototypes = random_batch(3)
    for count in (0, 3):
        f = features[:count].clone().requires_grad_()
        value = loss(f, slots[:count], prototypes, 0.1, valid=torch.zeros(count, dtype=torch.bool))
        (slope,) = torch.autograd.grad(value, f)
        assert value == 0 and slope.shape == f.shape and not slope.any()
    empty = features[:0].clone().requires_grad_()
    if loss is ppp_loss:
        assert ppp_loss(empty, slots[:0], prototypes, 0.1) == 0


def test_a_second_derivative_is_refused_by_the_closed_form_and_given_by_the_plain_loss():
    features, slots, prototypes = random_batch(4)
    f = features.requires_grad_()
    with pytest.raises(RuntimeError, match="call ppp_loss.plain instead"):
        torch.autograd.grad(ppp_loss(f, slots, prototypes, 0.5), f, create_graph=True)
    (slope,) = torch.autograd.grad(ppp_loss.plain(f, slots, prototypes, 0.5), f, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), f)[0].isfinite().all()


def test_the_weight_of_the_repellor_scales_the_sum_over_negatives_alone():
    none, half, whole = (ppp_loss(FEATURES, LABELS, PROTOTYPES, 0.5, repellor=w) for w in (0.0, 0.5, 1.0))
    assert none < half < whole
    torch.testing.assert_close(half - none, whole - half)
    slopes = [ppp_gradient(FEATURES, LABELS, PROTOTYPES, 0.5, repellor=w) for w in (0.0, 0.5, 1.0)]
    torch.testing.assert_close(slopes[1] - slopes[0], slopes[2] - slopes[1])


def random_batch(batch, classes=3, d=4, dtype=torch.float64, seed=0):
    """Features, slots and prototypes."""
    g = torch.Generator().manual_seed(seed)
    features, prototypes = (
        normalize(torch.randn(n, d, generator=g, dtype=dtype), dim=1) for n in (batch, classes)
    )
    return features, torch.randint(0, classes, (batch,), generator=g), prototypes


@pytest.mark.parametrize("pseudo", [True, False])
@pytest.mark.parametrize("gradient", ["released", "full", "detached"])
@pytest.mark.parametrize("rows", [1, 3, 5, 11])
@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
def test_a_large_batch_in_blocks_gives_what_it_gives_at_once(xp, rows, gradient, pseudo, monkeypatch):
    """Of 12 samples, in blocks that divide the batch and that don't, with padding and an unseen class."""
    arrays = [*random_batch(12), torch.tensor([True, True, False]), torch.tensor([True] * 9 + [False] * 3)]
    arrays = arrays if xp is torch else [part.numpy() for part in arrays]
    options = 0.3, pseudo, gradient, 0.5, True
    value, slope = _value_and_gradient(xp, *arrays, *options)
    monkeypatch.setattr(ppp_fast, "PAIRS", (12 * rows,) * 2)
    value_in_blocks, slope_in_blocks = _value_and_gradient(xp, *arrays, *options)
    assert float(value_in_blocks) == pytest.approx(float(value), rel=1e-12 if xp is np else 1e-6)
    np.testing.assert_allclose(np.asarray(slope_in_blocks), np.asarray(slope), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("with_value", [True, False])
def test_the_memory_of_a_large_batch_grows_with_its_size_and_not_with_its_square(with_value, monkeypatch):
    """A batch of 10,000 takes 300 MB in place of 11.5 GB; here both the batch and a block are a tenth of that."""
    monkeypatch.setattr(ppp_fast, "PAIRS", (2**12,) * 2)
    peaks = []
    for batch in (500, 1000):
        arrays = random_batch(batch, d=8, dtype=torch.float32)
        tracemalloc.start()
        (ppp_loss if with_value else ppp_gradient)(*arrays, 0.1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2**20  # one array of 1,000 × 1,000 would be 8 MB
    assert peaks[1] < 2.2 * peaks[0]


def test_a_batch_of_512_is_computed_at_once(monkeypatch):
    """Its bits are those of before there were blocks: the product of all pairs is one."""
    sizes = []
    monkeypatch.setattr(ppp_fast, "_of_rows", lambda *args: sizes.append(args[1]) or of_rows(*args))
    ppp_gradient(*random_batch(512), 0.1)
    ppp_gradient(*random_batch(513), 0.1)
    assert sizes[0] == slice(0, 512)
    assert [part.stop - part.start for part in sizes[1:]] == [511, 2]


of_rows = ppp_fast._of_rows
