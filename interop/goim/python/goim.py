"""A client of goim and of im-cloud, written from the description of their protocol: TCP and WebSocket."""

import base64
import hashlib
import json
import os
import socket
import struct

LIMIT = 30
HEADER = struct.Struct(">ihhii")
HEARTBEAT, HEARTBEAT_REPLY, MESSAGE, AUTH, AUTH_REPLY, RAW = 2, 3, 4, 7, 8, 9
CHANGE_ROOM, SUBSCRIBE, UNSUBSCRIBE = 12, 14, 16


def packet(operation, body=b"", sequence=1, version=1):
    return HEADER.pack(16 + len(body), 16, version, operation, sequence) + body


def packets(data):
    """The packets that bytes consist of: (operation, sequence, body)."""
    found = []
    while data:
        length, header, _, operation, sequence = HEADER.unpack(data[:16])
        assert header == 16 and 16 <= length <= len(data), data
        found.append((operation, sequence, data[16:length]))
        data = data[length:]
    return found


class Tcp:
    """A connection on TCP."""

    is_websocket = False

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT)

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data

    def receive(self):
        """The next packet."""
        header = self.exactly(16)
        length, header_length, _, operation, sequence = HEADER.unpack(header)
        assert header_length == 16, header
        return operation, sequence, self.exactly(length - 16)

    def is_closed(self):
        """Waits for the end of the connection."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        return True


class WebSocket(Tcp):
    """A connection in a WebSocket."""

    is_websocket = True

    def __init__(self, port, path="/sub", version=13, origin=None, cookie=None):
        super().__init__(port)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            f"Sec-WebSocket-Version: {version}",
            *([f"Origin: {origin}"] if origin else []),
            *([f"Cookie: {cookie}"] if cookie else []),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.exactly(1)
        self.status = int(head.split()[1])
        accept = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        if self.status == 101:
            assert base64.b64encode(accept) in head, head
            assert b"sec-websocket-protocol" not in head.lower(), head

    def frame(self, kind, data, bits=0x80):
        mask = os.urandom(4)
        if len(data) < 126:
            head = struct.pack(">BB", bits | kind, 0x80 | len(data))
        elif len(data) < 65536:
            head = struct.pack(">BBH", bits | kind, 0x80 | 126, len(data))
        else:
            head = struct.pack(">BBQ", bits | kind, 0x80 | 127, len(data))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self.socket.sendall(head + mask + masked)

    def send(self, data):
        self.frame(2, data)

    def message(self):
        """The next frame: its kind and its payload."""
        first, second = self.exactly(2)
        assert first & 0x80, "one frame for each message"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self.exactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.exactly(8))
        return first & 0x0F, self.exactly(length)

    def receive(self):
        """The next packet, which is a whole message."""
        kind, data = self.message()
        assert kind == 2, (kind, data)
        ((operation, sequence, body),) = packets(data)
        return operation, sequence, body

    def close_code(self):
        """The code of the server's CLOSE."""
        kind, data = self.message()
        while kind != 8:
            kind, data = self.message()
        return struct.unpack(">H", data[:2])[0]


class Client:
    """A device."""

    def __init__(self, link, variant="goim"):
        self.link, self.variant, self.sequence, self.pending = link, variant, 0, []

    def close(self):
        self.link.close()

    def request(self, operation, body=b""):
        self.sequence += 1
        self.link.send(packet(operation, body, self.sequence))
        return self.sequence

    def ask(self, operation, reply, body=b""):
        """Sends a request; the body of its reply. Pushes before it are kept."""
        sequence = self.request(operation, body)
        while True:
            received = self.link.receive()
            if received[:2] == (reply, sequence):
                return received[2]
            self.pending.extend(self.unpack(received))

    def auth(self, mid=1, room="live://1", accepts=(1000, 1001), platform="web", **members):
        body = {"mid": mid, "room_id": room, "platform": platform, "accepts": list(accepts), **members}
        return self.ask(AUTH, AUTH_REPLY, json.dumps(body).encode())

    def heartbeat(self):
        body = self.ask(HEARTBEAT, HEARTBEAT_REPLY)
        return struct.unpack(">i", body)[0] if self.variant == "goim" else body

    def change_room(self, room):
        return self.ask(CHANGE_ROOM, CHANGE_ROOM + 1, room.encode())

    def unpack(self, received):
        """The pushes of a packet: (operation, body)."""
        operation, _, body = received
        if self.variant == "goim" and self.link.is_websocket:
            assert operation == RAW, received
            return [(inner, payload) for inner, _, payload in packets(body)]
        return [(operation, body)]

    def pushes(self, count):
        """The next pushes: (operation, body)."""
        while len(self.pending) < count:
            self.pending.extend(self.unpack(self.link.receive()))
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken
