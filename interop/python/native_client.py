"""A client for Switchboard's native wire, written from docs/native-wire.md alone.

One thread, blocking sockets, the standard library: the shortest thing that keeps every rule of the document.
Messages are bytes; who calls encodes and decodes them.
"""

import collections
import contextlib
import gzip
import itertools
import socket
import struct
import zlib

import blocks

PREFACE = b"\xf5SWB\x01\0\0\0"
DEFAULT_WINDOW = 65536

SETTINGS, METHOD, CALL, HEAD, ITEM, REPLY, END, CANCEL, CREDIT, PING, GO_AWAY = range(11)
FLAG_END = FLAG_ANSWER = FLAG_SCHEMA = 1
FLAG_MESSAGE = 2
FLAG_COMPRESSED = 4
FLAG_ONEWAY = 8

MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, CALLS_MAX, STREAM_WINDOW_BYTES, METHODS_MAX, ENCODINGS = range(1, 7)
PROTO, JSON = 1, 2
IDENTITY, GZIP, ZSTD, DEFLATE, SNAPPY, LZ4 = range(6)

# Those that the standard library has, and those that are quickly written.
COMPRESS = {
    GZIP: gzip.compress,
    DEFLATE: zlib.compress,
    SNAPPY: blocks.snappy_compress,
    LZ4: blocks.lz4_compress,
}
DECOMPRESS = {
    GZIP: gzip.decompress,
    DEFLATE: zlib.decompress,
    SNAPPY: blocks.snappy_decompress,
    LZ4: blocks.lz4_decompress,
}

CANCELED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 1, 3, 4, 5
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 8, 12, 13, 14

Frame = collections.namedtuple("Frame", "kind flags aux call body")


class Status(Exception):
    """How a call failed."""

    def __init__(self, code, text="", details=(), metadata=(), retry=0, pause_ms=0):
        super().__init__(f"code {code}: {text}")
        self.code, self.text, self.details, self.metadata = code, text, list(details), list(metadata)
        self.retry, self.pause_ms = retry, pause_ms


class Closed(Exception):
    """The server has closed the connection; `reason` is what its GO_AWAY said."""

    def __init__(self, reason):
        super().__init__(reason or "without a word")
        self.reason = reason


class Connection:
    """One connection; the call that waits reads the frames of all calls."""

    def __init__(self, address, patience=30, window=4 * DEFAULT_WINDOW, preface=PREFACE):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=patience)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = b""
        self._preface_seen = False
        self._numbers = itertools.count(1)
        self._methods = {}
        self.window = window
        self.calls = {}
        self.settings = {}
        self.go_away = None
        self.pongs = []
        self.ended = None
        self.send_bytes(preface)
        self.send(SETTINGS, body=struct.pack("<HI", STREAM_WINDOW_BYTES, window))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send_bytes(self, content):
        self._socket.sendall(content)

    def send(self, kind, flags=0, aux=0, call=0, body=b""):
        self.send_bytes(struct.pack("<IBBHI", len(body), kind, flags, aux, call) + body)

    def close_half(self):
        """Sends no more; what the server does then is under "A connection" in the document."""
        self._socket.shutdown(socket.SHUT_WR)

    def ping(self, number=0):
        """Waits for the answer."""
        self.send(PING, call=number)
        while number not in self.pongs:
            self.pump()
        self.pongs.remove(number)

    def unary(self, method, message, **options):
        """Makes the call and returns it once it has succeeded; its only message is `result`."""
        call = self.start(method, message, **options)
        call.wait()
        return call

    def start(
        self,
        method,
        message=None,
        more=False,
        timeout_ms=0,
        metadata=(),
        oneway=False,
        codec=PROTO,
        encoding=IDENTITY,
    ):
        """Begins a call; with an encoding, which SETTINGS must have allowed, its messages are compressed."""
        call = Call(self, next(self._numbers), encoding)
        if not oneway:
            self.calls[call.number] = call
        flags = (0 if more else FLAG_END) | (FLAG_ONEWAY if oneway else 0)
        if message is not None:
            compressed, message = call.pack(message)
            flags |= FLAG_MESSAGE | compressed
            if more:
                call.credit -= max(1, len(message))
        block = encode_metadata(metadata)
        body = struct.pack("<IBBH", timeout_ms, codec, encoding, len(block)) + block + (message or b"")
        self.send(CALL, flags, self.number_of(method), call.number, body)
        return call

    def number_of(self, method, schema=None):
        """The number of the method on this connection; names it first if need be."""
        if method not in self._methods:
            self._methods[method] = len(self._methods)
            flags, extra = (0, b"") if schema is None else (FLAG_SCHEMA, struct.pack("<Q", schema))
            self.send(METHOD, flags, self._methods[method], body=extra + method.encode())
        return self._methods[method]

    def pump(self):
        """Reads one frame and handles it."""
        frame = self.receive()
        call = self.calls.get(frame.call)
        match frame.kind:
            case kind if kind == SETTINGS:
                self._learn(frame.body)
            case kind if kind == PING:
                if frame.flags & FLAG_ANSWER:
                    self.pongs.append(frame.call)
                else:
                    self.send(PING, FLAG_ANSWER, call=frame.call)
            case kind if kind == GO_AWAY:
                self.go_away = (frame.aux, frame.body.decode())
            case _ if call is not None:
                call.hear(frame)
        return frame

    def receive(self):
        """The next frame as it is."""
        if not self._preface_seen:
            preface = self._take(len(PREFACE))
            assert preface[:5] == PREFACE[:5], preface
            self._preface_seen = True
        length, kind, flags, aux, call = struct.unpack("<IBBHI", self._take(12))
        return Frame(kind, flags, aux, call, self._take(length))

    def _take(self, length):
        while len(self._input) < length:
            try:
                more = self._socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed(self.go_away and self.go_away[1])
            self._input += more
        taken, self._input = self._input[:length], self._input[length:]
        return taken

    def _learn(self, body):
        before = self.initial_credit
        self.settings = dict(struct.iter_unpack("<HI", body))
        for call in self.calls.values():
            call.credit += self.initial_credit - before

    @property
    def initial_credit(self):
        return self.settings.get(STREAM_WINDOW_BYTES, DEFAULT_WINDOW)


