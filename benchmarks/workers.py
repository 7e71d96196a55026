"""Processes in which bursts run: one of this environment, one of the last version with numba."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "last-numba"
TAG, COMMIT = "last-numba", "d285ef7"
THREADS = ("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1")


def install(folder=CACHE):
    """Check out the last version with numba and install it; return its Python interpreter."""
    source, environment = folder / "source", folder / "venv"
    python, ready = environment / "bin" / "python", environment / "ready"
    git = ["git", "-C", str(ROOT)]
    if not source.exists():
        tag = subprocess.run([*git, "rev-parse", "--verify", "--quiet", TAG], check=False)
        commit = COMMIT if tag.returncode else TAG
        # --force: git still lists a worktree whose folder was deleted.
        add = [*git, "worktree", "add", "--force", "--detach", str(source), commit]
        subprocess.run(add, check=True)
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", f"{source}[fast]"], check=True)
        ready.touch()
    return python


class Worker:
    """A process that runs bursts of ways; one case at a time has learners."""

    def __init__(self, python, is_last=False):
        command = [python, __file__]
        environment = os.environ | ONE_THREAD
        if is_last:
            environment = {
                name: value for name, value in environment.items() if name != "PYTHONPATH"
            }
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.process = subprocess.Popen(command, env=environment, **pipe)
        self.package = json.loads(self.process.stdout.readline())

    def run_burst(self, case, way):
        """Return the seconds per row, or the message of an error."""
        self.process.stdin.write(json.dumps([case, way]) + "\n")
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.communicate()


def main():
    """Read numbers of cases and names of ways; print the seconds of a burst for each."""
    from cases import CASES, Way

    import orfit

    warnings.simplefilter("ignore")
    if hasattr(orfit, "warm_up"):
        orfit.warm_up("float64")
    print(json.dumps([orfit.__file__, orfit.__version__]), flush=True)
    current, ways = None, {}
    for line in sys.stdin:
        case, way = json.loads(line)
        if case != current:
            current, ways = case, {}  # the memory of other cases is free
        try:
            if way not in ways:
                ways[way] = Way(CASES[case], way)
            result = ways[way].run_burst()
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
