"""Learn rows from an MQTT broker: killed at any moment and started again, each row counts once.

    python examples/mqtt.py --size 20 --checkpoint rows.orfit    # and, from another terminal:
    mosquitto_pub -t rows -q 1 -l < rows.jsonl                   # {"row": 0, "x": [...], "y": 1.5}

The broker keeps what is not acknowledged (QoS 1, a session that outlives the connection), and sends
it again. Rows are acknowledged once they are in the file; what comes again is known by its number,
which is the number of rows that were learned before it.

A broker sends only so many rows that are not acknowledged (mosquitto: max_inflight_messages 20);
who waited for more before acknowledging any would wait for ever. So a pause is a time to save, too.
And it drops what it cannot keep for who is away (max_queued_messages 1000; 0 keeps all): then a
number is missing, and this ends with a sentence instead of learning on.
"""

import argparse
import json
import os
import sys
from typing import Any

import paho.mqtt.client as mqtt

import orfit

PAUSE = 0.1  # seconds without a row, after which is saved what was learned


def new(size: int) -> orfit.ORFit:
    """What learns: the one thing to change here for a stream of yours."""
    return orfit.ORFit(orfit.Linear(size), 10, noise=0.1)


class Listener:
    """A learner, its file, and the rows that are learned but not acknowledged."""

    def __init__(self, learner: Any, checkpoint: str, every: int) -> None:
        self.learner, self.checkpoint, self.every = learner, checkpoint, every
        self.saved, self.pending = learner.seen, []  # pending: numbers of messages
        self.missing = None

    def on_connect(self, client: mqtt.Client, topic: str, _: Any, answer: Any, *__: Any) -> None:
        if answer.is_failure:
            sys.exit(f"the broker says: {answer}")
        self.pending.clear()  # of a connection that is gone: they come again
        client.subscribe(topic, qos=1)

    def on_message(self, client: mqtt.Client, _: Any, message: mqtt.MQTTMessage) -> None:
        if self.missing is not None:
            return
        row = json.loads(message.payload)
        if row["row"] > self.learner.seen:
            self.missing = f"row {self.learner.seen} is missing: {row['row']} came in its place"
            return
        if row["row"] == self.learner.seen:  # else it was learned before
            self.learner.learn(row["x"], row["y"])
        self.pending.append(message.mid)
        if len(self.pending) >= self.every:
            self.save(client)

    def save(self, client: mqtt.Client) -> None:
        """First the file, then the acknowledgements: never the other way round."""
        if self.learner.seen > self.saved:
            self.learner.save(self.checkpoint)
            self.saved = self.learner.seen
        for mid in self.pending:
            client.ack(mid, qos=1)
        self.pending.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--topic", default="rows")
    parser.add_argument("--client", default="orfit", help="the broker keeps rows under this name")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--size", type=int, required=True, help="numbers in x")
    parser.add_argument("--every", type=int, default=20, help="rows between saves, at most")
    parser.add_argument("--rows", type=int, help="end when so many are learned")
    told = parser.parse_args()

    known = os.path.exists(told.checkpoint)
    learner = orfit.load(told.checkpoint) if known else new(told.size)
    listener = Listener(learner, told.checkpoint, told.every)
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=told.client,
        clean_session=False,
        manual_ack=True,
        userdata=told.topic,
    )
    client.on_connect, client.on_message = listener.on_connect, listener.on_message
    client.connect(told.host, told.port)
    while told.rows is None or listener.saved < told.rows or listener.pending:
        before = len(listener.pending), learner.seen
        if client.loop(timeout=PAUSE) != mqtt.MQTT_ERR_SUCCESS:
            client.reconnect()
        elif before == (len(listener.pending), learner.seen):
            listener.save(client)
        if listener.missing is not None:
            listener.save(client)
            sys.exit(f"{listener.missing}; does the broker keep enough (max_queued_messages)?")
    client.disconnect()
    print(f"{learner.seen} rows learned")


if __name__ == "__main__":
    main()
