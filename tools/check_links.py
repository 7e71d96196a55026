"""Check that the target of every link and image of the built site exists."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {given[name] or "" for name in ("id", "name") if name in given}
        self.links |= {given[name] or "" for name in ("href", "src") if name in given}


def find_broken_links(site: Path) -> list[str]:
    site = site.resolve()
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:  # another site
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site) or not target.exists():
                found.append(f"{path.name}: the target of {link} is missing")
            elif parts.fragment and target in pages:
                place = unquote(parts.fragment)
                if place not in pages[target].places and not place.startswith("__"):
                    found.append(f"{path.name}: the anchor of {link} is missing")
    return found


if __name__ == "__main__":
    faults = find_broken_links(Path(sys.argv[1]))
    print("\n".join(faults) or "all links are valid")
    sys.exit(bool(faults))
