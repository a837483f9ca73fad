"""redis-py on the port of a server with the plugin for Redis."""

import contextlib
import json
import socket
import threading
import time
import unittest

import redis
from server import LIMIT, Server


class Case(unittest.TestCase):
    options = ()

    def setUp(self):
        self.exit = contextlib.ExitStack()
        self.server = Server(*self.options)
        self.exit.callback(self.server.end)

    def tearDown(self):
        self.exit.close()

    def client(self, **options):
        once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        client = redis.Redis(
            port=self.server.port, socket_timeout=LIMIT, **{"protocol": 3, "retry": once, **options}
        )
        self.exit.callback(client.close)
        return client

    def versions(self):
        """A client of each version of the protocol."""
        for protocol in (2, 3):
            with self.subTest(protocol=protocol):
                yield self.client(protocol=protocol)

    def messages(self, pubsub, count):
        """The next messages, without confirmations."""
        received, end = [], time.monotonic() + LIMIT
        while len(received) < count:
            self.assertLess(time.monotonic(), end, received)
            message = pubsub.get_message(timeout=1)
            if message and message["type"].endswith("message"):
                received.append((message["type"], message["pattern"], message["channel"], message["data"]))
        return received

    def subscriber(self, client, *channels, patterns=()):
        """A subscriber whose subscriptions are confirmed."""
        pubsub = client.pubsub()
        self.exit.callback(pubsub.close)
        if channels:
            pubsub.subscribe(*channels)
        if patterns:
            pubsub.psubscribe(*patterns)
        for _ in range(len(channels) + len(patterns)):
            self.assertIn(pubsub.get_message(timeout=LIMIT)["type"], ("subscribe", "psubscribe"))
        return pubsub


class PubSub(Case):
    def test_handshake(self):
        for client in self.versions():
            self.assertTrue(client.ping())
            self.assertEqual(client.echo("hi"), b"hi")
            self.assertTrue(client.client_setname("me"))
            self.assertIn(client.client_getname(), (b"me", "me"))
            self.assertGreater(client.client_id(), 0)
            self.assertEqual(client.info()["redis_mode"], "standalone")
            self.assertTrue(client.select(0))
            self.assertEqual(client.config_get("databases"), {"databases": "1"})
            with self.assertRaisesRegex(redis.ResponseError, "unknown command 'GET'"):
                client.get("key")
        named = self.client(client_name="mine", db=0)
        self.assertIn(named.client_getname(), (b"mine", "mine"))

    def test_channels_and_patterns(self):
        for client in self.versions():
            pubsub = self.subscriber(client, "news.art", "other", patterns=("news.*", "h[ae]llo"))
            self.assertEqual(client.publish("news.art", "one"), 2)
            self.assertEqual(client.publish("hallo", b"\x00\xff\r\n"), 1)
            self.assertEqual(client.publish("hillo", "none"), 0)
            self.assertEqual(
                self.messages(pubsub, 2),
                [
                    ("message", None, b"news.art", b"one"),
                    ("pmessage", b"news.*", b"news.art", b"one"),
                ],
            )
            self.assertEqual(self.messages(pubsub, 1), [("pmessage", b"h[ae]llo", b"hallo", b"\x00\xff\r\n")])
            self.assertEqual(sorted(client.pubsub_channels()), [b"news.art", b"other"])
            self.assertEqual(client.pubsub_channels("n*"), [b"news.art"])
            self.assertEqual(client.pubsub_numsub("news.art", "x"), [(b"news.art", 1), (b"x", 0)])
            self.assertEqual(client.pubsub_numpat(), 2)
            pubsub.unsubscribe()
            pubsub.punsubscribe()
            while pubsub.subscribed:
                pubsub.get_message(timeout=LIMIT)
            self.assertEqual(client.publish("news.art", "gone"), 0)

    def test_shard_channels_are_channels(self):
        client = self.client()
        pubsub = client.pubsub()
        self.exit.callback(pubsub.close)
        pubsub.ssubscribe("news")
        self.assertEqual(pubsub.get_message(timeout=LIMIT)["type"], "ssubscribe")
        self.assertEqual(client.spublish("news", "one"), 1)
        self.assertEqual(self.messages(pubsub, 1), [("smessage", None, b"news", b"one")])

    def test_a_pipeline_of_a_thousand_commands(self):
        for client in self.versions():
            pubsub = self.subscriber(client, "t")
            pipeline = client.pipeline(transaction=False)
            for at in range(500):
                pipeline.publish("t", str(at))
                pipeline.echo(str(at))
            replies = pipeline.execute()
            self.assertEqual(replies, [reply for at in range(500) for reply in (1, b"%d" % at)])
            self.assertEqual([message[3] for message in self.messages(pubsub, 500)], [b"%d" % at for at in range(500)])
            pubsub.close()

    def test_topics_are_those_of_native_callers(self):
        client = self.client()
        pubsub = self.subscriber(client, "quotes/acme", patterns=("quotes/*",))
        self.assertRegex(self.server.ask("publish quotes/acme 12.5"), "published 1")
        self.assertEqual(
            self.messages(pubsub, 2),
            [
                ("message", None, b"quotes/acme", b"12.5"),
                ("pmessage", b"quotes/*", b"quotes/acme", b"12.5"),
            ],
        )
        self.assertEqual(client.publish("orders", "one"), 0)
        self.assertEqual(self.server.ask("next"), "entry quotes/acme 12.5")
        self.assertEqual(self.server.ask("next"), "entry orders one")

    def test_calls(self):
        for client in self.versions():
            echo = json.dumps({"text": "grüß"})
            self.assertEqual(json.loads(client.execute_command("CALL", "interop.v1.Desk/Echo", echo)), "grüß")
            with self.assertRaisesRegex(redis.ResponseError, "FAILED_PRECONDITION not today"):
                client.execute_command("CALL", "interop.v1.Desk/Fail", '{"text":"not today"}')
            with self.assertRaisesRegex(redis.ResponseError, "UNIMPLEMENTED unknown method interop.v1.Desk/No"):
                client.execute_command("CALL", "interop.v1.Desk/No", "{}")
            with self.assertRaisesRegex(redis.ResponseError, "INVALID_ARGUMENT"):
                client.execute_command("CALL", "interop.v1.Desk/Echo", "{")
            # The calls of other connections go on.
            waiting = threading.Thread(
                target=client.execute_command, args=("CALL", "interop.v1.Desk/Wait", '{"text":"x"}')
            )
            waiting.start()
            self.assertEqual(json.loads(client.execute_command("CALL", "interop.v1.Desk/Echo", echo)), "grüß")
            self.assertEqual(self.server.ask("go"), "gone")
            waiting.join(LIMIT)
            self.assertFalse(waiting.is_alive())

    def test_a_subscriber_finds_a_server_that_was_started_again(self):
        client = self.client(retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), 200))
        pubsub = self.subscriber(client, "t", patterns=("p*",))
        self.server.process.kill()
        self.server.process.wait()
        again = Server(self.server.port)
        self.exit.callback(again.end)
        end = time.monotonic() + LIMIT
        # redis-py subscribes again when it reads.
        while client.publish("t", "again") == 0 or client.publish("p1", "again") == 0:
            with contextlib.suppress(redis.ConnectionError):
                pubsub.get_message(timeout=0.05)
            self.assertLess(time.monotonic(), end)
        channels = {message[2] for message in self.messages(pubsub, 2)}
        self.assertEqual(channels, {b"t", b"p1"})

    def test_names_that_are_no_topics(self):
        client = self.client()
        for name, rule in (("$own", "reserved"), ("x" * 257, "256"), ("a/*", "wildcard"), (b"\xff", "UTF-8")):
            with self.subTest(name), self.assertRaisesRegex(redis.ResponseError, rule):
                client.publish(name, "x")
        pubsub = client.pubsub()
        self.exit.callback(pubsub.close)
        pubsub.subscribe("$own")
        with self.assertRaisesRegex(redis.ResponseError, "reserved"):
            pubsub.get_message(timeout=LIMIT)

    def test_the_server_ends_with_its_clients(self):
        client = self.client()
        pubsub = self.subscriber(client, "t")
        self.assertEqual(self.server.ask("stop"), "stopped")
        self.assertEqual(self.server.process.wait(LIMIT), 0)
        with self.assertRaises(redis.ConnectionError):
            while True:
                pubsub.get_message(timeout=LIMIT)


