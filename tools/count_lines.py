"""Count the lines of code of the package: no blank lines, comments and docstrings."""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "orfit"
CORE = ("learners", "memory", "store", "merge", "meter", "filtering", "")  # "": top-level modules
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count_code_lines(source: str) -> int:
    """Count the lines that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def count_c_lines(source: str) -> int:
    """Count the lines of C that hold more than a comment."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)
    return sum(bool(line.strip()) for line in code.splitlines())


def count_cython_lines(source: str) -> int:
    """Count the lines of Cython that are neither blank, nor a comment or docstring."""
    code = re.sub(r'^\s*""".*?"""', "", source, flags=re.DOTALL | re.MULTILINE)
    lines = map(str.strip, code.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def main() -> None:
    """Print the lines of each part of the package."""
    parts: Counter[str] = Counter()
    for file in ROOT.rglob("*.py"):
        path = file.relative_to(ROOT)
        parts[path.parts[0] if len(path.parts) > 1 else ""] += count_code_lines(file.read_text())
    if "--parts" in sys.argv:
        for name, lines in sorted(parts.items()):
            print(f"{name or 'top-level modules':<20}{lines:>7,}")
    core = sum(parts[name] for name in CORE)
    print(f"lines of code: {core:,} in the core, {parts.total():,} in src/orfit")
    c = sum(count_c_lines(file.read_text()) for file in (ROOT / "core").glob("*.[ch]"))
    cython = sum(count_cython_lines(file.read_text()) for file in (ROOT / "core").glob("*.pyx"))
    print(f"and of src/orfit/core: {c:,} of C, {cython:,} of Cython")


if __name__ == "__main__":
    main()
