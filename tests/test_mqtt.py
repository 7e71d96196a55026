"""`examples/mqtt.py`, killed again and again, beside a learner that saw all rows at once."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import orfit

pytestmark = pytest.mark.slow

mqtt = pytest.importorskip("paho.mqtt.client")
BROKER = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
if BROKER is None:
    pytest.skip("needs the broker mosquitto: apt-get install mosquitto", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "examples" / "mqtt.py"
SIZE, PATIENCE = 30, 60.0


def rows(count):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, SIZE)), rng.standard_normal(count)


def offline(X, y):
    """The learner that the script has after these rows."""
    learner = orfit.ORFit(orfit.Linear(SIZE), 10, noise=0.1)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    return learner


class Broker:
    """mosquitto on a port that was free."""

    def __init__(self, folder, *settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        lines = [f"listener {self.port} 127.0.0.1", "allow_anonymous true", *settings]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [BROKER, "-c", folder / "mosquitto.conf"], stderr=subprocess.DEVNULL
        )
        until(self.answers)

    def answers(self):
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def client(self, **settings):
        made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, **settings)
        made.connect("127.0.0.1", self.port)
        made.loop_start()
        until(made.is_connected)
        return made

    def subscribed(self):
        """The session of a learner that was there once, and is away."""
        client, done = self.client(client_id="orfit", clean_session=False), []
        client.on_subscribe = lambda *told: done.append(told)
        client.subscribe("rows", qos=1)
        until(lambda: done)
        client.disconnect()
        client.loop_stop()

    def end(self):
        self.process.kill()
        self.process.wait()


def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.002)


@pytest.fixture
def broker(tmp_path):
    made = []

    def start(*settings):
        made.append(Broker(tmp_path, *settings))
        made[0].subscribed()
        return made[0]

    yield start
    for one in made:
        one.end()


def publish(client, X, y, numbers):
    for i in numbers:
        row = {"row": int(i), "x": X[i].tolist(), "y": float(y[i])}
        client.publish("rows", json.dumps(row), qos=1)


def learn(broker, checkpoint, count, *more):
    told = ["--port", broker.port, "--size", SIZE, "--rows", count, "--checkpoint", checkpoint]
    command = [sys.executable, SCRIPT, *told, *more]
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def stamp(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def test_killed_at_random_moments_it_ends_as_if_nothing_had_happened(broker, tmp_path):
    count, kills, rng = 400, 5, np.random.default_rng()
    X, y = rows(count)
    checkpoint, broker = tmp_path / "rows.orfit", broker("max_queued_messages 0")
    sender = broker.client(client_id="sender")
    publish(sender, X, y, range(5))
    for kill in range(1, kills + 1):
        before, process = stamp(checkpoint), learn(broker, checkpoint, count, "--every", 3)
        until(lambda before=before, process=process: stamp(checkpoint) != before)
        # Some rows come while it is there, and one comes twice.
        publish(sender, X, y, [0, *range(60 * kill - 55, 60 * kill + 5)])
        time.sleep(rng.uniform(0, 0.06))
        process.kill()
        process.communicate()
    assert orfit.load(checkpoint).seen < count
    publish(sender, X, y, range(60 * kills + 5, count))
    out, err = learn(broker, checkpoint, count, "--every", 3).communicate(timeout=PATIENCE)
    assert (out, err) == (f"{count} rows learned\n", "")
    sender.disconnect()
    sender.loop_stop()

    learner, expected = orfit.load(checkpoint), offline(X, y)
    assert learner.seen == count
    found, wanted = (one.state()[0] for one in (learner, expected))
    assert found.keys() == wanted.keys()
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_more_rows_between_saves_than_the_broker_has_in_flight(broker, tmp_path):
    """It does not wait for rows that are not sent before others are acknowledged."""
    X, y = rows(50)
    broker = broker()  # max_inflight_messages 20
    sender = broker.client(client_id="sender")
    publish(sender, X, y, range(50))
    process = learn(broker, tmp_path / "rows.orfit", 50, "--every", 1000)
    assert process.communicate(timeout=PATIENCE) == ("50 rows learned\n", "")
    sender.disconnect()
    sender.loop_stop()


def test_rows_that_the_broker_did_not_keep_are_told(broker, tmp_path):
    X, y = rows(60)
    broker, checkpoint = broker("max_queued_messages 10"), tmp_path / "rows.orfit"
    sender = broker.client(client_id="sender")
    publish(sender, X, y, range(59))  # of which the last ones are dropped: nobody is there
    until(lambda: not sender.want_write() and sender._out_messages == {})
    process = learn(broker, checkpoint, 60)
    until(lambda: stamp(checkpoint))
    publish(sender, X, y, [59])
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert "is missing: 59 came in its place; does the broker keep enough" in err
    assert 10 <= orfit.load(checkpoint).seen < 59
    sender.disconnect()
    sender.loop_stop()
