"""What grpcui, a web page for gRPC as Postman and its like are, gets from the server.

Its pages ask and call through requests of their own, which are made here without a browser.
"""

import http.cookiejar
import json
import os
import re
import subprocess
import threading
import unittest
import urllib.request

from server import PATIENCE_SECONDS, Server, end_with_parent

GRPCUI = os.environ.get("SWITCHBOARD_PEER") or "grpcui"
TOKEN = "_grpcui_csrf_token"


class Grpcui:
    """`grpcui` before a server, as a context manager."""

    def __init__(self, address):
        self._command = [GRPCUI, "-plaintext", "-port", "0", address]

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=end_with_parent,
        )
        patience = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        found = re.search(r"available at (http://127\.0\.0\.1:\d+)/", line)
        if not found:
            self.__exit__()
            raise AssertionError(f"{self._command}: {line}")
        self._url = found[1]
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))
        self.page = self._open(urllib.request.Request(self._url + "/")).decode()
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def metadata(self, method):
        """What reflection says of the method."""
        return json.loads(self._open(urllib.request.Request(f"{self._url}/metadata?method={method}")))

    def invoke(self, method, *messages, metadata=()):
        body = {
            "timeout_seconds": PATIENCE_SECONDS,
            "metadata": [{"name": name, "value": value} for name, value in metadata],
            "data": messages,
        }
        token = next(cookie.value for cookie in self._jar if cookie.name == TOKEN)
        headers = {"content-type": "application/json", "x-grpcui-csrf-token": token}
        return json.loads(
            self._open(
                urllib.request.Request(
                    f"{self._url}/invoke/{method}", json.dumps(body).encode(), headers
                )
            )
        )

    def _open(self, request):
        with self._opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.read()


def setUpModule():
    global ui
    server = unittest.enterModuleContext(Server())
    ui = unittest.enterModuleContext(Grpcui(server.address))


class Page(unittest.TestCase):
    def test_every_service_is_on_it(self):
        for service in ("bench.v1.Bench", "demo.v1.Greeter", "demo.v1.Posts", "grpc.health.v1.Health"):
            self.assertIn(service, ui.page)

    def test_methods_are_described(self):
        described = ui.metadata("demo.v1.Greeter.Sum")
        self.assertEqual((described["requestType"], described["requestStream"]), ("demo.v1.Number", True))
        (field,) = described["messageTypes"]["demo.v1.Number"]
        self.assertEqual((field["name"], field["type"]), ("value", "int64"))

    def test_every_kind_of_call(self):
        for method, sent, expected in [
            ("Greet", [{"name": "Ada"}], [{"text": "hello Ada"}]),
            ("Watch", [{"count": 3}], [{"n": 0}, {"n": 1}, {"n": 2}]),
            ("Sum", [{"value": "1"}, {"value": "41"}], [{"sum": "42", "count": 2}]),
            ("Chat", [{"text": "one"}, {"text": "two"}], [{"text": "ONE"}, {"text": "TWO"}]),
        ]:
            with self.subTest(method):
                answer = ui.invoke(f"demo.v1.Greeter.{method}", *sent, metadata=[("x-tenant", "a")])
                self.assertIsNone(answer["error"])
                self.assertEqual([reply["message"] for reply in answer["responses"]], expected)

    def test_health(self):
        answer = ui.invoke("grpc.health.v1.Health.Check", {})
        self.assertEqual(answer["responses"][0]["message"], {"status": "SERVING"})

    def test_status(self):
        error = ui.invoke("demo.v1.Greeter.Greet", {"name": ""})["error"]
        self.assertEqual((error["code"], error["name"]), (3, "InvalidArgument"))
        self.assertRegex(error["message"], r"\S")


if __name__ == "__main__":
    unittest.main(verbosity=2)
