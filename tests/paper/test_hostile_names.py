"""Names from a store or a file of results, whatever they are: no script on the page, no file outside its folder."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import hostile_runs
import pytest
from runs_made_up import five, stored

from everlearn.cli import main
from everlearn.cli.show import draw_pictures
from everlearn.engine.loop import run
from everlearn.experiments import results
from everlearn.experiments.collect import collect_runs
from everlearn.experiments.names import file_name
from everlearn.paper import report
from everlearn.paper.experiment import experiment
from everlearn.paper.report.theme import inline_svg


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.data: dict[str, str] = {}
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        self._inside = dict(attributes).get("id")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self.data[self._inside] = self.data.get(self._inside, "") + data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report of a hostile store, and that of a hostile experiment."""
    folder = tmp_path_factory.mktemp("hostile")
    store = hostile_runs.store(folder)
    papers = [experiment(hostile_runs.experiment_file(folder))]
    return [
        report.write([store], folder / "all" / "out"),
        report.write([store], folder / "one" / "out", papers=papers),
    ]


def test_no_name_becomes_an_element_of_the_page(pages) -> None:
    for page in pages:
        found = Elements(page.read_text("utf-8"))
        assert found.tags.count("script") == 1
        assert {"img", "iframe", "object"}.isdisjoint(found.tags)
        assert [name for name, _ in found.attributes if name.startswith("on")] == []
    assert "<!--<script>" in found.text


def test_the_page_holds_its_tables_to_the_letter(pages) -> None:
    for page in pages:
        found = Elements(page.read_text("utf-8"))
        for kind in ("csv", "json"):
            assert found.data[f"data-{kind}"] == (page.parent / f"tables.{kind}").read_text("utf-8")


def test_pictures_stay_in_their_folder_whatever_they_are_named_after(pages) -> None:
    for page in pages:
        folder = page.parent.parent
        assert {path.name for path in folder.iterdir()} == {"out"}
        assert {path.name for path in page.parent.iterdir()} == {
            "figures", "report.html", "tables.csv", "tables.json",
        }  # fmt: skip
        drawn = list((page.parent / "figures").iterdir())
        assert len(drawn) >= 4
        assert all(path.is_file() and file_name(path.stem) == path.stem for path in drawn)


def test_the_ids_of_a_picture_are_plain_whatever_its_name() -> None:
    svg = '<svg width="10pt" height="10pt"><g id="a"/><use href="#a"/></svg>'
    inlined = inline_svg(svg, '"><script>\\g<1>', '"><script>')
    assert "<script" not in inlined
    root = ElementTree.fromstring(inlined)
    assert root.find("use").get("href") == f"#{root.find('g').get('id')}"


def test_results_are_exported_inside_their_folder(tmp_path) -> None:
    folder = tmp_path / "deep" / "results"
    streams = ["../../outside", str(tmp_path / "outside"), "..", "a/b"]
    records = [
        dataclasses.replace(record, job=record.job | {"stream": stream, "learner": "cope"})
        for record, stream in zip(hostile_runs.records(), streams, strict=False)
    ]
    paths = results.export(records, folder)
    assert len(paths) == 4
    assert {path.parent.parent for path in paths} == {folder}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["results"]
    assert {record.job["stream"] for record in results.read(folder)} == set(streams)


def test_a_learner_and_a_stream_of_known_names_keep_their_file(tmp_path) -> None:
    (path,) = results.export(five("cope", "split-mnist", [94]), tmp_path)
    assert path == tmp_path / "split-mnist" / "cope.json"


def test_pictures_of_a_run_stay_in_their_folder(tmp_path) -> None:
    from everlearn import CoPE, Evaluator, as_stream, stream

    digits = stream("split-digits")
    own = as_stream(list(digits)[:4], name="../../outside", tests=digits.tests[0])
    result = run(CoPE(hidden=8, memory_size=20, device="cpu"), own, Evaluator(every=2))
    folder = tmp_path / "deep" / "pictures"
    paths = draw_pictures({"cope": [result]}, folder, few=True)
    assert {path.parent for path in paths} == {folder}
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["pictures"]


def test_names_that_differ_are_files_that_differ() -> None:
    names = ["a<b", "a>b", "a b", "../a", "a/", "", ".", "..", "x" * 500, "x" * 501, "a\0", "-", "ä"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert all(file and "/" not in file and not file.startswith(".") and len(file) < 130 for file in files)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("job", {"seed": '"><script>'}),
        ("job", {"seed": -1}),
        ("job", {"learner": ["cope"]}),
        ("job", {"stream": None}),
        ("job", {"settings": []}),
        ("job", {"horizon": {"epochs": 3}}),
        ("result", {"accuracy": "<script>"}),
        ("result", {"accuracy": float("inf")}),
        ("result", {"memory_bytes": "<script>"}),
        ("result", {"samples_per_second": {}}),
        ("result", {"footprint": {"replay": "<script>"}}),
        ("result", {"confusion": {"labels": [0, 1], "counts": [[1]]}}),
        ("result", {"evaluations": [{"samples": "<script>"}]}),
    ],
)
def test_a_run_whose_numbers_are_none_is_refused_in_one_sentence(part, change, tmp_path) -> None:
    (record,) = five("cope", "split-mnist", [90])
    forged = dataclasses.replace(record, **{part: getattr(record, part) | change})
    path = stored(tmp_path / "store.sqlite", [forged])
    (name,) = change
    with pytest.raises(
        ValueError, match=rf"the run '.*' in .*store.sqlite is not one .* its {part}'s {name} can't"
    ):
        collect_runs([path])
    results.export([record], tmp_path / "results")
    file = tmp_path / "results" / "split-mnist" / "cope.json"
    content = json.loads(file.read_text("utf-8"))
    (group,) = content["groups"]
    if part == "result":
        group["runs"][0]["result"] |= change
    elif name == "seed":
        group["runs"][0] |= change
    else:
        group["job"] |= change
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ValueError, match="cope.json is not a valid file of results"):
        collect_runs([tmp_path / "results"])


def test_the_command_says_in_one_sentence_that_a_store_is_forged(tmp_path, capsys) -> None:
    path = stored(tmp_path / "store.sqlite", five("cope", "split-mnist", [90]))
    with sqlite3.connect(path) as connection:
        connection.execute("update runs set job = '{'")
    connection.close()
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("everlearn: the run ")
    assert "can't be read; restore a copy of the file, or name another" in said
    assert not (tmp_path / "out").exists()
