"""Learn a stream with a process that is killed, continue, and compare with an undisturbed run."""

import subprocess
import sys
import time
from pathlib import Path

STREAM = "src/orfit/datasets/weather.csv.gz"
COMMAND = [
    "orfit",
    "learn",
    STREAM,
    "--target",
    "temp",
    "--features",
    "lags:6",
    "--missing",
    "mean",
]


def print_title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def run(*command: str) -> None:
    print("$ " + " ".join(command), flush=True)
    folder = Path(sys.executable).parent
    subprocess.run([str(folder / command[0]), *command[1:]], check=True)


def run_and_kill(*command: str, checkpoint: Path) -> None:
    """Start a command, and kill it when its checkpoint exists."""
    print("$ " + " ".join(command), flush=True)
    folder = Path(sys.executable).parent
    process = subprocess.Popen([str(folder / command[0]), *command[1:]])
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    checkpoint, whole = out / "weather.orfit", out / "undisturbed.orfit"
    for path in (checkpoint, whole):
        path.unlink(missing_ok=True)
    print_title(
        "The next hour's temperature, from the hours before: each row is predicted, then learned."
    )
    run_and_kill(
        *COMMAND, "--checkpoint", str(checkpoint), "--every", "2000", checkpoint=checkpoint
    )
    print_title("The process was killed (kill -9). The same command continues:")
    run(*COMMAND, "--checkpoint", str(checkpoint), "--every", "2000")
    print_title("An undisturbed run has the same result, bit for bit:")
    run(*COMMAND, "--checkpoint", str(whole), "--quiet")
    same = checkpoint.read_bytes() == whole.read_bytes()
    print("the two checkpoints are " + ("equal" if same else "NOT equal"), flush=True)
    print_title("A report:")
    run("orfit", "report", str(checkpoint))
    print_title("The paper's first figure:")
    run("orfit", "reproduce", "limited", "--out", str(out.parent))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
