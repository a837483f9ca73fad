"""One topic of `switchboard serve --topics`, with subscribers of every protocol at the same time.

All receive the same entries in the same order for TOPIC_SECONDS (10), while one of them stalls, and one is killed and
reconnects. SWITCHBOARD is the program; PYTHON_GRPC, PYTHON_NATS, PYTHON_REDIS and PYTHON_ZMTP have the libraries.
"""

import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import unittest

SWITCHBOARD = os.environ["SWITCHBOARD"]
SECONDS = float(os.environ.get("TOPIC_SECONDS", "10"))
PATIENCE_SECONDS = 60
ENTRIES_PER_SECOND = 200
TOPIC = "prices/acme"
CLIENT = pathlib.Path(__file__).with_name("client.py")
WARM, END = "warm", "end"


class Subscriber:
    """A program that prints an entry on each line, which `read` turns into the text; None means another line."""

    def __init__(self, name, command, read=str.strip):
        self.name, self.read = name, read
        self.texts, self.positions, self.problems = [], [], []
        self.is_warm, self.has_ended = threading.Event(), threading.Event()
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=self._follow), threading.Thread(target=self._complain)]
        for thread in self.threads:
            thread.start()

    def _follow(self):
        for line in self.child.stdout:
            text = self.read(line)
            if text == WARM:
                self.is_warm.set()
            elif text == END:
                self.has_ended.set()
            elif text is not None:
                self.texts.append(text)
                if line.startswith("{"):
                    self.positions.append(json.loads(line).get("position"))

    def _complain(self):
        for line in self.child.stderr:
            self.problems.append(line.strip())

    def signal(self, number):
        self.child.send_signal(number)

    def close(self):
        self.child.kill()
        self.child.wait()
        for thread in self.threads:
            thread.join()
        self.child.stdout.close()
        self.child.stderr.close()


def of_bus(line):
    """An entry of `bus sub --json`."""
    entry = json.loads(line)
    # JSON shows that entries are missing by an object of its own.
    return entry["payload"] if "payload" in entry else f"gap {entry['gap']['from']} {entry['gap']['to']}"


def of_call(line):
    """An event of `switchboard call ... Bus/Subscribe`, with bytes in base64."""
    entry = json.loads(line).get("entry")
    return base64.b64decode(entry["payload"]).decode() if entry else None


class Topic(unittest.TestCase):
    def setUp(self):
        command = [SWITCHBOARD, "serve", "--topics", "--log", "warn"]
        for address in ("127.0.0.1:0", "nats://127.0.0.1:0"):
            command += ["--listen", address]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [self.server.stdout.readline() for _ in range(2)]
        self.address, self.nats = [re.search(r"://(\S+)", line).group(1) for line in lines]
        self.subscribers = []

    def tearDown(self):
        for subscriber in self.subscribers:
            subscriber.close()
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def add(self, *arguments):
        subscriber = Subscriber(*arguments)
        self.subscribers.append(subscriber)
        return subscriber

    def bus_sub(self, name, *rest):
        return self.add(name, [SWITCHBOARD, "bus", "sub", self.address, TOPIC, "--json", *rest], of_bus)

    def call(self, wire):
        request = json.dumps({"topic": TOPIC})
        method = "switchboard.bus.v1.Bus/Subscribe"
        command = [SWITCHBOARD, "call", self.address, method, "-d", request, "--wire", wire, "--compact"]
        return self.add(f"call, {wire}", command, of_call)

    def client(self, kind, variable):
        address = self.nats if kind == "nats" else self.address
        return self.add(kind, [os.environ[variable], "-u", str(CLIENT), kind, address, TOPIC])

    def publish(self, texts):
        command = [SWITCHBOARD, "bus", "pub", self.address, TOPIC, "--lines"]
        publisher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for text in texts:
            publisher.stdin.write(text + "\n")
            publisher.stdin.flush()
        publisher.stdin.close()
        self.assertEqual(publisher.wait(PATIENCE_SECONDS), 0)

    def warm_up(self, subscribers):
        """Publishes until all subscribers receive: not every protocol confirms a subscription."""
        end = time.monotonic() + PATIENCE_SECONDS
        while waiting := [one for one in subscribers if not one.is_warm.is_set()]:
            self.assertLess(time.monotonic(), end, [(one.name, one.problems) for one in waiting])
            self.publish([WARM])

    def test_all_subscribers_receive_the_same_entries_in_the_same_order(self):
        whole = [self.call("native"), self.call("grpc"), self.call("connect"), self.bus_sub("bus sub")]
        whole += [self.client("grpc", "PYTHON_GRPC"), self.client("jsonrpc", "PYTHON_GRPC")]
        whole += [self.client("sse", "PYTHON_GRPC"), self.client("zmq", "PYTHON_ZMTP")]
        whole += [self.client("nats", "PYTHON_NATS"), self.client("redis", "PYTHON_REDIS")]
        stalled, killed = self.bus_sub("stalled"), self.bus_sub("killed")
        self.warm_up([*whole, stalled, killed])
        count = int(SECONDS * ENTRIES_PER_SECOND)
        expected = [str(number) for number in range(count)]
        begun = threading.Event()
        again = []

        def disturb():
            begun.wait(PATIENCE_SECONDS)
            stalled.signal(signal.SIGSTOP)
            killed.close()
            # What was printed whole was received: the next one continues after it.
            position = next(position for position in reversed(killed.positions) if position)
            again.append(self.bus_sub("again", "--from", position))

        def numbers():
            start = time.monotonic()
            for number, text in enumerate(expected):
                if number == count // 3:
                    begun.set()
                time.sleep(max(0.0, start + number / ENTRIES_PER_SECOND - time.monotonic()))
                yield text

        thread = threading.Thread(target=disturb)
        thread.start()
        self.publish(numbers())
        thread.join()
        stalled.signal(signal.SIGCONT)
        self.publish([END])
        for subscriber in [*whole, stalled, *again]:
            self.assertTrue(subscriber.has_ended.wait(PATIENCE_SECONDS), (subscriber.name, subscriber.problems))
        for subscriber in whole:
            self.assertEqual(subscriber.texts, expected, subscriber.name)
        # Received before the kill, and after it: no hole and nothing twice.
        self.assertEqual([text for text in killed.texts + again[0].texts], expected)
        self.assertLess(len(killed.texts), count)
        self.check_stalled(stalled, expected)

    def check_stalled(self, stalled, expected):
        """It has every entry, or gaps in their place: the order holds, and the missing ones are counted."""
        received, missing = [], 0
        for text in stalled.texts:
            if text.startswith("gap "):
                _, first, end = text.split()
                missing += int(end) - int(first)
            else:
                received.append(int(text))
        self.assertEqual(received, sorted(set(received)))
        self.assertEqual(len(received) + missing, len(expected))


if __name__ == "__main__":
    unittest.main()
