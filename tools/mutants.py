"""Mutation testing: how many faults, put into the source one at a time, does a test suite find?

`make` chooses mutants, `run` tests each in a copy of the tree, `report` compares two suites. `run`
first tests the unmutated copy, which sets the timeout.
"""

import argparse
import ast
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import count, pairwise
from pathlib import Path

GROUPS = (  # share of 40 mutants, files
    (14, "step.py learners/*.py filtering/*.py merge/*.py"),
    (13, "memory/*.py store/*.py small_linalg.py state.py"),
    (13, "stream/*.py"),
)
OPTIONS = (
    *(("tree", str(Path(__file__).resolve().parent.parent), ""), ("out", "mutants.json", "")),
    *(("count", 40, "mutants"), ("seed", 0, ""), ("minutes", 90.0, "begin no mutant later")),
    *(("suite", "tests", "arguments of pytest"), ("only", "", "ids, separated by commas")),
    ("python", sys.executable, "interpreter of the tests"),
)
NOT_COPIED = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "results", "site")
SYMBOLS = {
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.And: ("and", "or")},
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")},
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
# Exchanged arguments change nothing in these calls, or are a TypeError at once.
FIXED_ORDER = {*EXTREMES, "array_equal", "allclose", "hypot", "isinstance", "getattr", "cast"}
# Calls of these methods, and keywords of these names, change no result.
WITHOUT_EFFECT = {"debug", "info", "warning", "collect", "maxsize", "wbits", "linewidth", "ncols"}
KEYS = ("id", "file", "line", "status", "seconds", "by")
LITERALS = (ast.List, ast.Tuple, ast.JoinedStr)  # a TypeError at once in other arithmetic


def name_of(node: ast.AST) -> str:
    """Return the last part of a dotted name, without its subscript; "" for other expressions."""
    node = getattr(node, "value", node) if isinstance(node, ast.Subscript) else node
    return getattr(node, "attr", "") or getattr(node, "id", "")


def is_exempt(node: ast.AST) -> bool:
    """Return whether nothing inside a node is mutated: types, messages, layout, 2**20."""
    match node:
        case ast.FunctionDef(name=name, decorator_list=marks):
            return "overload" in map(name_of, marks) or name in {"__repr__", "__str__"}
        case ast.ClassDef(bases=bases):
            return "Protocol" in map(name_of, bases)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) | ast.keyword(arg=name):
            return name in WITHOUT_EFFECT
        case (
            ast.If(test=ast.Name(id="TYPE_CHECKING"))
            | ast.BinOp(left=ast.Constant(), right=ast.Constant())
            | ast.UnaryOp(operand=ast.Constant(value=1))  # reshape(-1)
            | ast.Assign(targets=[ast.Name(id="why")])  # part of a message
            | (ast.Raise() | ast.Assert() | ast.ImportFrom() | ast.JoinedStr())
        ):
            return True
    return False


class Source:
    """One file as text with one character per byte, because ast counts columns in bytes."""

    def __init__(self, raw: bytes) -> None:
        self.text, self.tree, self.starts = raw.decode("latin-1"), ast.parse(raw), [0]
        for line in self.text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def sites(self, node, function="", returns="", statement=0):
        """Yield (statement, function, kind, start, end, replacement) in and below a node."""
        if is_exempt(node):
            return
        statement = self.span(node)[0] if isinstance(node, ast.stmt) else statement
        for kind, (start, end), new in (*self.operators(node), *self.others(node, returns)):
            # Found by any test: drop in __init__; by none in particular: tuned constants.
            if (kind, function.split(".")[-1]) not in {("drop", "__init__"), ("constant", "")}:
                yield statement, function or "<module>", kind, start, end, new
        below = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function, below = f"{function}.{node.name}".lstrip("."), node.body
            returns = name_of(getattr(node, "returns", None))
        elif isinstance(node, ast.AnnAssign):
            below = [node.value] if node.value else []
        for child in below:
            yield from self.sites(child, function, returns, statement)

    def operators(self, node):
        """Yield (kind, span, replacement) for the operators of one expression."""
        kind, triples = "arithmetic", []
        match node:
            case ast.Compare(left=left, ops=ops, comparators=rest):
                kind, triples = "comparison", zip([left, *rest], ops, rest, strict=False)
            case ast.BoolOp(op=op, values=values):
                kind, triples = "boolean", ((a, op, b) for a, b in pairwise(values))
            case ast.BinOp(left=a, op=op, right=b) | ast.AugAssign(target=a, op=op, value=b):
                triples = [(a, op, b)]
        for left, op, right in triples:
            old, new = SYMBOLS.get(type(op), ("", ""))
            types = {type(getattr(side, "value", None)) for side in (left, right)}
            typed = str in types or isinstance(left, LITERALS) or isinstance(right, LITERALS)
            # No test meets a bound exactly that is a real number.
            real = old[:1] in ("<", ">") and float in types
            if old and not real and not (kind == "arithmetic" and typed):
                at = self.text.index(old, self.span(left)[1], self.span(right)[0])
                yield kind, (at, at + len(old)), new

    def others(self, node, returns: str):
        """Yield (kind, span, replacement) for constants, calls, conditions and statements."""
        match node:
            case ast.Constant(value=int(n)) if not isinstance(n, bool) and n < 1000:
                yield "constant", self.span(node), str(n + 1)
            case ast.Constant(value=float(x)) if x == 0 or 1e-8 < x < 1e8:
                yield "constant", self.span(node), repr(2 * x or 1.0)
            case ast.Call(func=func, args=args):
                name, stop = name_of(func), self.span(func)[1]
                if name in EXTREMES:
                    yield "min/max", (stop - len(name), stop), EXTREMES[name]
                for one, two in pairwise(args):  # others are of different types, mostly
                    (start, gap), (after, end) = self.span(one), self.span(two)
                    a, b = self.text[start:gap], self.text[after:end]
                    alike = type(one) is type(two) and a != b and "self" not in {a, b}
                    if alike and name not in FIXED_ORDER and not isinstance(one, ast.Starred):
                        yield "arguments", (start, end), b + self.text[gap:after] + a
            case ast.If(test=test) | ast.IfExp(test=test):
                start, end = self.span(test)
                if isinstance(node, ast.IfExp) or not isinstance(node.body[-1], ast.Raise):
                    yield "negate", (start, end), f"not ({self.text[start:end]})"
            case ast.Return(value=ast.expr() as value) if returns in {"bool", "float"}:
                if not isinstance(value, ast.Constant):
                    yield "return", self.span(value), "None"
            case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute()]):
                yield "drop", self.span(node), "pass"


def choose(number: int, seed: int, tree: Path) -> list[dict]:
    """Choose mutants: one per statement, two per function; first the statement, then the kind."""
    rng, mutants, counts, share = random.Random(seed), [], Counter(), 0
    for part, patterns in GROUPS:
        share, statements = share + part, {}
        for file in sorted(f for one in patterns.split() for f in tree.glob(f"src/orfit/{one}")):
            source = Source(file.read_bytes())
            for statement, *site in source.sites(source.tree):
                statements.setdefault((file, statement, source.text), []).append(site)
        for key in rng.sample(sorted(statements), len(statements)):
            (file, _, text), sites = key, statements[key]
            kind = rng.choice(sorted({site[1] for site in sites}))
            function, _, start, end, new = rng.choice([site for site in sites if site[1] == kind])
            if len(mutants) < number * share // 40 and counts[file, function] < 2:
                counts[file, function] += 1
                first, last = text.rfind("\n", 0, start) + 1, text.index("\n", end)
                lines = text[first:last], text[first:start] + new + text[end:last], new
                before, after, new = (line.encode("latin-1").decode() for line in lines)
                where = {"file": str(file.relative_to(tree)), "line": text[:start].count("\n") + 1}
                what = {"function": function, "kind": kind, "before": before, "after": after}
                place = {"start": start, "end": end, "replacement": new}  # in bytes
                mutants.append({"id": len(mutants), **where, **what, **place})
    return mutants


def apply(mutant: dict, tree: Path) -> bool:
    """Write a mutant into a copy; in a changed file its lines must still occur exactly once."""
    file, before = tree / mutant["file"], mutant["before"].encode()
    raw = file.read_bytes() if file.exists() else b""
    first = raw.rfind(b"\n", 0, mutant["start"]) + 1
    if not raw.startswith(before, first):
        if raw.count(before) != 1:
            return False
        first = raw.index(before)
    file.write_bytes(raw[:first] + mutant["after"].encode() + raw[first + len(before) :])
    return True


