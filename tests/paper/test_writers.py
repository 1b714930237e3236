"""One table for the terminal, and as HTML, Markdown, LaTeX and CSV."""

import csv
import io

import pytest
from rich.console import Console

from everlearn.paper.report.html import table_html
from everlearn.paper.table_view import Column, Entry, Row, TableView, name, number_entry
from everlearn.paper.writers import to_csv, to_latex, to_markdown, to_terminal


@pytest.fixture
def view():
    """Ours and the paper's on one stream, and one column without a group."""
    columns = (
        Column("ours", "split-mnist", starts=True),
        Column("paper", "split-mnist"),
        Column("S(T_1) & more"),
    )
    best = Entry(mean=93.944, std=0.2, link="runs-cope", style=("best",))
    rows = (
        Row(name("cope", method="cope"), (best, Entry(mean=93.94, std=0.2), Entry("<b>|</b>"))),
        Row(
            name("mir", method="mir"),
            (Entry("failed", span=2, style=("failed",)), Entry(mean=-1.5, signed=True)),
        ),
    )
    return TableView("method", columns, rows, foot=Row(Entry("mean"), (Entry("90.00"), Entry(), Entry())))


def test_neighbouring_columns_share_their_heading(view):
    assert view.groups == [("split-mnist", 2), ("", 1)]
    assert TableView("", (Column("a"), Column("b")), ()).groups == []


def test_an_entry_after_a_wide_one_stands_in_its_own_column(view):
    assert [column.name for _, column in view.placed[1]] == ["ours", "S(T_1) & more"]


def test_a_number_that_is_missing_is_a_dash_and_sorts_last():
    assert (number_entry(None).plain, number_entry(None).sorted_by) == ("–", "")
    assert (number_entry(-1.25, 1, signed=True).plain, number_entry(0.5).sorted_by) == ("−1.2", 0.5)


def test_the_terminal_shows_mean_and_deviation(view):
    console = Console(file=io.StringIO(), width=100)
    console.print(to_terminal(view))
    shown = console.file.getvalue()
    assert "split-mnist: ours" in shown
    assert "93.94 ± 0.20" in shown


def test_markdown_has_a_line_for_each_row_and_escapes_strokes(view):
    head, rule, cope, mir = to_markdown(view).splitlines()
    assert head == "| method | ours | paper | S(T_1) & more |"
    assert rule == "| --- | --- | --- | --- |"
    assert cope == r"| CoPE | **93.94 ± 0.20** | 93.94 ± 0.20 | <b>\|</b> |"
    assert mir == "| MIR | failed | −1.50 |"


def test_latex_has_booktabs_rules_and_the_best_in_bold(view):
    assert to_latex(view).splitlines() == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{Split-MNIST} &  \\",
        r"\cmidrule(lr){2-3}",
        r"method & ours & paper & $S(T_{1})$ \& more \\",
        r"\midrule",
        r"CoPE & \textbf{93.94} $\pm$ 0.20 & 93.94 $\pm$ 0.20 & $<$b$>$$|$$<$/b$>$ \\",
        r"MIR & \multicolumn{2}{l}{failed} & $-$1.50 \\",
        r"\midrule",
        r"mean & 90.00 &  &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_is_read_back_as_it_was_written(view):
    lines = list(csv.reader(io.StringIO(to_csv(view))))
    assert lines[0] == ["method", "ours", "paper", "S(T_1) & more"]
    assert lines[1] == ["cope", "93.94 ± 0.20", "93.94 ± 0.20", "<b>|</b>"]


def test_html_escapes_every_text_and_links_its_numbers(view):
    html = table_html(view)
    assert "<b>" not in html
    assert "&lt;b&gt;|&lt;/b&gt;" in html
    assert (
        '<td class="first best" data-value="93.944"><a href="#runs-cope">93.94 <small>± 0.20</small></a></td>'
        in html
    )
    assert '<th colspan="2" class="first" scope="colgroup">Split-MNIST</th>' in html
    assert '<td class="first failed" colspan="2">failed</td>' in html
    assert '<tfoot><tr><th scope="row">mean</th>' in html


@pytest.mark.parametrize("field", ["text", "note", "title", "link"])
def test_no_field_of_an_entry_can_add_an_element(field):
    hostile = '"><script>hacked=1</script>'
    entry = Entry(**{"mean": 1.0, field: hostile, "below": (hostile,)})
    html = table_html(
        TableView(hostile, (Column(hostile, hostile, title=hostile),), (Row(name(hostile), (entry,)),))
    )
    assert "<script" not in html
    assert html.count("<td") == 1