class Call:
    """A call in flight."""

    def __init__(self, connection, number, encoding=IDENTITY):
        self.connection, self.number, self.encoding = connection, number, encoding
        self.compressed = 0
        self.credit = connection.initial_credit
        self.head, self.trailers = [], []
        self.waits = 0
        self._messages = collections.deque()
        self._taken = 0
        self._end = None

    def pack(self, message):
        """The flag and the bytes of a message."""
        if self.encoding == IDENTITY:
            return 0, message
        return FLAG_COMPRESSED, COMPRESS[self.encoding](message)

    def send(self, message):
        """Sends a further message, once there is credit; says nothing when the call has ended."""
        compressed, message = self.pack(message)
        if self.credit <= 0:
            self.waits += 1
        while self.credit <= 0 and self._end is None:
            self.connection.pump()
        if self._end is None:
            self.credit -= max(1, len(message))
            self.connection.send(ITEM, compressed, call=self.number, body=message)

    def finish(self):
        """Half-close: no more messages."""
        self.connection.send(END, FLAG_END, call=self.number)

    def cancel(self):
        self.connection.send(CANCEL, call=self.number)
        self.connection.calls.pop(self.number, None)
        self._end = Status(CANCELED)

    def next(self):
        """The next message, or none at the end; raises the status of a failure."""
        while not self._messages and self._end is None:
            self.connection.pump()
        if self._messages:
            message = self._messages.popleft()
            self._grant(max(1, len(message.body)))
            return self._read(message)
        if isinstance(self._end, Status):
            raise self._end
        return None

    def __iter__(self):
        return iter(self.next, None)

    def wait(self):
        """Waits for the end of the call without taking its messages."""
        while self._end is None:
            self.connection.pump()
        if isinstance(self._end, Status):
            raise self._end

    @property
    def waiting(self):
        """Messages that have arrived and were not taken."""
        return len(self._messages)

    @property
    def result(self):
        (message,) = self._messages
        return self._read(message)

    def hear(self, frame):
        match frame.kind:
            case kind if kind == HEAD:
                self.head = decode_metadata(frame.body)
            case kind if kind == ITEM:
                self._messages.append(frame)
            case kind if kind == REPLY:
                self._messages.append(frame)
                self._finished(True)
            case kind if kind == END:
                self._finished(self._read_end(frame))
            case kind if kind == CREDIT:
                self.credit += struct.unpack("<I", frame.body)[0]

    def _read(self, frame):
        if not frame.flags & FLAG_COMPRESSED:
            return frame.body
        self.compressed += 1
        return DECOMPRESS[self.encoding](frame.body)

    def _finished(self, end):
        self._end = end
        self.connection.calls.pop(self.number, None)

    def _read_end(self, frame):
        if not frame.body:
            return True if frame.aux == 0 else Status(frame.aux)
        retry, _, metadata_len, pause_ms, text_len = struct.unpack_from("<BBHII", frame.body)
        rest = frame.body[12:]
        metadata = decode_metadata(rest[:metadata_len])
        if frame.aux == 0:
            self.trailers = metadata
            return True
        text = rest[metadata_len : metadata_len + text_len].decode()
        rest, details = rest[metadata_len + text_len :], []
        while rest:
            name_len, value_len = struct.unpack_from("<HI", rest)
            name, rest = rest[6 : 6 + name_len].decode(), rest[6 + name_len :]
            details.append((name, rest[:value_len]))
            rest = rest[value_len:]
        return Status(frame.aux, text, details, metadata, retry, pause_ms)

    def _grant(self, length):
        self._taken += length
        if self._taken >= self.connection.window // 4 and self._end is None:
            self.connection.send(CREDIT, call=self.number, body=struct.pack("<I", self._taken))
            self._taken = 0


def encode_metadata(entries):
    block = b""
    for name, value in entries:
        value = value if isinstance(value, bytes) else value.encode()
        block += struct.pack("<BH", len(name), len(value)) + name.encode() + value
    return block


def decode_metadata(block):
    entries = []
    while block:
        name_len, value_len = struct.unpack_from("<BH", block)
        name, value = block[3 : 3 + name_len].decode(), block[3 + name_len : 3 + name_len + value_len]
        entries.append((name, value if name.endswith("-bin") else value.decode()))
        block = block[3 + name_len + value_len :]
    return entries


def end_of(connection):
    """Reads until the server closes, and returns why."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            try:
                connection.pump()
            except Closed as closed:
                return closed.reason
