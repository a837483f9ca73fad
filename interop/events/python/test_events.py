"""Event streams of a bus with curl, Node's eventsource and Python's websockets, through kills of the server."""

import contextlib
import json
import os
import pathlib
import queue
import subprocess
import threading
import time
import unittest

import websockets.sync.client

LIMIT = 30
_EVENTS = pathlib.Path(__file__).resolve().parents[2] / "js" / "events.mjs"


class Program:
    """A program whose lines are read while it runs."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, **options
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Server(Program):
    """The program events-server."""

    def __init__(self):
        super().__init__([os.environ["EVENTS_SERVER"]])
        self.address = self.line().removeprefix("listening on ")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        return self.line()

    def publish(self, topic, count=1, size=1):
        return int(self.ask(f"publish {topic} {count} {size}").removeprefix("published "))

    def until_subscriptions(self, count):
        end = time.monotonic() + LIMIT
        while self.ask("subscriptions") != f"subscriptions {count}":
            assert time.monotonic() < end, self.ask("subscriptions")
            time.sleep(0.01)


class Curl(Program):
    """curl -N; events as pairs of kind and data."""

    def __init__(self, url, *arguments):
        super().__init__(["curl", "-sN", *arguments, url])
        self.id = ""

    def event(self):
        kind, data = "message", []
        while (line := self.line()) is not None:
            name, _, value = line.partition(": ")
            if name == "data":
                data.append(value)
            elif name == "event":
                kind = value
            elif name == "id":
                self.id = value
            elif not line and data:
                return kind, json.loads("\n".join(data))
        raise AssertionError("the stream has ended")


class Case(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.end)

    def url(self, query, scheme="http"):
        return f"{scheme}://{self.server.address}/events?{query}"

    def curl(self, query, *arguments):
        curl = Curl(self.url(query), *arguments)
        self.addCleanup(curl.end)
        return curl

    def test_curl_reads_and_resumes(self):
        for version in ["--http1.1", "--http2-prior-knowledge"]:
            with self.subTest(version):
                topic = version.strip("-")
                first = self.server.publish(topic, 3)
                curl = self.curl(f"topic={topic}&last=2", version)
                for offset in [first - 1, first]:
                    kind, data = curl.event()
                    self.assertEqual((kind, data["offset"], data["topic"]), ("message", offset, topic))
                    self.assertEqual(data["data"]["text"], "x")
                curl.end()
                self.server.publish(topic, 2)
                again = self.curl(f"topic={topic}", version, "-H", f"last-event-id: {curl.id}")
                self.assertEqual(again.event(), ("resumed", {}))
                self.assertEqual([again.event()[1]["offset"] for _ in range(2)], [first + 1, first + 2])

    def test_curl_shows_refusals(self):
        for query, status in [("topic=$nodes", "403"), ("", "400"), ("topic=a/*", "403")]:
            output = subprocess.run(
                ["curl", "-s", "-o", "-", "-w", "\n%{http_code}", self.url(query)],
                capture_output=True, text=True, timeout=LIMIT, check=True,
            ).stdout
            self.assertEqual(output.rsplit("\n", 1)[1], status, output)

    def test_missed_entries_are_reported(self):
        curl = self.curl("topic=t")
        self.server.until_subscriptions(1)
        # More than the topic keeps, faster than curl reads.
        self.server.publish("t", 3000, 20000)
        expected, missed = 1, 0
        while expected <= 3000:
            kind, data = curl.event()
            if kind == "gap":
                self.assertEqual((data["reason"], data["from"]), ("lagged", expected))
                missed, expected = missed + data["to"] + 1 - expected, data["to"] + 1
            else:
                self.assertEqual(data["offset"], expected)
                expected += 1
        self.assertGreater(missed, 0)

    def test_eventsource_resumes_by_itself(self):
        modules = os.path.join(os.environ["EVENTS_NODE"], "node_modules")
        with _linked(modules):
            node = Program(["node", str(_EVENTS), self.url("topic=a&topic=b")], stderr=subprocess.DEVNULL)
            self.addCleanup(node.end)
            self.assertEqual(json.loads(node.line()), {"kind": "open"})
            seen = {"a": 0, "b": 0}
            for restart in range(4):
                for topic in seen:
                    self.server.publish(topic, 5)
                if restart:
                    self.assertEqual(self.server.ask("restart"), "restarted")
                for topic in seen:
                    self.server.publish(topic, 5)
                while min(seen.values()) < 10 * (restart + 1):
                    event = json.loads(node.line())
                    self.assertIn(event["kind"], ["open", "resumed", "message"], event)
                    if event["kind"] == "message":
                        topic = event["data"]["topic"]
                        self.assertEqual(event["data"]["offset"], seen[topic] + 1)
                        seen[topic] += 1
            # Another bus has other logs: the client learns that it may have missed entries.
            self.assertEqual(self.server.ask("forget"), "restarted")
            events = [json.loads(node.line()) for _ in range(3)]
            self.assertEqual([event["kind"] for event in events], ["open", "gap", "gap"])
            self.assertEqual({event["data"]["reason"] for event in events[1:]}, {"epoch"})

    def test_websockets_in_one_direction(self):
        with websockets.sync.client.connect(self.url("topic=t", "ws")) as socket:
            started = json.loads(socket.recv(timeout=LIMIT))
            self.assertEqual(started["event"], "started")
            self.server.publish("t", 2, 100_000)
            entries = [json.loads(socket.recv(timeout=LIMIT)) for _ in range(2)]
            self.assertEqual([entry["offset"] for entry in entries], [1, 2])
            self.assertEqual(len(entries[0]["data"]["text"]), 100_000)
            socket.ping().wait(LIMIT)
        self.server.until_subscriptions(0)
        self.server.ask("restart")
        self.server.publish("t")
        with websockets.sync.client.connect(self.url(f"topic=t&id={entries[0]['id']}", "ws")) as socket:
            events = [json.loads(socket.recv(timeout=LIMIT)) for _ in range(4)]
            self.assertEqual([event.get("event") for event in events], ["started", "resumed", None, None])
            self.assertEqual([event["offset"] for event in events[2:]], [2, 3])
            self.assertEqual(self.server.ask("stop"), "stopped")
            with self.assertRaises(websockets.exceptions.ConnectionClosed) as closed:
                socket.recv(timeout=LIMIT)
            self.assertEqual(closed.exception.rcvd.code, 1001)
        with self.assertRaises(OSError):
            websockets.sync.client.connect(self.url("topic=t", "ws"))

    def test_a_websocket_that_sends_is_closed(self):
        with websockets.sync.client.connect(self.url("topic=t", "ws")) as socket:
            socket.recv(timeout=LIMIT)
            socket.send("{}")
            with self.assertRaises(websockets.exceptions.ConnectionClosed) as closed:
                socket.recv(timeout=LIMIT)
            self.assertEqual(closed.exception.rcvd.code, 1003)


@contextlib.contextmanager
def _linked(modules):
    """Node resolves packages from where the importing file lies."""
    link = _EVENTS.parent / "node_modules"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(modules)
    try:
        yield
    finally:
        if link.is_symlink():
            link.unlink()


if __name__ == "__main__":
    unittest.main()
