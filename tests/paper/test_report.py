"""The report as files: one page, figures, CSV and JSON."""

import csv
import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from runs_made_up import five, of_experiment, stored
from test_plots_style import EYES, NAMES, seen_as

from everlearn.experiments.options import SweepOptions
from everlearn.paper import report
from everlearn.paper.experiment import experiment
from everlearn.paper.report import figures, theme
from everlearn.paper.tables import fill, tables
from everlearn.plots import style


class Links(HTMLParser):
    """The links of a page, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.loaded = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "a":
            self.links.append(given["href"])
        if "id" in given:
            self.ids.append(given["id"])
        if "src" in given or (tag == "link" and "href" in given):
            self.loaded.append(given)


def test_the_page_loads_nothing_and_every_link_leads_somewhere(written):
    text = written.read_text("utf-8")
    found = Links(text)
    assert found.loaded == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)
    assert len(found.ids) == len(set(found.ids))
    inner = [link.removeprefix("#") for link in found.links]
    assert len(inner) > 20
    assert set(inner) <= set(found.ids)


def test_each_figure_is_a_png_and_an_svg_that_the_page_names(written):
    text = written.read_text("utf-8")
    names = {path.stem for path in (written.parent / "figures").iterdir()}
    assert names >= {"balanced", "balanced-difference", "balanced-split-mnist-stream", "imbalanced-1"}
    assert names >= {
        "imbalanced-1-confusion",
        "resources-speed",
        "resources-memory",
        "momentum",
        "other-runs",
    }
    for name in names:
        assert f"figures/{name}.svg" in text
        assert (written.parent / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (written.parent / "figures" / f"{name}.svg").read_text("utf-8")


def test_ours_stands_beside_the_papers_with_the_difference_and_the_command(written):
    text = written.read_text("utf-8")
    lines = (written.parent / "tables.csv").read_text("utf-8").splitlines()
    rows = {row["row"]: row for row in csv.DictReader(lines) if row["experiment"] == "balanced"}
    assert rows["icarl"]["paper_mean"] == "83.95"
    assert float(rows["icarl"]["difference"]) == pytest.approx(float(rows["icarl"]["mean"]) - 83.95, abs=1e-4)
    assert f">{float(rows['icarl']['mean']):.2f} <small>±" in text
    assert "everlearn run --learner icarl --stream split-mnist --seeds 5<" in text
    assert "temperature = 0.3" in text


def fold(text, place):
    """The text of a fold without folds inside."""
    return re.search(rf'<details id="{place}">.*?</details>', text, re.DOTALL)[0]


def foot(shown):
    """The numbers of the last row of a fold's table."""
    row = re.search("<tfoot>(.*?)</tfoot>", shown)[1]
    return [float(cell.replace("−", "-")) for cell in re.findall("<td[^>]*>([^<]+)</td>", row)]


def cells_of(written, experiment_name, panel=0):
    """The cells of a table as tables.json has them, by row and column."""
    exported = json.loads((written.parent / "tables.json").read_text("utf-8"))
    table = [table for table in exported if table["experiment"] == experiment_name][panel]
    return {(cell["row"], cell["column"]): list(cell["per_seed"].values()) for cell in table["cells"]}


def test_the_mean_over_variants_has_its_deviation_and_leads_to_each_variant_seed_by_seed(written):
    text = written.read_text("utf-8")
    cells = cells_of(written, "imbalanced")
    seeds = np.mean([values for (row, _), values in cells.items() if row == "cope-ce"], axis=0)
    link = f"{seeds.mean():.2f} <small>± {seeds.std(ddof=1):.2f}</small></a>"
    assert f'<a href="#mean-imbalanced-1-cope-ce">{link}' in text
    shown = fold(text, "mean-imbalanced-1-cope-ce")
    assert foot(shown) == pytest.approx([*seeds, seeds.mean()], abs=0.006)
    for variant in range(1, 6):
        assert f'href="#runs-imbalanced-1-cope-ce-S-T-{variant}-"' in shown
        assert f"--learner cope-ce --stream split-mnist --seeds 5 --imbalance {variant}<" in shown


def test_a_paired_difference_leads_to_both_its_cells_seed_by_seed(written):
    text = written.read_text("utf-8")
    cells = cells_of(written, "balanced")
    seeds = np.subtract(cells["cope", "split-mnist"], cells["mir", "split-mnist"])
    sign = f"{seeds.mean():+.2f}".replace("-", "−")
    assert re.search(
        rf'<a (?:class="sure" )?href="#difference-balanced-mir-split-mnist">{re.escape(sign)}</a>', text
    )
    shown = fold(text, "difference-balanced-mir-split-mnist")
    assert foot(shown) == pytest.approx([*seeds, seeds.mean()], abs=0.006)
    for learner, settings in (("cope", " --renormalise"), ("mir", "")):
        assert f'href="#runs-balanced-{learner}-split-mnist"' in shown
        assert f"--learner {learner} --stream split-mnist --seeds 5{settings}<" in shown


def test_a_check_of_a_claim_leads_to_the_cells_of_both_its_sides(written):
    text = written.read_text("utf-8")
    line = "imbalanced[cope, split-mnist] - imbalanced[cope-ce, split-mnist] = 4.0"
    row = re.search(rf"<code>{re.escape(line)}</code></th>(.*?)</tr>", text)[1]
    places = re.findall('<a href="#(check-[^"]+)">', row)
    assert len(places) == 2  # ours, and its interval
    shown = fold(text, places[0])
    cells = cells_of(written, "imbalanced")
    of = {name: [v for (row, _), v in cells.items() if row == name] for name in ("cope", "cope-ce")}
    seeds = np.mean(of["cope"], axis=0) - np.mean(of["cope-ce"], axis=0)
    assert foot(shown) == pytest.approx([*seeds, seeds.mean()], abs=0.006)
    assert len(set(re.findall('href="#(runs-imbalanced-1-cope[^"]+)"', shown))) == 10


def test_a_check_without_a_test_shows_what_it_compares(written):
    """Memory and speed are compared as they are: the difference stands for all seeds at once."""
    text = written.read_text("utf-8")
    place = re.search(r'id="(check-[\d-]+)"><summary><code>memory\(resources\[', text)[1]
    assert foot(fold(text, place)) == [0.0]
    assert 'data-value="1.6"' in fold(text, place)


def test_time_speed_and_memory_lead_to_their_runs(written):
    text = written.read_text("utf-8")
    section = text[
        text.index('<section id="resources">') : text.index("</section>", text.index('id="resources"'))
    ]
    links = re.findall(r'<a href="#runs-resources-mir-split-mnist">([^<]+)</a>', section)
    assert links == ["3,000", "1.5", "1.60 MB"]


def test_every_table_sorts_by_every_column(written):
    for table in re.findall("<thead>(.*?)</thead>", written.read_text("utf-8")):
        last = table[table.rindex("<tr>") :]
        assert last.count("<th") == last.count("<button"), last


def test_the_marks_are_explained_only_where_a_number_of_the_paper_stands_beside_ours(written, tmp_path):
    assert "▲ and ▼ mark" in written.read_text("utf-8")
    path = stored(tmp_path / "store.sqlite", of_experiment("momentum", quick=True))
    text = report.write([path], tmp_path / "out").read_text("utf-8")
    assert "▲" not in text
    assert "± is the standard deviation over seeds. Every number" in text


def test_an_error_is_shown_as_text(written):
    assert "&lt;b&gt;too&lt;/b&gt; bad" in written.read_text("utf-8")


def test_json_has_every_seed_and_the_paired_comparisons(written):
    exported = {
        table["experiment"]: table
        for table in json.loads((written.parent / "tables.json").read_text("utf-8"))
    }
    cells = {cell["row"]: cell for cell in exported["balanced"]["cells"]}
    assert len(cells["mir"]["per_seed"]) == len(cells["mir"]["runs"]) == 5
    compared = {found["less_row"]: found for found in exported["balanced"]["comparisons"]}
    assert compared["mir"]["n"] == 5
    expected = cells["cope"]["mean"] - cells["mir"]["mean"]
    assert compared["mir"]["mean"] == pytest.approx(expected, abs=1e-3)
    assert (len(cells["gss"]["failed"]), cells["gss"]["n"]) == (1, 0)