class Input(Case):
    def closed(self, request):
        """What the server answers before it closes the connection."""
        with self.server.connect() as bare:
            bare.sendall(request)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while part := bare.recv(4096):
                    received += part
            return received

    def test_bad_input(self):
        cases = {
            b"*-3\r\n": b"invalid multibulk length",
            b"*1048577\r\n": b"invalid multibulk length",
            b"*1\r\n$-3\r\n": b"invalid bulk length",
            b"*1\r\n$4294967296\r\n": b"invalid bulk length",
            b"*1\r\n$2\r\nPING\r\n": b"does not end after 2 bytes",
            b"*1\r\n$4\r\nPING\r\nPING\r\n": b"inline commands are disabled",
            b"*1\r\n$4\r\nPOST\r\n": b"is of HTTP",
            b"*1\r\n$5\r\nHost:\r\n": b"is of HTTP",
        }
        pubsub = self.subscriber(self.client(), "t")
        for request, rule in cases.items():
            with self.subTest(request):
                received = self.closed(request).removeprefix(b"+PONG\r\n")
                self.assertTrue(received.startswith(b"-ERR Protocol error: ") and rule in received, received)
        self.server.until(lambda stats: stats["protocol_errors"] == len(cases))
        # An inline command as the first bytes is of no protocol of the port.
        self.assertEqual(self.closed(b"\x01PING\r\n"), b"")
        # Others are not affected.
        self.assertEqual(self.client().publish("t", "x"), 1)
        self.assertEqual(self.messages(pubsub, 1)[0][3], b"x")

    def test_a_request_in_pieces(self):
        with self.server.connect() as bare:
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"*2\r\n$4\r\nPING\r\n$5\r\nhello\r\n":
                bare.sendall(bytes([byte]))
            received = b""
            while len(received) < 11:
                received += bare.recv(64)
            self.assertEqual(received, b"$5\r\nhello\r\n")


class Slow(Case):
    options = ("small",)

    def test_a_subscriber_that_does_not_read_is_closed(self):
        client = self.client()
        fast = self.subscriber(client, "t")
        with self.server.connect() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nt\r\n")
            while client.pubsub_numsub("t") != [(b"t", 2)]:
                pass
            body = b"x" * 10_000
            for _ in range(40):
                for _ in range(50):
                    client.publish("t", body)
                self.assertEqual(len(self.messages(fast, 50)), 50)
            self.server.until(lambda stats: stats["lagged"] == 1)
        self.assertEqual(client.pubsub_numsub("t"), [(b"t", 1)])
        self.assertEqual(self.server.stats()["missed"], 0)


class Credentials(Case):
    options = ("auth",)

    def test_credentials(self):
        for protocol in (2, 3):
            with self.subTest(protocol=protocol):
                for name, options in (("ali", {"password": "secret"}), ("bob", {"username": "bob", "password": "pass"})):
                    client = self.client(protocol=protocol, **options)
                    self.assertEqual(client.publish("t", "x"), 0)
                    caller = client.execute_command("CALL", "interop.v1.Desk/Caller", "{}")
                    self.assertEqual(json.loads(caller), name)
                for options in ({"password": "wrong"}, {"username": "bob", "password": "secret"}, {}):
                    client = self.client(protocol=protocol, **options)
                    with self.assertRaises((redis.AuthenticationError, redis.ResponseError)):
                        client.publish("t", "x")
        self.assertGreaterEqual(self.server.stats()["rejected_credentials"], 4)

    def test_a_subscriber_with_credentials(self):
        client = self.client(password="secret")
        pubsub = self.subscriber(client, "t")
        self.assertEqual(client.publish("t", "x"), 1)
        self.assertEqual(self.messages(pubsub, 1)[0][3], b"x")


if __name__ == "__main__":
    unittest.main()
