"""Every Python block of the README and of docs/ runs, page by page, top to bottom."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXTRAS = {
    "torch": "torch",
    "sklearn": "sklearn",
    r"orfit\.stream": "pyarrow",
    "river": "river",
    "dask": "dask",
}


# The guide is run below, where what it prints is looked at: it is the longest.
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem in ("README", "extending") else pytest.mark.slow)
        for page in PAGES
        if page.name != "guide.md"
    ],
    ids=lambda page: page.name,
)
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope, blocks = {}, BLOCK.findall(page.read_text())
    for name, package in EXTRAS.items():  # a page that shows an extra needs it
        if any(re.search(rf"^\s*(?:import|from) {name}\b", b, re.MULTILINE) for b in blocks):
            pytest.importorskip(package)
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


def test_the_guide_says_what_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope, page = {}, (ROOT / "docs" / "guide.md").read_text()
    for block in BLOCK.findall(page):
        exec(block, scope)
    printed = capsys.readouterr().out
    begins = "m =|white:|decaying:|blocks of|rank|λ =|error:|95 %|S/R|dropped|Residuals"
    claims = re.findall(rf"^# ((?:{begins}) .*)$", page, re.MULTILINE)
    assert len(claims) == 19
    for claim in claims:
        assert claim in printed


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_says_what_its_example_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(BLOCK.findall((ROOT / "README.md").read_text())[0], {})
    kept, conflict = map(float, capsys.readouterr().out.split())
    assert abs(kept) < 1e-9
    assert conflict == pytest.approx(5)


def test_the_exponential_of_the_docs_is_found(tmp_path, monkeypatch):
    scope = {}
    exec(BLOCK.findall((ROOT / "docs" / "extending.md").read_text())[0], scope)
    assert scope["learner"].w == pytest.approx([2, 0.5], abs=0.01)
