"""The page as a user sees it: in Chromium, without a network, light and dark, wide and narrow, on paper."""

import dataclasses
import json
import re

import hostile_runs
import pytest
from runs_made_up import of_experiment, stored

from everlearn.paper import report
from everlearn.paper.experiment import experiment

pytestmark = pytest.mark.services

ROWS = (
    "[...document.querySelectorAll('#balanced table')[0].tBodies[0].rows].map(row => row.cells[0].innerText)"
)


def test_it_loads_without_an_error_and_without_a_request(shown, written):
    shown.open(written)
    assert shown.ask("document.querySelectorAll('figure svg').length") >= 8
    complaints = [e for e in shown.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert complaints == []
    requested = {
        e["params"]["request"]["url"] for e in shown.events if e["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in requested if not url.startswith("data:")} == {written.as_uri()}


def test_a_click_on_a_head_sorts_a_second_turns_round_a_third_restores(shown, written):
    shown.open(written)
    before = shown.ask(ROWS)
    ours = "[...document.querySelectorAll('#balanced table')[0].tBodies[0].rows].map(r => r.cells[1].dataset.value)"
    head = "#balanced table thead tr:last-child th:nth-child(2) button"
    shown.click(head)
    values = shown.ask(ours)
    measured = [float(value) for value in values if value]
    assert measured == sorted(measured, reverse=True)
    assert len(measured) == 5  # CoPE and iCaRL in both ways, MIR
    assert values[5:] == [""] * (len(values) - 5)  # what was not measured comes last
    assert shown.ask(ROWS) != before
    assert shown.ask(f"document.querySelector({json.dumps(head)}).closest('th').ariaSort") == "descending"
    shown.click(head)
    values = shown.ask(ours)
    assert [float(value) for value in values if value] == sorted(measured)
    assert values[5:] == [""] * (len(values) - 5)
    shown.click(head)
    assert shown.ask(ROWS) == before


def test_names_are_sorted_from_a_to_z(shown, written):
    shown.open(written)
    shown.click("#balanced table thead tr:last-child th:first-child button")
    names = shown.ask(ROWS)
    assert names == sorted(names, key=lambda name: re.sub(r"\W", "", name.lower()))


def test_a_number_leads_to_its_runs_settings_and_command(shown, written):
    shown.open(written)
    fold = "document.querySelector('#runs-balanced-icarl-split-mnist')"
    assert shown.ask(f"{fold}.open") is False
    shown.click("#balanced td a[href='#runs-balanced-icarl-split-mnist']")
    shown.ask("new Promise(done => setTimeout(done, 300))")
    assert shown.ask(f"{fold}.open") is True
    text = shown.ask(f"{fold}.innerText")
    assert "everlearn run --learner icarl --stream split-mnist --seeds 5" in text
    assert "hidden = 400" in text
    assert shown.ask(f"{fold}.querySelectorAll('tbody tr').length") == 5
    place = shown.ask(f"{fold}.getBoundingClientRect().top")
    assert -5 <= place <= 900  # it is in sight


def test_no_number_of_ours_stands_without_a_link(shown, written):
    """Outside the runs themselves; what has none is the paper's, or counts seeds."""
    shown.open(written)
    heads = shown.ask("""
        [...document.querySelectorAll("section:not(#runs) table")].flatMap((table) => {
            const heads = [...table.tHead.rows].at(-1).cells;
            return [...table.tBodies[0].querySelectorAll("td")]
                .filter((cell) => /\\d/.test(cell.textContent) && !cell.querySelector("a[href^='#']"))
                .map((cell) => heads[cell.cellIndex].textContent);
        })
    """)
    assert set(heads) == {"paper", "n"}


def test_a_mean_opens_its_fold_and_those_around_it_and_leads_on_to_a_cell(shown, written):
    shown.open(written)
    shown.click("#imbalanced td a[href='#mean-imbalanced-1-cope']")
    shown.ask("new Promise(done => setTimeout(done, 300))")
    fold = "document.getElementById('mean-imbalanced-1-cope')"
    assert shown.ask(f"{fold}.open && {fold}.parentElement.closest('details').open") is True
    assert -5 <= shown.ask(f"{fold}.getBoundingClientRect().top") <= 900
    shown.click("#mean-imbalanced-1-cope th a[href='#runs-imbalanced-1-cope-S-T-3-']")
    shown.ask("new Promise(done => setTimeout(done, 300))")
    assert "momentum = " in shown.ask("document.getElementById('runs-imbalanced-1-cope-S-T-3-').innerText")


def test_the_checks_of_a_claim_sort_by_what_we_found(shown, written):
    shown.open(written)
    table = "document.querySelector('.claim details table')"
    shown.ask(f"{table}.closest('details').open = true")
    shown.click(".claim details table th:nth-child(2) button")
    values = shown.ask(f"[...{table}.tBodies[0].rows].map(row => row.cells[1].dataset.value ?? '')")
    measured = [float(value) for value in values if value]
    assert len(measured) >= 2
    assert measured == sorted(measured, reverse=True)
    assert values[len(measured) :] == [""] * (len(values) - len(measured))


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_figures_stand_out_from_a_light_and_a_dark_page(shown, written, dark):
    shown.open(written, dark=dark)

    def light(expression):
        colour = shown.ask(expression)
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")[:3]) / 765

    page = light("getComputedStyle(document.querySelector('section')).backgroundColor")
    ink = light("getComputedStyle(document.querySelector('h1')).color")
    label = "document.querySelector('#balanced figure svg text, #balanced figure svg [style*=\"--ink\"]')"
    drawn = light(f"getComputedStyle({label}).fill")
    assert (page < 0.2 < 0.8 < min(ink, drawn)) if dark else (max(ink, drawn) < 0.3 < 0.9 < page)


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_only_tables_and_figures_scroll_sideways(shown, written, width):
    shown.open(written, width=width)
    assert shown.ask("document.documentElement.scrollWidth") <= width


def test_a_memory_of_many_parts_fits_a_window_of_1280(shown, tmp_path):
    parts = {"short-term memory": 400_000, "experts": 2_090_000, "optimisers": 4_180_000}
    records = [
        dataclasses.replace(record, result={**record.result, "footprint": parts})
        for record in of_experiment("resources")
    ]
    path = stored(tmp_path / "store.sqlite", records)
    shown.open(report.write([path], tmp_path / "out", papers=[experiment("resources")]))
    table = "document.querySelector('#resources .scroll')"
    assert "memory\u00a00.40" in shown.ask(f"{table}.innerText")
    assert shown.ask(f"{table}.scrollWidth") <= shown.ask(f"{table}.clientWidth")


def test_it_prints_without_what_only_a_screen_needs(shown, written):
    shown.open(written, dark=True)
    assert shown.pdf().startswith(b"%PDF")
    shown.call("Emulation.setEmulatedMedia", media="print")
    assert shown.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert shown.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.call("Emulation.setEmulatedMedia", media="screen")


def test_the_tables_can_be_taken_from_the_page_itself(shown, written):
    shown.open(written)
    text = shown.ask("document.getElementById('data-json').textContent")
    assert json.loads(text) == json.loads((written.parent / "tables.json").read_text("utf-8"))
    csv = shown.ask("document.getElementById('data-csv').textContent")
    assert csv == (written.parent / "tables.csv").read_text("utf-8")


@pytest.mark.parametrize("own", [False, True])
def test_a_hostile_name_runs_no_script_and_leaves_the_pages_own_alive(shown, tmp_path, own):
    store = hostile_runs.store(tmp_path)
    papers = [experiment(hostile_runs.experiment_file(tmp_path))] if own else None
    page = report.write([store], tmp_path / "out", papers=papers)
    shown.open(page)
    assert shown.ask("typeof hacked") == "undefined"
    assert shown.ask("document.querySelectorAll('script').length") == 1
    assert shown.ask("document.querySelectorAll('img').length") == 0
    complaints = [e for e in shown.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert complaints == []
    assert "<!--<script>" in shown.ask("document.querySelector('main').innerText")
    assert shown.ask("document.querySelectorAll('figure svg').length") >= 2
    shown.click("main section:nth-of-type(1) table thead tr:last-child th:first-child button")
    assert (
        shown.ask("document.querySelectorAll('th[aria-sort]').length") == 1
    )  # the page's own script is alive
    for kind in ("csv", "json"):
        text = shown.ask(f"document.getElementById('data-{kind}').textContent")
        assert text == (page.parent / f"tables.{kind}").read_text("utf-8")


def test_the_pictures_of_a_hostile_experiment_refer_to_their_own_parts(shown, tmp_path):
    store = hostile_runs.store(tmp_path)
    papers = [experiment(hostile_runs.experiment_file(tmp_path))]
    shown.open(report.write([store], tmp_path / "out", papers=papers))
    used = "[...document.querySelectorAll('figure use')]"
    assert shown.ask(f"{used}.length") > 10
    assert shown.ask(f"{used}.filter(u => !document.getElementById(u.href.baseVal.slice(1))).length") == 0
