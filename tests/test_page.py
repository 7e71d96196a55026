"""The page that `orfit report` writes: what it says, and how a browser shows it."""

import functools
import html.parser
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

from orfit.stream import page, saved
from orfit.stream.block import Block, Columns, Position
from orfit.stream.bookmarks import Input
from orfit.stream.encoding import Choice
from orfit.stream.session import Session
from orfit.stream.setup import Setup

SCRIPT = "<script>alert('a')</script>"
MATH = "$\\frac{x}$ & 日本 \udcff"  # the last is half a character, as files may hold it
VOID = {"meta", "link", "br"}
WIDTHS = 1280, 390
SECTIONS = [
    "How well rows were predicted",
    "How it is doing",
    "How sure it was",
    "What was forgotten",
    "What is kept in memory",
    "Which settings were chosen",
    "What became of each column",
    "Where this comes from",
]


def table(n, targets, rng, wild=False):
    """Columns a, b and one with a name for trouble, and targets that are made of them."""
    X = rng.standard_normal((n, 3)) * (1e4 if wild else 1.0)
    columns = dict(zip(("a", "b", SCRIPT), X.T, strict=True))
    for i, name in enumerate(targets):
        columns[name] = (10.0**i) * (X @ [1.0, 2.0, 3.0 - i] / (1e4 if wild else 1.0) + 50)
        columns[name] += 10.0**i * rng.standard_normal(n)
    return columns


def block(columns):
    n = len(next(iter(columns.values())))
    arrays = {name: pa.array(values) for name, values in columns.items()}
    place = np.arange(n)
    return Block(
        Columns(arrays), "rows.csv", "line", place + 2, place, place, Position(), Position(0, n)
    )


def learned(columns, choice, options, every=100):
    """A session that has learned these columns, so many rows at a time."""
    whole = block(columns)
    session = Session.begun(choice, options, [whole])
    left = whole
    while len(left) > every:
        first, left = left.split(every)
        session.learn([first])
    session.learn([left])
    session.bookmarks.files.append(Input(f"/data/{SCRIPT}.csv", whole.end, 0, ""))
    return session


def amounts(*names, rows=450, **settings):
    """Of targets that are numbers."""
    options = Setup(**{"features": "raw", "window": 200} | settings)
    return learned(table(rows, names, np.random.default_rng(3)), Choice(names), options)


def diverged():
    made, rng = amounts("y", versus=("sgd",)), np.random.default_rng(4)
    for _ in range(3):
        made.learn([block(table(100, ["y"], rng, wild=True))])
    assert made.out == {"sgd": 512}
    return made


def gaps():
    """A history in which numbers are missing, or are not what they should be."""
    made = amounts("y", rows=1000, memory=2, noise=1.0, forgetting=1.0)
    lines = made.history.lines
    lines[0] = {"rows": None}
    lines[1] = dict.fromkeys(lines[1]) | {"rows": 200}
    lines[2] |= {"rmse.orfit": [None], "change": [1e300, None], "inside": 3.0, "noise": [1.0]}
    made.latest[5] = np.nan
    return made


def classes(*kinds, **settings):
    """Of a target that is one of these."""
    columns = table(450, [], np.random.default_rng(3))
    spread = np.digitize(columns["a"], np.linspace(-2, 2, len(kinds) + 1)[1:-1])
    spread[: len(kinds)] = np.arange(len(kinds))
    columns["y"] = [kinds[i] for i in spread]
    options = Setup(features="raw", window=200, **settings)
    return learned(columns, Choice(("y",), classify=True), options)


MAKERS = {
    "one": lambda: amounts(
        MATH, features="fourier:20", memory=5, forgetting=1.0, holdout=0.1, versus=("rls",)
    ),
    "exact": lambda: amounts("y", memory="exact"),
    "several": lambda: amounts("level", SCRIPT + "2", holdout=0.2, versus=("sgd",)),
    "few": lambda: amounts("y", rows=60),
    "no meter": lambda: amounts("y", probes=0),
    "diverged": diverged,
    "gaps": gaps,
    "two": lambda: classes("no", SCRIPT, holdout=0.1),
    "many": lambda: classes(*(f"k{i}" for i in range(30))),
    "single": lambda: classes("same"),
}
CASES = list(MAKERS)


@functools.cache
def session(case):
    return MAKERS[case]()


@functools.cache
def shown(case):
    return page.html(session(case), f"{case}<&>.orfit")


