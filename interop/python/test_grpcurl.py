"""What grpcurl, the command line client of the gRPC world, gets from the server."""

import json
import os
import subprocess
import unittest

from schema import OPTIONS_FOLDER, PROTO_FILES, PROTO_FOLDER
from server import PATIENCE_SECONDS, Server

GRPCURL = os.environ.get("SWITCHBOARD_PEER") or "grpcurl"

# grpcurl ends with this plus the number of the gRPC status.
EXIT_CODE_OF_STATUS = 64
INVALID_ARGUMENT = 3


def setUpModule():
    global server
    server = unittest.enterModuleContext(Server())


def grpcurl(*arguments, messages=None):
    """Runs `grpcurl -plaintext OPTIONS ADDRESS VERB`, with the messages as its input."""
    *options, verb = arguments
    command = [GRPCURL, "-plaintext", "-max-time", str(PATIENCE_SECONDS)]
    given = None
    if messages is not None:
        command += ["-d", "@"]
        given = "".join(map(json.dumps, messages))
    # What it lists or describes is `VERB NAME`, behind the address like the method of a call.
    command += [*options, server.address, *verb.split(" ")]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)


class Calls:
    """The cases, made below with schema files and again by reflection."""

    options = ()

    def call(self, method, *messages):
        """Returns the answers as Python values."""
        ended = grpcurl(*self.options, method, messages=messages)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return list(values(ended.stdout))

    def test_unary(self):
        self.assertEqual(self.call("demo.v1.Greeter/Greet", {"name": "Ada"}), [{"text": "hello Ada"}])

    def test_server_stream(self):
        ticks = self.call("demo.v1.Greeter/Watch", {"count": 3})
        self.assertEqual(ticks, [{}, {"n": 1}, {"n": 2}])

    def test_client_stream(self):
        total = self.call("demo.v1.Greeter/Sum", *({"value": value} for value in (1, 2, 39)))
        self.assertEqual(total, [{"sum": "42", "count": 3}])

    def test_bidirectional_stream(self):
        notes = self.call("demo.v1.Greeter/Chat", {"text": "one"}, {"text": "two"})
        self.assertEqual(notes, [{"text": "ONE"}, {"text": "TWO"}])

    def test_proto2(self):
        message = {"field1": "request", "field2": 1, "field3": 3, "field9": "nine"}
        answer = {"field1": "OK", "field2": 100, "field3": 3, "field9": "nine"}
        self.assertEqual(self.call("bench.v1.Bench/Message", message), [answer])

    def test_status(self):
        ended = grpcurl(*self.options, "demo.v1.Greeter/Greet", messages=[{"name": ""}])
        self.assertEqual(ended.returncode, EXIT_CODE_OF_STATUS + INVALID_ARGUMENT, ended.stderr)
        self.assertIn("Code: InvalidArgument", ended.stderr)
        self.assertRegex(ended.stderr, r"Message: \S")


class WithSchemaFiles(Calls, unittest.TestCase):
    options = (
        f"-import-path={PROTO_FOLDER}",
        f"-import-path={OPTIONS_FOLDER}",
        *(f"-proto={file}" for file in PROTO_FILES),
    )


class ByReflection(Calls, unittest.TestCase):
    def test_list(self):
        ended = grpcurl("list")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        services = ended.stdout.split()
        for service in ("bench.v1.Bench", "demo.v1.Greeter", "demo.v1.Posts"):
            self.assertIn(service, services)

    def test_health_needs_no_schema(self):
        self.assertEqual(self.call("grpc.health.v1.Health/Check", {}), [{"status": "SERVING"}])

    def test_list_of_methods(self):
        ended = grpcurl("list demo.v1.Greeter")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        methods = [f"demo.v1.Greeter.{method}" for method in ("Chat", "Greet", "Sum", "Watch")]
        self.assertEqual(sorted(ended.stdout.split()), methods)

    def test_describe(self):
        for symbol, shown in [
            ("demo.v1.Greeter", "rpc Chat ( stream .demo.v1.Note ) returns ( stream .demo.v1.Note );"),
            ("demo.v1.Post", "repeated string tags = 4;"),
            ("bench.v1.EchoMessage", "optional bytes payload = 1;"),
        ]:
            with self.subTest(symbol):
                ended = grpcurl(f"describe {symbol}")
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(shown, ended.stdout)

    def test_describe_nothing(self):
        self.assertNotEqual(grpcurl("describe demo.v1.Missing").returncode, 0)


def values(text):
    """The JSON values that stand one behind the other in the text."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]


if __name__ == "__main__":
    unittest.main(verbosity=2)
