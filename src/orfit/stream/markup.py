"""Pieces of a page of HTML. Text becomes markup here alone, so that none is taken for markup."""

import html
from collections.abc import Iterable, Sequence
from typing import Any, NewType

Html = NewType("Html", str)  # markup; all else is text, and is escaped before it becomes some

LONGEST = 300  # characters of a text that are shown
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is loaded

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #59616b; --paper: #f6f7f8;
  --card: #fff; --rule: #d9dde2; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #a3acb7; --paper: #14171a; --card: #1d2125;
    --rule: #363c43; --mark: #6cb8e8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
header, main { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
p { max-width: 46rem; margin: 0 0 .75rem; }
header p { max-width: none; }
section { margin: 1.25rem 0; padding: 1rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .5rem; }
.soft, figcaption, caption { color: var(--soft); font-size: .9rem; }
.advice { border-left: .25rem solid var(--mark); padding-left: .75rem; }
.figures { display: grid; gap: 1rem; margin-bottom: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
.beside { display: flex; flex-wrap: wrap; gap: 0 1rem; }
.beside > * { min-width: 0; flex: 3 1 min(100%, 40rem); }
.beside > * + * { flex: 2 1 min(100%, 24rem); }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; background: #fff;
  border: 1px solid var(--rule); border-radius: .35rem; }
figcaption { margin-top: .35rem; }
figcaption strong { color: var(--ink); }
.box { overflow-x: auto; max-width: 100%; margin: 0 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .25rem; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
thead th { font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; min-width: 7.5rem; max-width: 22rem; overflow-wrap: anywhere; }
td { max-width: 44rem; }
.numbers td, .numbers thead th:not(.name) { text-align: right; white-space: nowrap; }
.numbers td.name { text-align: left; white-space: normal; min-width: 6rem; max-width: 22rem;
  overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  header, main { padding: 0 .6rem; }
  header { padding-top: 1rem; }
  section { padding: .75rem; }
}
tr.first > th, tr.first > td { font-weight: 700; }
"""


def text(value: object) -> Html:
    """As it is to be read: escaped, cut where it is very long."""
    said = str(value)
    return _escaped(said if len(said) <= LONGEST else said[: LONGEST - 1] + "…")


def _escaped(said: str) -> Html:
    """What has no shape of its own is shown as �."""
    seen = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in said)
    return Html(html.escape("".join(seen)))


def say(*sentences: str, kind: str = "") -> Html:
    """A paragraph. kind: how it looks."""
    told = _escaped(" ".join(sentences))
    return Html(f'<p class="{kind}">{told}</p>\n' if kind else f"<p>{told}</p>\n")


def section(title: str, parts: Iterable[Html]) -> Html:
    return Html(f"<section>\n<h2>{text(title)}</h2>\n{''.join(parts)}</section>\n")


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    names: int = 1,
    numbers: bool = True,
    marked: int = 0,
) -> Html:
    """Rows of texts. names: how many columns at the left hold names.

    numbers: whether the others hold numbers, which stand at the right. marked: how many of the
    first rows matter most.
    """
    head = "".join(_cell("th", name, i < names, "col") for i, name in enumerate(columns))
    body = []
    for i, row in enumerate(rows):
        first, *others = row
        cells = [_cell("th", first, True, "row")]
        cells += [_cell("td", each, j < names, "") for j, each in enumerate(others, 1)]
        opened = '<tr class="first">' if i < marked else "<tr>"
        body.append(f"{opened}{''.join(cells)}</tr>\n")
    kind = ' class="numbers"' if numbers else ""
    return Html(
        f'<div class="box" role="region" tabindex="0" aria-label="{text(caption)}">'
        f"<table{kind}>\n<caption>{text(caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody></table></div>\n"
    )


def _cell(tag: str, value: object, name: bool, scope: str) -> str:
    kind = ' class="name"' if name else ""
    scope = f' scope="{scope}"' if scope else ""
    inside = f"<bdi>{text(value)}</bdi>" if name else text(value)
    return f"<{tag}{kind}{scope}>{inside}</{tag}>"


def figure(svg: Html, title: str, caption: str) -> Html:
    """title: what it shows; its own words stand below it."""
    below = f"<strong>{text(title)}</strong> {_escaped(caption)}"
    return Html(f"<figure>{svg}<figcaption>{below}</figcaption></figure>\n")


def beside(left: Iterable[Html], right: Html) -> Html:
    """One beside the other, where there is room."""
    parts = (f"<div>{part}</div>\n" for part in ("".join(left), right))
    return Html(f'<div class="beside">\n{"".join(parts)}</div>\n')


def figures(made: Iterable[Html]) -> Html:
    """Side by side, where there is room."""
    return Html(f'<div class="figures">\n{"".join(made)}</div>\n')


def page(title: str, below: str, parts: Iterable[Html]) -> str:
    """The whole of it. below: what stands below the title."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1><bdi>{text(title)}</bdi></h1>\n{say(below, kind='soft')}</header>\n"
        f"<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )
