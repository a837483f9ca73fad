"""Connect as curl speaks it, Connect streams and gRPC-Web byte by byte."""

import http.client
import json
import os
import struct
import subprocess
import unittest

from schema import demo_pb2
from server import PATIENCE_SECONDS, Server

CURL = os.environ.get("SWITCHBOARD_PEER") or "curl"
JSON = "application/json"

# Flags of an envelope: both protocols put a byte of flags and a length before each message of a stream.
CONNECT_END = 0x02
WEB_TRAILERS = 0x80


def setUpModule():
    global server
    server = unittest.enterModuleContext(Server())


class ConnectByCurl(unittest.TestCase):
    def curl(self, path, *options):
        """Returns the HTTP status, the content type and the body."""
        command = [CURL, "--silent", "--show-error", "--max-time", str(PATIENCE_SECONDS)]
        command += ["--write-out", r"\n%{http_code} %{content_type}", *options]
        command.append(f"http://{server.address}{path}")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        body, _, outcome = ended.stdout.rpartition("\n")
        status, _, content_type = outcome.partition(" ")
        return int(status), content_type, body

    def greet(self, data, *options):
        header = f"content-type: {JSON}"
        return self.curl("/demo.v1.Greeter/Greet", "--header", header, "--data", data, *options)

    def assert_greeted(self, answer):
        status, content_type, body = answer
        self.assertEqual((status, content_type), (200, JSON), body)
        self.assertEqual(json.loads(body), {"text": "hello Ada"})

    def assert_refused(self, answer, statuses, code):
        status, content_type, body = answer
        self.assertIn(status, statuses, body)
        self.assertEqual(content_type, JSON, body)
        error = json.loads(body)
        self.assertEqual(error["code"], code)
        return error

    def test_unary(self):
        self.assert_greeted(self.greet('{"name":"Ada"}'))

    def test_unary_over_http2(self):
        self.assert_greeted(self.greet('{"name":"Ada"}', "--http2-prior-knowledge"))

    def test_unary_over_http10(self):
        self.assert_greeted(self.greet('{"name":"Ada"}', "--http1.0"))

    def test_unary_by_get(self):
        query = "/demo.v1.Greeter/Greet?connect=v1&encoding=json&message=%7B%22name%22%3A%22Ada%22%7D"
        self.assert_greeted(self.curl(query))

    def test_compressed_answer(self):
        self.assert_greeted(self.greet('{"name":"Ada"}', "--compressed"))

    def test_metadata(self):
        status, _, text = self.greet('{"name":"Ada"}', "--header", "x-echo: round trip", "--include")
        self.assertEqual(status, 200, text)
        headers = [line.lower().rstrip() for line in text.splitlines()]
        self.assertIn("x-echo: round trip", headers)
        self.assertIn("trailer-x-echo-trailer: round trip", headers)

    def test_invalid_argument(self):
        error = self.assert_refused(self.greet('{"name":""}'), [400], "invalid_argument")
        self.assertNotEqual(error["message"], "")

    def test_broken_json(self):
        self.assert_refused(self.greet('{"name":'), [400], "invalid_argument")

    def test_unknown_method(self):
        answer = self.curl("/demo.v1.Greeter/Nope", "--header", f"content-type: {JSON}", "--data", "{}")
        # The protocol maps the code to 501; its own servers answer 404 for what they have no handler for.
        self.assertIn(answer[0], [404, 501], answer)

    def test_unsupported_media_type(self):
        path = "/demo.v1.Greeter/Greet"
        status, _, _ = self.curl(path, "--header", "content-type: text/csv", "--data", "name")
        self.assertEqual(status, 415)

    def test_wrong_http_method(self):
        status, _, _ = self.curl("/demo.v1.Greeter/Greet", "--request", "DELETE")
        self.assertEqual(status, 405)


