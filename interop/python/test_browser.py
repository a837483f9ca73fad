"""The page of `switchboard serve` in Chromium: its calls, its stream, and how it is used."""

import unittest

from browser import Browser
from server import Server

HELLO, TICKS, POSTS = "hello Ada", "0, 1, 2", "6 posts: One port for …"
EXPECTED = [
    ["Connect JSON, fetch", "Greeter.Greet", HELLO],
    ["Connect JSON, fetch", "Posts.Query", POSTS],
    ["gRPC-Web, fetch", "Greeter.Greet", HELLO],
    ["gRPC-Web, fetch", "Greeter.Watch", TICKS],
    ["Native wire, WebSocket", "Greeter.Greet", HELLO],
    ["Native wire, WebSocket", "Greeter.Watch", TICKS],
    ["Native wire, WebSocket", "Greeter.Sum", "42, the sum of 3"],
    ["Native wire, WebSocket", "Greeter.Chat", "ONE, TWO"],
    ["Native wire, WebSocket", "Posts.Query", POSTS],
    ["JSON-RPC, WebSocket", "Greeter.Greet", HELLO],
    ["JSON-RPC, WebSocket", "Greeter.Watch", TICKS],
    ["JSON-RPC, WebSocket", "Posts.Query", POSTS],
]
ROWS = """[...document.querySelectorAll("#calls tr[data-right]")].map((row) =>
    [row.closest("tbody").querySelector("th"), ...row.cells].map((cell) => cell.textContent))"""
DONE = "document.documentElement.dataset.done"
SEEN = 'Number(document.querySelector("#ticks").value)'
STATE = 'document.querySelector("#stream-state").textContent'
FOCUSED = "document.activeElement.id"


class InChromium(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        self.browser.open(f"http://{self.server.address}/")
        self.browser.until(DONE)

    def test_every_call_is_answered_right(self):
        rows = self.browser.run(ROWS)
        self.assertEqual([row[:3] for row in rows], EXPECTED)
        for row in rows:
            self.assertGreater(int(row[3].replace(",", "")), 0, row)
        self.assertEqual(self.browser.run(DONE), "right")
        self.assertEqual(
            self.browser.run('document.querySelector("#summary").textContent'), "12 of 12 answers are right."
        )

    def test_a_stream_counts_while_it_runs(self):
        self.browser.until(f"{SEEN} >= 12")
        self.assertIn("Ten a second", self.browser.run(STATE))

    def test_everything_is_done_with_the_keyboard(self):
        self.browser.until(f"{SEEN} >= 1")
        self.browser.press("Tab")
        self.assertEqual(self.browser.run(FOCUSED), "again")
        self.assertTrue(self.browser.run('document.activeElement.matches(":focus-visible")'))
        self.browser.run('document.querySelector("#calls tbody").remove()')
        self.browser.press("Enter")
        self.browser.until(f"{DONE} === 'right'")
        self.assertEqual([row[:3] for row in self.browser.run(ROWS)], EXPECTED)
        self.assertEqual(self.browser.run(FOCUSED), "again")
        self.browser.press("Tab")
        self.assertEqual(self.browser.run(FOCUSED), "stream")
        self.browser.press(" ")
        self.browser.until(f"{STATE} === 'Stopped.'")
        self.browser.run('document.querySelector("#ticks").value = ""')
        self.browser.press(" ")
        self.browser.until(f"{SEEN} >= 2")

    def test_a_stopped_server_is_shown_and_its_return_too(self):
        with Server() as mortal:
            self.browser.open(f"http://{mortal.address}/")
            self.browser.until(f"{DONE} && {SEEN} >= 1")
            mortal.process.kill()
            self.browser.until(f"{STATE}.startsWith('Failed: the connection has ended')")
            self.browser.run('document.querySelector("#again").click()')
            self.browser.until(f"{DONE} === 'wrong'")
            rows = self.browser.run(ROWS)
            self.assertEqual([row[:2] for row in rows], [row[:2] for row in EXPECTED])
            for row in rows:
                self.assertTrue(row[2].startswith("failed: "), row)
            self.browser.run('document.querySelector("#stream").click()')
            self.browser.until(f"{STATE}.startsWith('Failed: cannot connect')")
            mortal.process.wait()
            with Server("--listen", mortal.address):
                self.browser.run('document.querySelector("#again").click()')
                self.browser.until(f"{DONE} === 'right'")

    def test_it_fits_a_phone_and_both_schemes(self):
        self.browser.width(390)
        overflow = "document.documentElement.scrollWidth > innerWidth"
        self.assertEqual(self.browser.run("innerWidth"), 390)
        self.assertFalse(self.browser.run(overflow))
        paper = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        for scheme, is_right in (("light", lambda part: part > 200), ("dark", lambda part: part < 60)):
            self.browser.scheme(scheme)
            self.assertTrue(all(map(is_right, self.browser.run(paper))), scheme)

    def test_the_policy_lets_the_page_work_and_nothing_else(self):
        self.assertEqual(self.browser.complaints(), [])
        self.assertTrue(self.browser.run("crossOriginIsolated"))
        self.assertEqual(
            self.browser.run('fetch("http://127.0.0.2:9/").then(() => "fetched", (error) => error.name)'), "TypeError"
        )
        self.browser.run('document.body.append(Object.assign(document.createElement("script"), {text: "evil = 1"}))')
        self.assertEqual(self.browser.run("typeof evil"), "undefined")
        refused = [entry["text"] for entry in self.browser.complaints()]
        for directive in ("connect-src", "script-src"):
            self.assertTrue(any(directive in text for text in refused), refused)


if __name__ == "__main__":
    unittest.main(verbosity=2)
