"""The site of docs/ builds without warnings; a broken link or a page missing from the navigation gives one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(root, out):
    """Not --quiet, under which --strict counts no warnings."""
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(out),
    ]
    return subprocess.run(words, cwd=root, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_link_inside_the_site_leads_somewhere(site):
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^":#?]+)[#?"]', text):
            if page.name != "404.html":
                assert (page.parent / link).resolve().exists(), f"{page.name}: {link}"


def test_no_page_asks_another_server_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//', text), (
            page
        )


def test_every_formula_is_set(site):
    text = (site / "metrics.html").read_text("utf-8")
    assert text.count("<math") > 40
    assert "arithmatex" not in text


def test_the_api_pages_have_every_learner_and_fence_the_examples(site):
    from everlearn.learners import registry

    text = (site / "api" / "learners.html").read_text("utf-8")
    for kind in registry().values():
        assert f'id="{kind.__module__}.{kind.__name__}"' in text
    assert "<blockquote>" not in text


MISTAKES = {
    "a link to no page": ("index.md", "\n[nowhere](no-such-page.md)\n", "no-such-page.md"),
    "a link to no heading": ("index.md", "\n[nowhere](live.md#no-such-heading)\n", "no-such-heading"),
    "a page that is not in the nav": ("forgotten.md", "# Forgotten\n", "forgotten.md"),
}


@pytest.fixture
def copied(tmp_path):
    """The sources of the site, without the API pages, which take most of the time."""
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "REPRODUCIBILITY.md", tmp_path)
    text = (ROOT / "mkdocs.yml").read_text("utf-8").replace("docs/hooks/api.py, ", "")
    text = re.sub(r"  - API:.*?(?=\n\n)", "", text, flags=re.S)
    (tmp_path / "mkdocs.yml").write_text(text.partition("  - mkdocstrings:")[0], "utf-8")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_the_build_by_name(mistake, copied):
    name, text, named = MISTAKES[mistake]
    with open(copied / "docs" / name, "a", encoding="utf-8") as page:
        page.write(text)
    done = build(copied, copied / "site")
    assert done.returncode == 1
    assert named in done.stderr
