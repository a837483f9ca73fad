"""ZWS 2.0 on the port of a server: a WebSocket client of a few lines, with each mechanism, and what it must not do."""

import base64
import json
import os
import socket
import struct
import unittest

from peer import LIMIT
from test_server import Case


class WebSocket:
    """A client that sends and receives binary messages."""

    def __init__(self, address, path, *offered):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), LIMIT)
        self.stream = self.socket.makefile("rb")
        protocols = f"Sec-WebSocket-Protocol: {', '.join(offered)}\r\n" if offered else ""
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"{protocols}\r\n".encode()
        )
        self.status = int(self.stream.readline().split()[1])
        self.headers = {}
        while line := self.stream.readline().strip():
            name, value = line.decode().split(": ", 1)
            self.headers[name.lower()] = value
        self.subprotocol = self.headers.get("sec-websocket-protocol")

    def send(self, message, opcode=2, fin=True):
        length = len(message)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 1 << 16:
            size = b"\xfe" + struct.pack(">H", length)
        else:
            size = b"\xff" + struct.pack(">Q", length)
        self.socket.sendall(bytes([(0x80 if fin else 0) | opcode]) + size + b"\0\0\0\0" + message)

    def receive(self):
        """The next message, or the code and the reason of a CLOSE."""
        head, length = self.stream.read(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.stream.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.stream.read(8))
        body = self.stream.read(length)
        return body if head & 15 == 2 else (struct.unpack(">H", body[:2])[0], body[2:].decode())

    def end(self):
        self.stream.close()
        self.socket.close()


def command(name, *data):
    return b"\x02" + bytes([len(name)]) + name + b"".join(data)


def socket_type(name):
    return b"\x0bSocket-Type" + struct.pack(">I", len(name)) + name


class WebSockets(Case):
    def open(self, path, *offered):
        client = WebSocket(self.server.address, path, *offered)
        self.exit.callback(client.end)
        return client


class Zws(WebSockets):
    def test_null(self):
        client = self.open("/", "other", "ZWS2.0/NULL", "ZWS2.0")
        self.assertEqual((client.status, client.subprotocol), (101, "ZWS2.0/NULL"))
        client.send(command(b"READY", socket_type(b"REQ")))
        self.assertTrue(client.receive().startswith(b"\x02\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"))
        # Large frames, and a message of the WebSocket in fragments.
        text = json.dumps({"text": "x" * 200_000}).encode()
        client.send(b"\x01")
        client.send(b"\x01interop.v1.Clock/Ping")
        client.send(b"\x00" + text[:1000], fin=False)
        client.send(text[1000:90_000], opcode=0, fin=False)
        client.send(text[90_000:], opcode=0)
        self.assertEqual(client.receive(), b"\x01")
        self.assertEqual(client.receive(), b"\x01OK")
        self.assertEqual(client.receive(), b"\x00" + json.dumps("x" * 200_000).encode())
        client.send(command(b"PING", b"\0\0context"))
        self.assertEqual(client.receive(), command(b"PONG", b"context"))

    def test_subscriptions(self):
        client = self.open("/any/path", "ZWS2.0/NULL")
        client.send(command(b"READY", socket_type(b"SUB")))
        client.receive()
        client.send(command(b"SUBSCRIBE", b"t/"))
        # A PONG follows the subscription.
        client.send(command(b"PING", b"\0\0"))
        self.assertEqual(client.receive(), command(b"PONG"))
        self.server.ask("publish other no")
        self.server.ask("publish t/1 one")
        self.assertEqual([client.receive(), client.receive()], [b"\x01t/1", b"\x00one"])

    def test_without_a_handshake_the_path_names_the_socket_type(self):
        client = self.open("/zmtp/req", "ZWS2.0")
        self.assertEqual(client.subprotocol, "ZWS2.0")
        client.send(b"\x00me")
        self.assertEqual(client.receive(), b"\x00", "the routing id of the server")
        client.send(b"\x01")
        client.send(b'\x00{"text": "hello"}')
        self.assertEqual([client.receive(), client.receive()], [b"\x01", b'\x00"hello"'])
        client = self.open("/zmtp", "ZWS2.0")
        self.assertEqual(client.status, 400)
        self.assertIn(b"name the type of the client in the path, /zmtp/pub", client.stream.readline())

    def test_messages_that_are_not_valid(self):
        for message, reason in [(b"", "no flags"), (b"\x04x", "flags 0x04"), (b"\x03x", "flags 0x03")]:
            client = self.open("/", "ZWS2.0/NULL")
            client.send(message)
            code, text = client.receive()
            self.assertEqual(code, 1002)
            self.assertIn(reason, text)
        # A type that is not served.
        client = self.open("/", "ZWS2.0/NULL")
        client.send(command(b"READY", socket_type(b"PAIR")))
        self.assertTrue(client.receive().startswith(b"\x02\x05ERROR"))
        self.server.until_closed("socket_type", 1)
        # Text is no message of ZWS.
        client = self.open("/", "ZWS2.0/NULL")
        client.send(b"text", opcode=1)
        self.assertEqual(client.receive()[0], 1003)

    def test_other_callers_of_websockets_are_not_affected(self):
        client = self.open("/", "jsonrpc")
        self.assertEqual((client.status, client.subprotocol), (101, "jsonrpc"))
        client = self.open("/", "ZWS2.0/CURVE")
        self.assertEqual(client.status, 400)
        self.assertIn(b"offer the sub-protocol ZWS2.0/NULL", client.stream.readline())


class Plain(WebSockets):
    OPTIONS = ("plain",)

    def log_in(self, password):
        client = self.open("/", "ZWS2.0", "ZWS2.0/PLAIN")
        self.assertEqual(client.subprotocol, "ZWS2.0/PLAIN")
        client.send(command(b"HELLO", b"\x05alice", bytes([len(password)]), password))
        return client

    def test_a_login(self):
        client = self.log_in(b"secret")
        self.assertEqual(client.receive(), command(b"WELCOME"))
        client.send(command(b"INITIATE", socket_type(b"REQ")))
        self.assertTrue(client.receive().startswith(b"\x02\x05READY"))
        for frame in [b"\x01", b"\x01interop.v1.Clock/Who", b"\x00{}"]:
            client.send(frame)
        self.assertEqual([client.receive() for _ in range(3)], [b"\x01", b"\x01OK", b'\x00"alice"'])
        self.assertEqual(self.log_in(b"wrong").receive(), command(b"ERROR", b"\x03400"))
        # No way around the credentials.
        for offered in ["ZWS2.0", "ZWS2.0/NULL"]:
            self.assertEqual(self.open("/zmtp/sub", offered).status, 400)


if __name__ == "__main__":
    unittest.main()
