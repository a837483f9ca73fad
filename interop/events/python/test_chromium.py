"""Chromium's EventSource with the event streams of a bus, through kills of the server."""

import pathlib
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from browser import Browser
from test_events import Server

# The title changes with each event, which `until` notices.
OPEN = """
    window.seen = [];
    window.source = new EventSource("/events?topic=a&topic=b&last=0");
    for (const kind of ["message", "gap", "resumed"]) {
        source.addEventListener(kind, (event) => {
            const { topic, offset, reason } = JSON.parse(event.data);
            seen.push([kind, topic, offset ?? reason]);
            document.title = String(seen.length);
        });
    }
    new Promise((resolve) => source.onopen = resolve)
"""


class InChromium(unittest.TestCase):
    def test_eventsource_resumes_by_itself(self):
        server = Server()
        self.addCleanup(server.end)
        with Browser() as browser:
            browser.open(f"http://{server.address}/")
            browser.run(OPEN)
            for restart in range(3):
                for topic in ["a", "b"]:
                    server.publish(topic, 5)
                if restart:
                    self.assertEqual(server.ask("restart"), "restarted")
                for topic in ["a", "b"]:
                    server.publish(topic, 5, 2000)
                messages = 20 * (restart + 1)
                browser.until(f'seen.filter(([kind]) => kind === "message").length >= {messages}')
            seen = browser.run("seen")
            for topic in ["a", "b"]:
                offsets = [offset for kind, of, offset in seen if kind == "message" and of == topic]
                self.assertEqual(offsets, list(range(1, 31)), seen)
            self.assertEqual(sum(kind == "resumed" for kind, _, _ in seen), 2, seen)
            self.assertEqual(server.ask("forget"), "restarted")
            browser.until('seen.filter(([kind]) => kind === "gap").length === 2')
            self.assertEqual({reason for kind, _, reason in browser.run("seen") if kind == "gap"}, {"epoch"})


if __name__ == "__main__":
    unittest.main()