class Seen(html.parser.HTMLParser):
    """Tags as they are opened and closed, ids, headings, the words that are read."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.words = [], [], [], []
        self.headings, self.svgs = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "svg":
            self.svgs.append(attributes)
        if tag in ("h1", "h2"):
            self.headings.append([tag, ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.headings and {"h1", "h2"} & {*self.open}:
            self.headings[-1][1] += data


@pytest.mark.parametrize("case", CASES)
def test_it_is_whole(case):
    text = shown(case)
    seen = Seen(text)
    assert not seen.open
    assert "script" not in seen.tags
    assert "img" not in seen.tags
    assert 'lang="en"' in text
    assert len({*seen.ids}) == len(seen.ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', text)
    assert used
    assert {*used} <= {*seen.ids}
    for attributes in seen.svgs:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 20
    levels = [level for level, _ in seen.headings]
    assert levels == ["h1"] + ["h2"] * (len(levels) - 1)
    assert seen.headings[0][1].startswith(f"{case}<&>.orfit: ")
    assert "nan" not in re.findall(r"[a-z]+", " ".join(seen.words).lower())


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_loaded(case):
    text = shown(case)
    assert "://" not in text
    assert "src=" not in text
    assert "@import" not in text
    assert {*re.findall(r"url\(.", text)} <= {"url(#"}
    assert {*re.findall(r'href="[^"]', text)} <= {'href="#', 'href="d'}
    assert "default-src 'none'" in text


def titles(case):
    return [title for level, title in Seen(shown(case)).headings if level == "h2"]


def test_sections():
    assert titles("one") == SECTIONS
    assert titles("no meter") == [title for title in SECTIONS if title != "What was forgotten"]
    assert titles("two") == [title for title in SECTIONS if title != "How sure it was"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("one", ["never learned", "RLS", "running mean", "95 %", "fourier:20"]),
        ("one", ["Dropped energy", "S/R", "Directions held", "noise", "tail", "saved by"]),
        ("exact", ["keeps what is known of all parameters", "What is left to know"]),
        ("several", ["RMSE over time: level", "standard deviations of each target"]),
        ("few", ["There is nothing to draw yet", "The latest rows"]),
        ("diverged", ["SGD diverged at row 512, and is cut off", "has left the scale"]),
        ("two", ["Accuracy over time", "kappa", "majority", "never learned"]),
        ("many", ["the 20 most frequent of 30"]),
        ("single", ["target: 1 classes, same"]),
    ],
)
def test_it_says(case, said):
    words = " ".join(" ".join(Seen(shown(case)).words).split())
    for each in said:
        assert each in words


def test_figures():
    """How many there are of each."""
    counts = {case: shown(case).count("<svg") for case in CASES}
    assert counts["few"] == 2  # the latest rows, what is left to know
    assert counts["several"] >= counts["exact"] + 2
    assert counts["no meter"] == counts["exact"] - 2


@pytest.mark.parametrize("case", ["one", "several", "two"])
def test_text_is_text(case):
    text = shown(case)
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#x27;a&#x27;)&lt;/script&gt;" in text
    text.encode()  # also where a name is none of Unicode's
    if case == "one":
        assert "$\\frac{x}$ &amp; 日本" in text


@pytest.mark.slow
def test_the_same_bytes_again(tmp_path):
    """From a file, in another process, by the command, with another order of sets."""
    path, made = tmp_path / "single.orfit", tmp_path / "page.html"
    saved.save(session("single"), path)
    command = [sys.executable, "-m", "orfit", "report", str(path), "-o", str(made)]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert made.read_text(encoding="utf-8") == page.html(session("single"), path.name)


def test_other_settings_of_matplotlib_change_nothing():
    import matplotlib as mpl

    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30, "svg.fonttype": "none"}):
        assert page.html(session("few"), "few<&>.orfit") == shown("few")
        assert mpl.rcParams["font.size"] == 30


BROWSERS = "chromium", "chromium-browser", "google-chrome"
browser = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(browser is None, reason="there is no chromium to look with")
MEASURE = """<script>addEventListener("load", () => {
  const sizes = [...document.querySelectorAll("svg")].map(svg => {
    const box = svg.getBoundingClientRect(), drawn = svg.getBBox();
    return [box.left, box.right, box.height, drawn.width, drawn.height].map(Math.round).join(" ");
  });
  const root = document.documentElement;
  const told = [innerWidth, root.scrollWidth, performance.getEntriesByType("resource").length];
  parent.postMessage([told.join(" "), ...sizes].join(";"), "*");
})</script>"""
FRAMES = """<!DOCTYPE html><title>frames</title><ul></ul><script>addEventListener("message", e =>
  document.querySelector("ul").append(Object.assign(
    document.createElement("li"), {textContent: e.data})))</script>"""


def look(path, profile, *options):
    """What chromium prints of a page."""
    quiet = ["gpu", "quic", "background-networking", "component-update", "sync", "extensions"]
    command = [browser, "--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars"]
    command += [f"--disable-{each}" for each in quiet]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
    command += [f"--window-size={max(WIDTHS)},1600", *options, path.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode()


@pytest.mark.slow
@needs_browser
def test_in_a_browser(tmp_path):
    """Figures are as wide as there is room, nothing is wider than the window, or loaded.

    In frames of the width of a desktop and of a phone, where the page tells of itself: for that it
    is let run a script.
    """
    inner, outer = tmp_path / "inner.html", tmp_path / "outer.html"
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", shown("one"))
    inner.write_text(text.replace("</head>", f"{MEASURE}</head>"), encoding="utf-8")
    frame = '<iframe src="inner.html" style="border:0" width="{}" height="900"></iframe>'
    outer.write_text(FRAMES + "".join(frame.format(width) for width in WIDTHS))
    printed = look(outer, tmp_path / "p", "--dump-dom", "--virtual-time-budget=3000")
    told = re.findall("<li>(.*?)</li>", printed)
    pages = [[[int(n) for n in part.split()] for part in each.split(";")] for each in told]
    assert {page[0][0] for page in pages} == {*WIDTHS}
    for (width, scrolled, loaded), *figures in pages:
        assert scrolled == width
        assert loaded == 0
        assert len(figures) == shown("one").count("<svg")
        for left, right, height, drawn_width, drawn_height in figures:
            assert 0 <= left < right <= width
            assert right - left > 0.85 * min(width, 440)
            assert height > 0.5 * (right - left)
            assert drawn_width > 300
            assert drawn_height > 180


@pytest.mark.slow
@needs_browser
def test_as_it_is_seen(tmp_path):
    """As it is written, and without a network: a figure's blue line is there."""
    from matplotlib import image

    path, made = tmp_path / "page.html", tmp_path / "page.png"
    path.write_text(shown("one"), encoding="utf-8")
    look(path, tmp_path / "p", f"--screenshot={made}")
    pixels = image.imread(made)[..., :3]
    assert pixels.shape[1] == WIDTHS[0]
    line = np.abs(pixels - [0, 0x72 / 255, 0xB2 / 255]).max(axis=2) < 0.02
    assert line.sum() > 200
