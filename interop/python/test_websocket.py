"""WebSocket by websockets, and by Node's ws with the client for browsers."""

import base64
import json
import random
import unittest

from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect

import node
from server import PATIENCE_SECONDS, Server


def request(method, params, id):
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": id})


def open_to(server, **options):
    return connect(f"ws://{server.address}/rpc", open_timeout=PATIENCE_SECONDS, max_size=None, **options)


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def receive(self, websocket):
        return json.loads(websocket.recv(PATIENCE_SECONDS))

    def test_json_rpc_in_text(self):
        for protocols in (None, ["jsonrpc"], ["other", "jsonrpc"]):
            with open_to(self.server, subprotocols=protocols) as websocket:
                self.assertEqual(websocket.subprotocol, "jsonrpc" if protocols else None)
                websocket.send(request("Greeter.Greet", ["Ada"], 1))
                self.assertEqual(self.receive(websocket)["result"], {"text": "hello Ada"})
            self.assertEqual(websocket.close_code, 1000)

    def test_fragments_and_pings(self):
        with open_to(self.server) as websocket:
            text = request("Greeter.Greet", {"name": "Ådå 🙂"}, "f")
            websocket.send(character for character in text)
            pong = websocket.ping(b"still there?")
            self.assertEqual(self.receive(websocket)["result"], {"text": "hello Ådå 🙂"})
            self.assertTrue(pong.wait(PATIENCE_SECONDS))

    def test_large_messages(self):
        with open_to(self.server) as websocket:
            for size in (125, 126, 65_535, 65_536, 1 << 20):
                websocket.send(request("Greeter.Greet", ["x" * size], size))
                self.assertEqual(len(self.receive(websocket)["result"]["text"]), len("hello ") + size)

    def test_too_large_messages(self):
        with open_to(self.server) as websocket:
            with self.assertRaises(ConnectionClosed):
                websocket.send(" " * (5 << 20))
                websocket.recv(PATIENCE_SECONDS)
        self.assertEqual(websocket.close_code, 1009)

    def test_binary_needs_its_sub_protocol(self):
        with open_to(self.server) as websocket:
            websocket.send(b"\xf5SWB")
            with self.assertRaises(ConnectionClosedError):
                websocket.recv(PATIENCE_SECONDS)
        self.assertEqual(websocket.close_code, 1003)

    def test_text_that_is_not_utf8(self):
        with open_to(self.server) as websocket:
            websocket.send(b"\xff", text=True)
            with self.assertRaises(ConnectionClosedError):
                websocket.recv(PATIENCE_SECONDS)
        self.assertEqual(websocket.close_code, 1007)

    def test_pages_of_other_origins_stay_out(self):
        with self.assertRaises(InvalidStatus) as caught:
            open_to(self.server, origin="http://elsewhere.example").close()
        self.assertEqual(caught.exception.response.status_code, 403)
        with open_to(self.server, origin=f"http://{self.server.address}") as websocket:
            websocket.send(request("Greeter.Greet", ["Ada"], 1))
            self.receive(websocket)

    def test_pages_of_listed_origins_may_come(self):
        origin = "http://elsewhere.example"
        with Server("--websocket-origin", origin) as server, open_to(server, origin=origin) as websocket:
            websocket.send(request("Greeter.Greet", ["Ada"], 1))
            self.receive(websocket)

    def test_by_ws_and_the_client_for_browsers(self):
        self.assertEqual(node.run("ws.cjs", self.server.address, node.BROWSER_CLIENT), "")


class Compressed(unittest.TestCase):
    """websockets offers compression by default; this server accepts it."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--websocket-deflate"))

    def echo(self, websocket, sizes=(0, 1, 300, 65_536, 1 << 20)):
        for size in sizes:
            for text in ("x" * size, random_text(size)):
                websocket.send(request("Greeter.Greet", [text + "."], size))
                answer = json.loads(websocket.recv(PATIENCE_SECONDS))
                self.assertEqual(answer["result"], {"text": f"hello {text}."})

    def test_the_default_offer_is_accepted(self):
        with open_to(self.server) as websocket:
            self.assertEqual(
                websocket.response.headers["Sec-WebSocket-Extensions"],
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            )
            self.echo(websocket)
            websocket.send(character for character in request("Greeter.Greet", ["x" * 2000], 1))
            self.assertEqual(len(json.loads(websocket.recv(PATIENCE_SECONDS))["result"]["text"]), 2006)

    def test_every_window_of_the_server(self):
        for bits in range(8, 16):
            offer = ClientPerMessageDeflateFactory(server_max_window_bits=bits, client_max_window_bits=True)
            with open_to(self.server, extensions=[offer], compression=None) as websocket:
                answer = websocket.response.headers["Sec-WebSocket-Extensions"]
                self.assertIn(f"server_max_window_bits={bits}", answer)
                self.echo(websocket, (300, 100_000))

    def test_answers_are_compressed(self):
        with open_to(self.server) as websocket:
            received = []
            decode = websocket.protocol.extensions[0].decode
            websocket.protocol.extensions[0].decode = lambda frame, **options: (
                received.append((frame.rsv1, len(frame.data))),
                decode(frame, **options),
            )[1]
            self.echo(websocket, (65_536,))
            (compressed, length), _ = received
            self.assertTrue(compressed and length < 1000, received)

    def test_a_bomb_is_refused(self):
        with open_to(self.server) as websocket:
            with self.assertRaises(ConnectionClosed):
                websocket.send(" " * (64 << 20))
                websocket.recv(PATIENCE_SECONDS)
        self.assertEqual(websocket.close_code, 1009)

    def test_nothing_is_compressed_by_default(self):
        with open_to(self.server, compression=None) as websocket:
            self.assertNotIn("Sec-WebSocket-Extensions", websocket.response.headers)
            self.echo(websocket, (65_536,))

    def test_by_ws_and_the_client_for_browsers(self):
        self.assertEqual(node.run("ws.cjs", self.server.address, node.BROWSER_CLIENT, "compressed"), "")


def random_text(size):
    return base64.b64encode(random.Random(size).randbytes(size)).decode()[:size]


class Drain(unittest.TestCase):
    def test_peers_get_a_close_frame(self):
        with Server("--drain-timeout", "5s") as server, open_to(server) as idle, open_to(server) as busy:
            for websocket in (idle, busy):
                websocket.send(request("Greeter.Greet", ["Ada"], 1))
                websocket.recv(PATIENCE_SECONDS)
            busy.send(request("Greeter.Watch", {"count": 3, "intervalMs": 50}, 2))
            busy.recv(PATIENCE_SECONDS)
            server.interrupt()
            rest = [json.loads(busy.recv(PATIENCE_SECONDS)) for _ in range(3)]
            self.assertEqual(rest[-1], {"jsonrpc": "2.0", "result": None, "id": 2})
            for websocket in (idle, busy):
                with self.assertRaises(ConnectionClosedOK):
                    websocket.recv(PATIENCE_SECONDS)
                self.assertEqual(websocket.close_code, 1001)
            self.assertEqual(server.exit_code(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
