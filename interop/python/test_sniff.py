"""Connections that are slow, silent or speak no known protocol.

No case measures time. A server whose sniff limit is short shows that the limit ends a connection; one whose
limit is longer than any case waits shows that something else did.
"""

import http.client
import json
import socket
import struct
import unittest

from server import PATIENCE_SECONDS, Server

SHORT = ("--sniff-timeout", "300ms")
LONG = ("--sniff-timeout", "600s")

BODY = b'{"name":"Ada"}'
REQUEST = (
    b"POST /demo.v1.Greeter/Greet HTTP/1.1\r\nhost: switchboard\r\ncontent-type: application/json\r\n"
    + b"content-length: %d\r\n\r\n" % len(BODY)
    + BODY
)
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP2_SETTINGS = 4


class SniffTest(unittest.TestCase):
    limit = LONG

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(*cls.limit))

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_SECONDS)
        # Each send is a packet of its own.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.enterContext(connection)

    def send_byte_by_byte(self, connection, content):
        for byte in content:
            connection.sendall(bytes([byte]))

    def assert_greeted(self, connection):
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        content = json.loads(answer.read())
        self.assertEqual((answer.status, content), (200, {"text": "hello Ada"}))

    def assert_closed(self, connection):
        """The peer closes without a word."""
        try:
            self.assertEqual(connection.recv(1024), b"")
        except ConnectionResetError:
            pass

    def assert_still_serving(self):
        connection = self.connect()
        connection.sendall(REQUEST)
        self.assert_greeted(connection)


class WithoutHaste(SniffTest):
    limit = LONG

    def test_http1_byte_by_byte(self):
        connection = self.connect()
        self.send_byte_by_byte(connection, REQUEST)
        self.assert_greeted(connection)

    def test_http1_again_on_the_same_connection(self):
        connection = self.connect()
        for _ in range(3):
            connection.sendall(REQUEST)
            self.assert_greeted(connection)

    def test_http2_byte_by_byte(self):
        connection = self.connect()
        empty_settings = struct.pack(">IBI", HTTP2_SETTINGS, 0, 0)
        self.send_byte_by_byte(connection, HTTP2_PREFACE + empty_settings)
        frame = self.receive(connection, 9)
        self.assertEqual(frame[3], HTTP2_SETTINGS, frame)

    def receive(self, connection, length):
        received = b""
        while len(received) < length:
            more = connection.recv(length - len(received))
            self.assertNotEqual(more, b"", f"closed after {received}")
            received += more
        return received

    def test_unknown_first_bytes_are_closed_at_once(self):
        for first in (b"\x99\x01\x02\x03", b"\xfe" * 64):
            with self.subTest(first):
                connection = self.connect()
                connection.sendall(first)
                self.assert_closed(connection)
        self.assert_still_serving()

    def test_peer_that_leaves_undecided(self):
        for first in (b"", b"P", b"PRI * HTT"):
            self.connect().sendall(first)
        self.assert_still_serving()


class WithHaste(SniffTest):
    limit = SHORT

    def test_silence_is_closed(self):
        self.assert_closed(self.connect())
        self.assert_still_serving()

    def test_undecided_first_bytes_are_closed(self):
        for first in (b"P", b"PRI * HTT"):
            with self.subTest(first):
                connection = self.connect()
                connection.sendall(first)
                self.assert_closed(connection)

    def test_limit_ends_with_the_decision(self):
        served = self.connect()
        served.sendall(REQUEST)
        self.assert_greeted(served)
        # When this one, opened later, was closed, the limit has passed for the first as well.
        self.assert_closed(self.connect())
        served.sendall(REQUEST)
        self.assert_greeted(served)


del SniffTest  # Has no cases of its own.

if __name__ == "__main__":
    unittest.main(verbosity=2)