def test(mutant: dict, options: argparse.Namespace, work: Path, limit: float) -> dict:
    """Run the suite on a fresh copy; "by" is the first failing test, or pytest's last line."""
    copy, start = work / "tree", time.monotonic()
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(options.tree, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    place = {"cwd": copy, "start_new_session": True}
    place["env"] = os.environ | {"PYTHONPATH": f"{copy}/src"}
    if mutant["file"] and not apply(mutant, copy):
        return {**mutant, "status": "absent", "seconds": 0, "by": ""}
    if not mutant["file"]:
        where = [options.python, "-c", "import orfit; print(orfit.__file__)"]
        found = subprocess.run(where, check=True, text=True, stdout=subprocess.PIPE, **place).stdout
        assert Path(found).is_relative_to(copy), found
    command = f"-m pytest -x -n 2 --dist worksteal -p no:cacheprovider {options.suite}"
    with (work / "log").open("w+", errors="replace") as log:
        command = [options.python, *shlex.split(command)]
        run = subprocess.Popen(command, stdout=log, stderr=log, **place)
        try:
            status = "found" if run.wait(limit) else "survived"
        except subprocess.TimeoutExpired:
            status = "timeout"
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        log.seek(0)
        lines = [line for line in log.read().splitlines() if line] or [""]
    failed = [
        line.split(" ", 1)[1].split(" - ")[0] for line in lines if re.match("(FAILED|ERROR) ", line)
    ]
    by = (failed or lines[-1:])[0] if status == "found" else ""
    return {**mutant, "status": status, "seconds": round(time.monotonic() - start, 1), "by": by}


def read(file: Path | None) -> dict[int, dict]:
    """Return the results in a file of one JSON object per line, by id."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    return {result["id"]: result for result in map(json.loads, lines)}


def run(options: argparse.Namespace) -> None:
    """Test the unmutated tree, id -1, and then each mutant, until the time is over."""
    mutants, end = json.loads(options.file.read_text()), time.monotonic() + 60 * options.minutes
    results = Path(options.out).resolve()
    work = Path(tempfile.gettempdir(), f"mutants{results}".replace("/", "-"))
    work.mkdir(exist_ok=True)
    only = {int(one) for one in options.only.split(",")} if options.only else range(len(mutants))
    for mutant in [{"id": -1, "file": ""}, *(one for one in mutants if one["id"] in only)]:
        done, left = read(results), end - time.monotonic()
        if mutant["id"] in done:
            continue
        limit = 3 * done[-1]["seconds"] + 120 if done else 3600
        result = test(mutant, options, work, min(limit, left)) if left > 0 else {}
        if result.get("status", "timeout") == "timeout" and time.monotonic() >= end:
            break
        if not done and result["status"] != "survived":
            sys.exit(f"the suite fails without a mutant: {result['by']} (see {work}/log)")
        with results.open("a") as out:
            out.write(json.dumps(result | {"of": len(mutants)}) + "\n")
        print(*(result.get(key) for key in KEYS), flush=True)
    print(f"reached {len(read(results).keys() - {-1})} of {len(mutants)} mutants")


def report(options: argparse.Namespace) -> None:
    """Print what became of each mutant, and how many faults only the old suite finds."""
    new, old, counts = read(options.file), read(options.old), Counter()
    for key, one in sorted(new.items())[1:]:
        change = [" ".join(one[side].split()) for side in ("before", "after")]
        same = max(0, next(n for n in count() if change[0][:n] != change[1][:n]) - 20)
        change = " -> ".join(side[same : same + 50] for side in change)
        verdict, other = one["by"] or one["status"], old.get(key, {"status": "not run", "by": ""})
        if one["status"] == "survived":
            verdict += f"; old: {other['by'] or other['status']}"
            counts[other["status"]] += 1
        else:
            counts["absent" if one["status"] == "absent" else "new"] += 1
        print(f"{key:3} {one['file']}:{one['line']}  {one['kind']}  {change}  | {verdict}")
    a, b = counts["new"], counts["found"] + counts["timeout"]
    print(
        f"reached {len(new) - 1} of {new[-1]['of']}; found {a} by the new suite, {b} more only by "
        f"the old one: A/(A+B) = {100 * a / max(1, a + b):.0f}%\n(found by neither: "
        f"{counts['survived']}, not run by old: {counts['not run']}, absent: {counts['absent']})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["make", "run", "report"])
    parser.add_argument("file", type=Path, nargs="?", help="mutants to run, or results to report")
    parser.add_argument("old", type=Path, nargs="?", help="results of the old suite")
    for name, default, text in OPTIONS:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    options = parser.parse_args()
    if options.command == "make":
        mutants = choose(options.count, options.seed, Path(options.tree))
        Path(options.out).write_text(json.dumps(mutants, indent=1, ensure_ascii=False))
    else:
        {"run": run, "report": report}[options.command](options)


if __name__ == "__main__":
    main()
