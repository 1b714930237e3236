"""Claims of the paper as checks over cells, and the verdicts on them."""

import dataclasses

import pytest
from runs_made_up import five, of_experiment, run

from everlearn.experiments.job import Job
from everlearn.paper.claims import Claim, claims, expanded, judge, parse
from everlearn.paper.tables import tables

UP = [1.0, 2.0, 3.0, 4.0, 5.0]


def verdict(line, records):
    claim = Claim("said", "there", tuple(parse(one) for one in expanded(line)))
    return judge(claim, tables(records)).verdict


def two(a, b):
    return five("cope", "split-mnist", a) + five("mir", "split-mnist", b)


ABOVE = "balanced[cope, split-mnist] > balanced[mir, split-mnist]"
BY = "balanced[cope, split-mnist] - balanced[mir, split-mnist] = "
ALIKE = "balanced[cope, split-mnist] ~ balanced[mir, split-mnist] within 1"


@pytest.mark.parametrize(
    ("line", "cope", "mir", "expected"),
    [
        (ABOVE, [94, 95, 96.1], [90, 91, 92], "holds"),
        (ABOVE, [90, 91, 92.1], [94, 95, 96], "does not hold"),
        (ABOVE, [94, 90, 96], [90, 94, 92], "unclear"),
        (ABOVE, [94], [90], "not measured yet"),
        (ABOVE, [94, 95], [], "not measured yet"),
        (BY + "4", [94, 95, 96.1], [90, 91, 92], "holds"),
        (BY + "9", [94, 95, 96.1], [90, 91, 92], "holds, by less"),
        (BY + "1", [94, 95, 96.1], [90, 91, 92], "holds, by more"),
        (BY + "-4", [94, 95, 96.1], [90, 91, 92], "does not hold"),
        (BY + "-4", [90, 91, 92.1], [94, 95, 96], "holds"),
        (ALIKE, [90, 91, 92], [90.5, 91.9, 92.4], "holds"),
        (ALIKE, [90, 91, 92], [95, 96, 97.1], "does not hold"),
        (ALIKE, [90, 91, 92], [80, 105, 92], "unclear"),
    ],
)
def test_a_verdict_follows_from_the_interval_of_the_paired_difference(line, cope, mir, expected):
    assert verdict(line, two(cope, mir)) == expected


def test_words_choose_cells_and_what_is_left_open_is_averaged_seed_by_seed():
    records = [
        record
        for variant in range(1, 6)
        for learner, base in (("cope", 80), ("cope-ce", 76))
        for record in five(learner, "split-mnist", [base + variant, base + 2 * variant], imbalance=variant)
    ]
    check = parse("imbalanced[cope, split-mnist] - imbalanced[cope-ce, split-mnist] = 4")
    (finding,) = judge(Claim("", "", (check,)), tables(records)).findings
    assert (finding.difference.mean, finding.difference.n, finding.verdict) == (4, 2, "holds")
    (missing,) = judge(Claim("", "", (check,)), tables(records[:-2])).findings
    assert missing.verdict == "not measured yet"  # a mean over fewer variants would be another number


def test_the_papers_difference_stands_beside_ours_where_it_prints_both():
    (finding,) = judge(Claim("", "", (parse(ABOVE),)), tables([])).findings
    assert finding.paper == pytest.approx(93.94 - 93.20)


def test_deviations_are_compared_as_they_are():
    line = "std(balanced[mir, split-mnist]) > std(balanced[cope, split-mnist])"
    assert verdict(line, two([90, 91], [80, 90])) == "holds"
    assert verdict(line, two([80, 90], [90, 91])) == "does not hold"
    assert verdict(line, two([80, 90], [90])) == "not measured yet"


def test_early_and_late_are_the_halves_of_the_tasks():
    records = two(UP, UP)
    for record in records[:5]:
        record.result["concepts"] = dict(zip("abcde", (0.9, 0.8, 0.5, 0.2, 0.1), strict=True))
    for record in records[5:]:
        record.result["concepts"] = dict(zip("abcde", (0.2, 0.1, 0.5, 0.9, 0.8), strict=True))
    assert verdict(f"early({ABOVE.split(' > ')[0]}) > early({ABOVE.split(' > ')[1]})", records) == "holds"
    assert (
        verdict(f"late({ABOVE.split(' > ')[0]}) > late({ABOVE.split(' > ')[1]})", records) == "does not hold"
    )


def test_speeds_are_compared_on_one_machine_alone():
    fast, slow = (run(Job(name, "split-mnist", 0, alone=True), 90) for name in ("cope", "mir"))
    slow.result["samples_per_second"] = 10.0
    line = "speed(resources[cope, split-mnist]) > speed(resources[mir, split-mnist])"
    assert verdict(line, [fast, slow]) == "holds"
    assert verdict(line, [fast, dataclasses.replace(slow, hardware="another")]) == "not measured yet"


def test_a_claim_of_several_checks_counts_them():
    line = "balanced[cope, split-mnist] > balanced[{mir|gss|gem}, split-mnist]"
    records = two([94, 95, 96.1], [90, 91, 92]) + five("gss", "split-mnist", [97, 98, 99.1])
    assert verdict(line, records) == "1 of 3 hold, 1 do not, 1 not measured yet"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("balanced[cope] >> balanced[mir]", "is not a check; write a > b"),
        ("balanced[cope] - balanced[mir]", "is not a check; write a > b"),
        ("balanced[cope] ~ balanced[mir]", "~ needs a margin, and only ~ takes one"),
        ("balanced[cope] > balanced[mir] within 1", "~ needs a margin, and only ~ takes one"),
        ("stt(balanced[cope]) > std(balanced[mir])", "no metric 'stt'; did you mean 'std'"),
        ("balenced[cope] > balanced[mir]", "no experiment 'balenced'; did you mean 'balanced'"),
        ("balanced[copy, split-mnist] > balanced[mir]", "balanced has no cell with copy and split-mnist"),
    ],
)
def test_a_mistyped_check_is_one_sentence(line, said):
    with pytest.raises(ValueError, match=said):
        verdict(line, [])


def test_every_claim_speaks_of_cells_that_there_are_and_says_where_the_paper_makes_it():
    empty = tables([])
    for claim in claims():
        assert claim.source.startswith(("Section", "Table"))
        assert judge(claim, empty).verdict == "not measured yet"


def test_the_papers_own_numbers_bear_out_what_its_text_says_of_table_2():
    """The checks against the paper itself: runs that all end at the printed means, with a hair between seeds."""
    filled = tables(of_experiment("balanced", spread=0.01))
    of_table_2 = [claim for claim in claims() if all("balanced" in check.text for check in claim.checks)]
    of_table_2 = [claim for claim in of_table_2 if "imbalanced" not in claim.checks[0].text]
    assert len(of_table_2) >= 8
    for claim in of_table_2:
        for finding in judge(claim, filled).findings:
            if finding.difference is not None:
                assert finding.verdict.startswith("holds"), (finding.check.text, finding.difference)
                if finding.check.points is not None:
                    assert abs(finding.difference.mean - finding.check.points) < 1, finding.check.text
