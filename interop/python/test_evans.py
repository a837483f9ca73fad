"""evans, a command line client that reads all schemas by reflection, against the server."""

import json
import os
import subprocess
import tempfile
import unittest

from server import PATIENCE_SECONDS, Server
from test_grpcurl import values

EVANS = os.environ.get("SWITCHBOARD_PEER") or "evans"


def setUpModule():
    global server, home
    server = unittest.enterModuleContext(Server())
    # It keeps a cache of its own in the home directory.
    home = unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="switchboard-evans-"))


def evans(*command, options=(), messages=()):
    """Runs `evans --reflection OPTIONS cli COMMAND`, with the messages as its input."""
    arguments = [EVANS, "--host", "127.0.0.1", "--port", str(server.port), "--reflection", *options]
    return subprocess.run(
        [*arguments, "cli", *command],
        input="\n".join(map(json.dumps, messages)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=os.environ | {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home},
    )


class Evans(unittest.TestCase):
    def call(self, method, *messages, options=()):
        """Returns the answers as Python values."""
        ended = evans("call", method, options=options, messages=messages)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return list(values(ended.stdout))

    def test_every_kind_of_call(self):
        for method, sent, answer in [
            ("Greet", [{"name": "Ada"}], [{"text": "hello Ada"}]),
            ("Watch", [{"count": 3}], [{}, {"n": 1}, {"n": 2}]),
            ("Sum", [{"value": value} for value in (1, 2, 39)], [{"sum": "42", "count": 3}]),
            ("Chat", [{"text": "one"}, {"text": "two"}], [{"text": "ONE"}, {"text": "TWO"}]),
        ]:
            with self.subTest(method):
                self.assertEqual(self.call(f"demo.v1.Greeter.{method}", *sent), answer)

    def test_metadata_is_taken(self):
        answer = self.call("demo.v1.Greeter.Greet", {"name": "Ada"}, options=("--header", "x-tenant=a"))
        self.assertEqual(answer, [{"text": "hello Ada"}])

    def test_status(self):
        ended = evans("call", "--enrich", "demo.v1.Greeter.Greet", messages=[{"name": ""}])
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("code: InvalidArgument", ended.stdout)

    def test_list_and_description(self):
        listed = evans("list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for service in ("bench.v1.Bench", "demo.v1.Greeter", "grpc.health.v1.Health"):
            self.assertIn(service, listed.stdout.split())
        described = evans("desc", "demo.v1.Greeter")
        self.assertIn("rpc Chat ( stream .demo.v1.Note ) returns ( stream .demo.v1.Note );", described.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