def test_the_same_runs_give_the_same_files(tmp_path):
    records = five("cope", "split-mnist", [94, 95])
    records += five("cope", "split-mnist", [60], settings={"momentum": 0.0})
    path = stored(tmp_path / "store.sqlite", records)
    own = [experiment("momentum", SweepOptions(streams=["split-mnist"]))]
    once, again = (report.write([path], tmp_path / name, own).parent for name in ("once", "again"))
    files = sorted(file.relative_to(once) for file in once.rglob("*.*"))
    assert [file.stem for file in files] == ["momentum", "momentum", "report", "tables", "tables"]
    for file in files:
        assert (once / file).read_bytes() == (again / file).read_bytes(), file


def test_exports_alone_write_one_file(tmp_path):
    path = stored(tmp_path / "store.sqlite", five("cope", "split-mnist", [94, 95]))
    lines = report.export_csv([path], tmp_path / "new" / "a.csv").read_text("utf-8").splitlines()
    assert sum(line.startswith("balanced,") for line in lines) == 1
    exported = json.loads(report.export_json([path], tmp_path / "new" / "a.json").read_text("utf-8"))
    assert exported[0]["cells"][0]["mean"] == 94.5


def test_a_table_whose_runs_all_stand_in_another_is_not_repeated():
    def names(records):
        return [table.name for table in report.shown_of(tables(records))]

    assert names(five("cope", "split-mnist", [94])) == ["balanced"]
    excluded = five("cope", "split-mnist", [90], settings={"pseudo_prototypes": False})
    assert names(five("cope", "split-mnist", [94]) + excluded) == ["pseudo-prototypes"]
    assert names(five("mir", "split-mnist", [94]) + excluded) == ["balanced", "pseudo-prototypes"]


def test_a_store_without_runs_is_one_sentence_and_writes_nothing(tmp_path):
    path = stored(tmp_path / "store.sqlite", [])
    with pytest.raises(
        ValueError, match="there are no runs of balanced, .* in .*store.sqlite; `everlearn reproduce`"
    ):
        report.write([path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_experiment_of_ones_own_is_reported_by_itself(tmp_path):
    own = experiment("momentum", SweepOptions(streams=["split-mnist"]))
    path = stored(tmp_path / "store.sqlite", of_experiment("momentum", streams=["split-mnist"]))
    text = report.write([path], tmp_path / "out", papers=[own]).read_text("utf-8")
    assert 'id="momentum"' in text
    assert 'id="balanced"' not in text


def test_bars_and_diamonds_stand_where_the_numbers_are():
    table = fill(experiment("balanced"), five("cope", "split-mnist", [90.0, 92.0]))[0]
    ax = figures.accuracy_bars(table).axes[0]
    assert [patch.get_width() for patch in ax.patches] == [91.0]
    place = table.rows.index("cope")
    diamonds = {line.get_ydata()[0]: line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"}
    assert diamonds[place] == 93.94
    assert len(diamonds) == 13


def test_a_figure_on_the_page_has_no_colour_of_its_own(written):
    """Else it would be dark on dark: every colour but those of confusion matrices is a variable of the page."""
    text = written.read_text("utf-8")
    for figure in re.findall(r'<figure class="(?:wide)?">.*?</figure>', text, re.DOTALL):
        drawn = re.sub(r"<pattern.*?</pattern>", "", figure, flags=re.DOTALL)
        assert not re.search(r"(?:fill|stroke): #", drawn), re.search(r"(?:fill|stroke): #\w+", drawn)


@pytest.mark.parametrize("eyes", EYES)
def test_on_a_dark_page_lines_with_the_same_dashes_differ_to_all_eyes(eyes):
    for one, other in itertools.combinations(NAMES, 2):
        if style.DASHES.get(one) == style.DASHES.get(other):
            distance = seen_as(theme.DARK[one], eyes) - seen_as(theme.DARK[other], eyes)
            assert np.linalg.norm(distance) > 15, (one, other)


@pytest.mark.parametrize("dark", [False, True])
def test_every_method_stands_out_from_the_page(dark):
    """Contrast of at least 2.2 to 1 with the page, where a label or a shape says the same."""
    page = theme.PAGE["card"][dark]
    for name, colour in (theme.DARK if dark else style.COLOURS).items():
        light, low = sorted((luminance(colour), luminance(page)), reverse=True)
        assert (light + 0.05) / (low + 0.05) > 2.2, name


def luminance(colour):
    shares = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
