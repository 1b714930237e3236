"""The dashboard in Chromium: it shows what the service holds, and follows while samples arrive."""

import re
import time

import numpy as np
import pytest
import torch
from running import running, small
from sklearn.datasets import load_digits

from everlearn.service.tokens import Tokens

pytestmark = pytest.mark.services

PATIENCE = 30.0
WORDS = "<script>hacked = 1</script>"


class Alarm:
    """A drift detector that raises an alarm at the tenth answer."""

    seen = 0

    def update(self, value):
        self.seen += 1

    @property
    def drift_detected(self):
        return self.seen == 10


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service that was taught some digits, and was asked others."""
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    with running(
        tmp_path_factory.mktemp("dashboard"), learner=lambda: small(unknown=0.05), drift=Alarm()
    ) as service:
        for start in range(0, 200, 10):
            service.model.observe(x[start : start + 10], y[start : start + 10].tolist(), None, None, None)
        live = service.model.live
        live.ask(list(range(60)), x[200:260])
        live.tell(list(range(50)), y[200:250].tolist())
        yield service


def wait_for(shown, expression, value=True):
    """Wait until the page has a value."""
    end = time.monotonic() + PATIENCE
    while (found := shown.ask(expression)) != value:
        assert time.monotonic() < end, f"{expression} is {found!r}, not {value!r}"
        time.sleep(0.05)


def text(shown, selector):
    return shown.ask(f"document.querySelector({selector!r}).innerText")


def tile(name):
    return (
        f"[...document.querySelectorAll('.tile')].find(t => t.innerText.startsWith({name!r}))"
        "?.querySelector('.value').innerText"
    )


def open_page(shown, service, **options):
    shown.open(service.url + "/", **options)
    wait_for(shown, "document.querySelectorAll('.tile').length", 6)


def test_it_shows_what_the_service_holds(shown, service):
    live = service.model.live
    open_page(shown, service)
    assert shown.ask(tile("samples learnt")) == f"{live.learner.samples:,}"
    assert shown.ask(tile("classes")) == "10"
    assert shown.ask(tile("waiting")) == "10"
    assert shown.ask(tile("drift")) == "1"
    rolling = live.status()["accuracy"]["rolling"]
    assert shown.ask(tile("accuracy")) == f"{100 * rolling:.1f}\u00a0%"
    rows = shown.ask(
        "[...document.querySelectorAll('#classes tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    found = {row[0]: (int(row[2]), int(row[3])) for row in rows}
    status = live.status()
    assert found == {
        repr(label): (status["learnt"][label], status["exemplars"][label]) for label in status["classes"]
    }
    counts = shown.ask("[...document.querySelectorAll('#confusion text.count')].map(t => +t.textContent)")
    assert sum(counts) == 50
    assert "drift alarm of Alarm" in text(shown, "#events")
    assert "new class 0" in text(shown, "#events")
    assert shown.ask("document.querySelectorAll('#curve path.line').length") == 2
    assert shown.ask("document.querySelectorAll('#curve .mark.drift').length") == 1
    mistakes = [
        f"{m.label!r}\n→ {'unknown' if 'UNK' in repr(m.answer) else m.answer}" for m in live.mistakes()
    ]
    pairs = shown.ask("[...document.querySelectorAll('.mistake .pair')].map(p => p.innerText)")
    assert pairs == mistakes[::-1][:24]
    assert shown.ask("document.querySelectorAll('.mistake canvas').length") == len(pairs)
    assert re.fullmatch(r"\d+\s% · model · everlearn", shown.ask("document.title"))


def test_it_follows_while_samples_arrive(shown, service):
    open_page(shown, service)
    before = service.model.live.learner.samples
    service.model.observe(np.zeros((5, 64), np.float32), ["a new class"] * 5, None, None, None)
    wait_for(shown, tile("samples learnt"), f"{before + 5:,}")
    wait_for(shown, tile("classes"), "11")
    assert "new class a new class" in text(shown, "#events")
    service.model.live.forget("a new class")
    wait_for(shown, tile("classes"), "10")


def test_it_loads_nothing_from_elsewhere_and_makes_no_error(shown, service):
    open_page(shown, service)
    asked = [
        e["params"]["request"]["url"] for e in shown.events if e["method"] == "Network.requestWillBeSent"
    ]
    assert all(url.startswith((service.url, "data:")) for url in asked)
    complaints = [e for e in shown.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert complaints == []
    shown.open(service.url + "/docs")
    wait_for(shown, "document.querySelectorAll('.operation').length > 10")
    assert "/v1/observe" in text(shown, "#operations")
    complaints = [e for e in shown.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert complaints == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_a_phone_and_a_desk(shown, service, width):
    open_page(shown, service, width=width)
    assert shown.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_a_light_and_a_dark_page(shown, service, dark):
    open_page(shown, service, dark=dark)

    def light(selector, what):
        colour = shown.ask(f"getComputedStyle(document.querySelector({selector!r})).{what}")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765

    card, ink = light(".card", "backgroundColor"), light(".tile .value", "color")
    axis = light("#curve svg text", "fill")
    assert (card < 0.2 and min(ink, axis) > 0.5) if dark else (card > 0.9 and max(ink, axis) < 0.5)


def test_classes_are_sorted_by_a_click_and_the_axis_can_be_changed(shown, service):
    open_page(shown, service)
    shown.click("#classes th button[data-sort=learnt]")  # descending is the default: ascending now
    learnt = shown.ask("[...document.querySelectorAll('#classes tbody tr')].map(r => +r.cells[2].innerText)")
    assert learnt == sorted(learnt)
    shown.click("[data-axis=position]")
    labels = shown.ask("[...document.querySelectorAll('#curve svg text')].map(t => t.textContent).join(' ')")
    assert ":" not in labels


def test_a_hostile_label_is_text(shown, tmp_path):
    with running(tmp_path) as service:
        for _ in range(3):
            service.model.observe(np.eye(4, dtype=np.float32)[:2], [WORDS, "b"], None, None, None)
        open_page(shown, service)
        assert WORDS in text(shown, "#classes")
        assert shown.ask("typeof hacked") == "undefined"
        assert shown.ask("document.querySelectorAll('script').length") == 1


def test_before_the_first_sample_and_after_the_service_has_gone(shown, tmp_path):
    with running(tmp_path) as service:
        open_page(shown, service)
        assert shown.ask(tile("accuracy")) == "–"
        assert "Nothing to show yet" in text(shown, "#curve")
        assert text(shown, "#live") == "live"
    wait_for(shown, "document.getElementById('live').innerText", "reconnecting")


def test_a_service_with_tokens_asks_for_one(shown, tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("reader", ["predict"])
    with running(tmp_path, names=("first", "second"), tokens=tokens) as service:
        service.models["second"].live.observe(torch.eye(2), ["x", "y"])
        shown.open(service.url + "/")
        wait_for(shown, "document.getElementById('token-form').hidden", False)
        for token in ("wrong", secret):
            shown.ask(f"document.getElementById('token').value = {token!r}")
            shown.click("#token-form button")
            if token == "wrong":
                wait_for(shown, "document.getElementById('token-error').innerText.includes('valid token')")
        wait_for(shown, "document.querySelectorAll('.tile').length", 6)
        assert shown.ask("[...document.getElementById('model').options].map(o => o.value)") == [
            "first",
            "second",
        ]
        shown.ask(
            "(s => { s.value = 'second'; s.dispatchEvent(new Event('change')); })(document.getElementById('model'))"
        )
        wait_for(shown, tile("samples learnt"), "2")
