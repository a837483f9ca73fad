"""HTTP/JSON as curl speaks it, and the services' own description before a validator of OpenAPI."""

import gzip
import http.client
import json
import os
import subprocess
import unittest

import openapi_spec_validator

from server import PATIENCE_SECONDS, Server

CURL = os.environ.get("SWITCHBOARD_PEER") or "curl"
JSON = "application/json"


def setUpModule():
    global server
    server = unittest.enterModuleContext(Server())


def curl(path, *options):
    """Returns the HTTP status, the content type and the body."""
    command = [CURL, "--silent", "--show-error", "--max-time", str(PATIENCE_SECONDS)]
    command += ["--write-out", r"\n%{http_code} %{content_type}", *options]
    command.append(f"http://{server.address}{path}")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    if ended.returncode != 0:
        raise AssertionError(ended.stderr)
    body, _, outcome = ended.stdout.rpartition("\n")
    status, _, content_type = outcome.partition(" ")
    return int(status), content_type, body


def lines(body):
    return [json.loads(line) for line in body.splitlines()]


class Unary(unittest.TestCase):
    def assert_answered(self, answer, expected):
        status, content_type, body = answer
        self.assertEqual((status, content_type), (200, JSON), body)
        self.assertEqual(json.loads(body), expected)

    def test_variable_in_the_path(self):
        for option in ["--http1.0", "--http1.1", "--http2-prior-knowledge"]:
            self.assert_answered(curl("/v1/greetings/Ada%20L", option), {"text": "hello Ada L"})

    def test_query(self):
        _, _, body = curl("/v1/posts?tag=rpc&limit=1")
        (post,) = json.loads(body)["posts"]
        self.assertEqual((post["author"], post["time"]), ("ada", "1790000000"))

    def test_head(self):
        status, content_type, text = curl("/v1/greetings/Ada", "--head")
        self.assertEqual((status, content_type), (200, JSON), text)

    def test_post_without_a_body(self):
        status, _, body = curl("/demo.v1.Posts/Query", "--request", "POST", "--header", f"content-type: {JSON}")
        self.assertEqual(status, 200, body)
        self.assertEqual(len(json.loads(body)["posts"]), 6)

    def test_charset(self):
        options = ["--header", f"content-type: {JSON}; charset=utf-8", "--data", '{"name":"Ada"}']
        self.assert_answered(curl("/demo.v1.Greeter/Greet", *options), {"text": "hello Ada"})

    def test_compressed_answer(self):
        name = "x" * 2000
        status, _, text = curl(f"/v1/greetings/{name}", "--compressed", "--include")
        self.assertEqual(status, 200, text)
        self.assertIn("content-encoding: ", text.lower())
        self.assertEqual(json.loads(text.splitlines()[-1]), {"text": f"hello {name}"})

    def test_compressed_request(self):
        connection = http.client.HTTPConnection(server.address, timeout=PATIENCE_SECONDS)
        self.addCleanup(connection.close)
        headers = {"content-type": JSON, "content-encoding": "gzip"}
        # The body goes to a stream's method: unary ones by name are Connect's.
        for body, status in [(b'{"count":1}', 200), (b" " * 10_000_000, 413)]:
            connection.request("POST", "/demo.v1.Greeter/Watch", gzip.compress(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            self.assertEqual(answer.status, status, content)

    def test_metadata(self):
        status, _, text = curl("/v1/greetings/Ada", "--include", "--header", "grpc-metadata-x-echo: round trip")
        self.assertEqual(status, 200, text)
        self.assertIn("grpc-metadata-x-echo: round trip", [line.lower().rstrip() for line in text.splitlines()])


class Streams(unittest.TestCase):
    def test_lines(self):
        status, content_type, body = curl("/v1/ticks?count=3")
        self.assertEqual((status, content_type), (200, JSON), body)
        self.assertEqual(lines(body), [{"result": {}}, {"result": {"n": 1}}, {"result": {"n": 2}}])

    def test_events(self):
        status, content_type, body = curl("/v1/ticks?count=2", "--header", "accept: text/event-stream")
        self.assertEqual((status, content_type), (200, "text/event-stream"), body)
        self.assertEqual(body, 'data: {}\n\ndata: {"n":1}\n\nevent: end\ndata: {}\n\n')

    def test_lines_of_requests(self):
        options = ["--header", f"content-type: {JSON}", "--data-binary", '{"value":2}\n{"value":"40"}\n']
        status, _, body = curl("/demo.v1.Greeter/Sum", *options)
        self.assertEqual((status, json.loads(body)), (200, {"sum": "42", "count": 2}))

    def test_lines_both_ways(self):
        options = ["--header", f"content-type: {JSON}", "--data-binary", '{"text":"one"}\n{"text":"two"}']
        status, _, body = curl("/demo.v1.Greeter/Chat", *options)
        self.assertEqual(status, 200, body)
        self.assertEqual(lines(body), [{"result": {"text": "ONE"}}, {"result": {"text": "TWO"}}])

    def test_deadline(self):
        _, _, body = curl("/v1/ticks?count=10&interval_ms=1000", "--header", "grpc-timeout: 200m")
        self.assertEqual(lines(body)[-1]["error"]["code"], 4)


class Errors(unittest.TestCase):
    def assert_refused(self, answer, status, code, part):
        self.assertEqual(answer[:2], (status, JSON), answer)
        error = json.loads(answer[2])
        self.assertEqual(error["code"], code)
        self.assertIn(part, error["message"])

    def test_status(self):
        self.assert_refused(curl("/v1/ticks?count=0"), 400, 3, "count is 0")

    def test_unknown_parameter(self):
        self.assert_refused(curl("/v1/posts?nope=1"), 400, 3, "has no field `nope`")

    def test_wrong_parameter(self):
        self.assert_refused(curl("/v1/posts?limit=many"), 400, 3, "`many` is not a number")

    def test_unknown_path(self):
        self.assert_refused(curl("/v1/nope"), 404, 5, "GET /v1/posts")

    def test_wrong_verb(self):
        self.assert_refused(curl("/v1/posts", "--request", "DELETE"), 405, 12, "this path has GET")

    def test_form(self):
        self.assert_refused(curl("/demo.v1.Greeter/Watch", "--data", "count=1"), 415, 3, "send JSON")


class OpenApi(unittest.TestCase):
    def test_document_is_valid(self):
        status, content_type, body = curl("/openapi.json")
        self.assertEqual((status, content_type), (200, JSON))
        document = json.loads(body)
        openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
        self.assertIn("get", document["paths"]["/v1/greetings/{name}"])
        self.assertIn("post", document["paths"]["/bench.v1.Bench/Message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
