"""JSON-RPC by jsonrpcclient, over HTTP and bare TCP, and by jayson."""

import json
import socket
import unittest
import urllib.error
import urllib.request

import jsonrpcclient
from jsonrpcclient import Error, Ok

import node
from server import PATIENCE_SECONDS, Server

GREET = "demo.v1.Greeter.Greet"


def setUpModule():
    global server
    server = unittest.enterModuleContext(Server())


class OverHttp(unittest.TestCase):
    def post(self, content, path="/rpc", content_type="application/json"):
        """Returns the status and the body."""
        request = urllib.request.Request(
            f"http://{server.address}{path}", json.dumps(content).encode(), {"content-type": content_type}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return response.status, response.read().decode()

    def ask(self, request):
        status, body = self.post(request)
        self.assertEqual(status, 200)
        return jsonrpcclient.parse_json(body)

    def test_a_request(self):
        answer = self.ask(jsonrpcclient.request(GREET, {"name": "Ada"}, id=7))
        self.assertEqual(answer, Ok({"text": "hello Ada"}, 7))

    def test_positional_parameters(self):
        self.assertEqual(self.ask(jsonrpcclient.request(GREET, ["Ada"], id="x")), Ok({"text": "hello Ada"}, "x"))

    def test_errors(self):
        answer = self.ask(jsonrpcclient.request(GREET, id=1))
        self.assertIsInstance(answer, Error)
        self.assertEqual((answer.code, answer.data["grpcCode"]), (-32602, 3))
        self.assertEqual(self.ask(jsonrpcclient.request("no.such", id=1)).code, -32601)

    def test_a_notification(self):
        self.assertEqual(self.post(jsonrpcclient.notification(GREET, {"name": "Ada"})), (204, ""))

    def test_a_batch(self):
        batch = [
            jsonrpcclient.request(GREET, ["a"]),
            jsonrpcclient.notification(GREET, ["b"]),
            jsonrpcclient.request("Greeter.Nope"),
        ]
        answers = {answer.id: answer for answer in self.ask(batch)}
        self.assertEqual(len(answers), 2)
        self.assertEqual(answers[batch[0]["id"]].result, {"text": "hello a"})
        self.assertEqual(answers[batch[2]["id"]].code, -32601)

    def test_a_wrong_content_type(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.post(jsonrpcclient.request(GREET), content_type="text/plain")
        self.assertEqual(caught.exception.code, 415)
        caught.exception.close()


class OverTcp(unittest.TestCase):
    def setUp(self):
        address = ("127.0.0.1", server.port)
        self.socket = self.enterContext(socket.create_connection(address, PATIENCE_SECONDS))
        self.lines = self.enterContext(self.socket.makefile("r"))

    def test_requests_on_lines_and_without(self):
        texts = [jsonrpcclient.request_json(GREET, [str(n)], id=n) for n in range(20)]
        self.socket.sendall("\n".join(texts[:10]).encode() + "".join(texts[10:]).encode())
        answers = [jsonrpcclient.parse_json(self.lines.readline()) for _ in texts]
        self.assertEqual(sorted(answers, key=lambda ok: ok.id), [Ok({"text": f"hello {n}"}, n) for n in range(20)])

    def test_a_stream(self):
        self.socket.sendall(jsonrpcclient.request_json("Greeter.Watch", {"count": 3}, id="s").encode())
        ticks = [json.loads(self.lines.readline()) for _ in range(3)]
        self.assertEqual([tick["method"] for tick in ticks], ["rpc.stream"] * 3)
        self.assertEqual([tick["params"]["result"].get("n", 0) for tick in ticks], [0, 1, 2])
        self.assertEqual(jsonrpcclient.parse_json(self.lines.readline()), Ok(None, "s"))

    def test_nonsense_between_requests(self):
        self.socket.sendall(b"{nonsense}\n" + jsonrpcclient.request_json(GREET, ["Ada"], id=1).encode())
        self.assertEqual(jsonrpcclient.parse_json(self.lines.readline()).code, -32700)
        self.assertEqual(jsonrpcclient.parse_json(self.lines.readline()), Ok({"text": "hello Ada"}, 1))


class ByJayson(unittest.TestCase):
    def test_over_http_tcp_and_websocket(self):
        self.assertEqual(node.run("jayson.cjs", server.address), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