class Enveloped(unittest.TestCase):
    def post(self, method, content_type, *messages, **headers):
        """Posts the messages in envelopes and returns the answer with its envelopes, as (flags, bytes)."""
        body = b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages)
        connection = http.client.HTTPConnection(server.address, timeout=PATIENCE_SECONDS)
        self.addCleanup(connection.close)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", method, body, {"content-type": content_type, **headers})
        answer = connection.getresponse()
        content = answer.read()
        self.assertEqual(answer.status, 200, content)
        self.assertEqual(answer.headers["content-type"], content_type)
        return answer, list(envelopes(content))


class ConnectStreams(Enveloped):
    def test_server_stream(self):
        _, received = self.post("/demo.v1.Greeter/Watch", "application/connect+json", b'{"count":3}')
        *ticks, (flags, end) = [(flags, json.loads(content)) for flags, content in received]
        self.assertEqual(ticks, [(0, {}), (0, {"n": 1}), (0, {"n": 2})])
        self.assertEqual(flags, CONNECT_END)
        self.assertNotIn("error", end)

    def test_client_stream(self):
        numbers = [b'{"value":1}', b'{"value":"41"}']
        _, received = self.post("/demo.v1.Greeter/Sum", "application/connect+json", *numbers)
        self.assertEqual(json.loads(received[0][1]), {"sum": "42", "count": 2})
        self.assertEqual(received[1][0], CONNECT_END)

    def test_error_at_the_end(self):
        _, received = self.post("/demo.v1.Greeter/Watch", "application/connect+json", b'{"count":0}')
        ((flags, end),) = received
        self.assertEqual(flags, CONNECT_END)
        self.assertEqual(json.loads(end)["error"]["code"], "invalid_argument")

    def test_deadline(self):
        watch = b'{"count":10,"intervalMs":1000}'
        content_type = "application/connect+json"
        _, received = self.post("/demo.v1.Greeter/Watch", content_type, watch, connect_timeout_ms="200")
        flags, end = received[-1]
        self.assertEqual(flags, CONNECT_END)
        self.assertEqual(json.loads(end)["error"]["code"], "deadline_exceeded")


class GrpcWeb(Enveloped):
    CONTENT_TYPE = "application/grpc-web+proto"

    def test_unary(self):
        request = demo_pb2.GreetRequest(name="Ada").SerializeToString()
        _, received = self.post("/demo.v1.Greeter/Greet", self.CONTENT_TYPE, request)
        (flags, reply), (trailer_flags, trailers) = received
        self.assertEqual(flags, 0)
        self.assertEqual(demo_pb2.GreetReply.FromString(reply).text, "hello Ada")
        self.assertEqual(trailer_flags, WEB_TRAILERS)
        self.assertEqual(fields(trailers)["grpc-status"], "0")

    def test_server_stream(self):
        request = demo_pb2.WatchRequest(count=3).SerializeToString()
        _, received = self.post("/demo.v1.Greeter/Watch", self.CONTENT_TYPE, request)
        *ticks, (flags, trailers) = received
        self.assertEqual([demo_pb2.Tick.FromString(tick).n for _, tick in ticks], [0, 1, 2])
        self.assertEqual(flags, WEB_TRAILERS)
        self.assertEqual(fields(trailers)["grpc-status"], "0")

    def test_status(self):
        answer, received = self.post("/demo.v1.Greeter/Greet", self.CONTENT_TYPE, b"")
        # With no message, the status may also stand in the headers.
        status = fields(received[-1][1]) if received else answer.headers
        self.assertEqual(status["grpc-status"], "3")
        self.assertNotEqual(status["grpc-message"], "")


del Enveloped  # Has no cases of its own.


def envelopes(content):
    while content:
        flags, length = struct.unpack_from(">BI", content)
        yield flags, content[5 : 5 + length]
        content = content[5 + length :]


def fields(trailers):
    """The fields of a block of HTTP/1.1 trailers."""
    pairs = (line.partition(":") for line in trailers.decode().splitlines() if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


if __name__ == "__main__":
    unittest.main(verbosity=2)
