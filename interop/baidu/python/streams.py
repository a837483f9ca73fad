"""Streaming RPC of brpc (frames `STRM`), written from its description and with nothing of Switchboard.

    streams.py client PORT    asks a server of Echo, a line for each case
    streams.py server         serves Echo; prints `listening on 127.0.0.1:PORT`

As in brpc, a stream that its peer has closed is gone: what still comes for it is answered with RST.
"""

import socket
import struct
import sys
import threading

RST, CLOSE, DATA, FEEDBACK = 1, 2, 3, 4
NO_STREAM = 2**64 - 1
WINDOW = 2 << 20


def varint(number):
    number &= 2**64 - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The last value of each field."""
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = read()
        if tag & 7 == 0:
            found[tag >> 3] = read()
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            length = read()
            found[tag >> 3] = message[at : at + length]
            at += length
    return found


def frame(magic, meta, payload=b""):
    return magic + struct.pack(">II", len(meta) + len(payload), len(meta)) + meta + payload


def stream_frame(to, source, kind, payload=b"", more=False, consumed=None):
    meta = number(1, to) + number(2, source) + number(3, kind)
    if more:
        meta += number(4, 1)
    if consumed is not None:
        meta += data(5, number(1, consumed))
    return frame(b"STRM", meta, payload)


def settings(stream, writable=1):
    return data(8, number(1, stream) + number(2, 1) + number(3, writable))


def text(value):
    return data(1, value.encode())


def split(whole):
    """The magic, the fields of the meta and the payload of a frame."""
    body, meta = struct.unpack(">II", whole[4:12])
    assert len(whole) == 12 + body
    return whole[:4], fields(whole[12 : 12 + meta]), whole[12 + meta :]


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(20)

    def send(self, *frames):
        self.sock.sendall(b"".join(frames))

    def exactly(self, count):
        out = bytearray()
        while len(out) < count:
            read = self.sock.recv(count - len(out))
            if not read:
                raise EOFError
            out += read
        return bytes(out)

    def receive(self):
        header = self.exactly(12)
        return split(header + self.exactly(struct.unpack(">I", header[4:8])[0]))


# The client.


class Call:
    """A call with a stream, number `id` on both."""

    def __init__(self, connection, method, request, id, writable=1):
        self.connection, self.id = connection, id
        request = data(1, data(1, b"interop.baidu.Echo") + data(2, method.encode())), request
        connection.send(frame(b"PRPC", request[0] + number(4, id) + settings(id, writable), request[1]))

    def frame(self):
        magic, meta, payload = self.connection.receive()
        assert magic == b"STRM" and meta[1] == self.id, (magic, meta)
        return meta, payload

    def answer(self):
        """The response in the first message of the stream; the server's end of it."""
        meta, payload = self.frame()
        assert meta[3] == DATA and not meta.get(4), meta
        magic, response, message = split(payload)
        assert magic == b"PRPC" and response[4] == self.id, response
        outcome = fields(response.get(2, b""))
        if outcome.get(1):
            return None, outcome
        theirs = fields(response[8])
        assert theirs[1] == meta[2] and theirs[3] == 1 and message == b"", theirs
        self.theirs = theirs[1]
        return self.theirs, outcome

    def send(self, kind, payload=b"", **rest):
        self.connection.send(stream_frame(self.theirs, self.id, kind, payload, **rest))

    def message(self):
        meta, payload = self.frame()
        assert meta[3] == DATA, meta
        return fields(payload).get(1, b"").decode()

    def close(self):
        meta, _ = self.frame()
        assert meta[3] == CLOSE, meta


def counts(connection):
    call = Call(connection, "Count", text("3 2"), 11)
    assert call.answer()[0]
    assert [call.message() for _ in range(3)] == ["00", "11", "22"]
    call.close()


def chats(connection):
    call = Call(connection, "Chat", b"", 12)
    call.answer()
    call.send(DATA, text("one"))
    assert call.message() == "ONE"
    # In three parts, with a frame of another kind in between.
    two = text("two")
    call.send(DATA, two[:1], more=True)
    call.send(DATA, two[1:3], more=True)
    call.send(FEEDBACK, consumed=5)
    call.send(DATA, two[3:])
    assert call.message() == "TWO"
    call.send(CLOSE)
    call.close()
    # The request of the call is the first message.
    call = Call(connection, "Chat", text("first"), 13)
    call.answer()
    assert call.message() == "FIRST"
    call.send(RST)


def waits_for_feedback(connection):
    call = Call(connection, "Count", text("40 200000"), 14)
    call.answer()
    received = count = acknowledged = 0
    while count < 40:
        meta, payload = call.frame()
        assert meta[3] == DATA
        received += len(payload)
        count += 1
        # One message may go beyond the window.
        assert received - acknowledged < WINDOW + 200_100, received
        if received - acknowledged > WINDOW - 300_000:
            acknowledged = received
            call.send(FEEDBACK, consumed=acknowledged)
    call.close()


def gives_feedback(connection):
    call = Call(connection, "Chat", b"", 15, writable=0)
    call.answer()
    sent = 0
    for _ in range(20):
        message = text("x" * 100_000)
        call.send(DATA, message)
        sent += len(message)
    consumed = 0
    while consumed < sent // 2:
        meta, _ = call.frame()
        assert meta[3] == FEEDBACK, "who takes no messages gets none"
        now = fields(meta[5])[1]
        assert consumed < now <= sent
        consumed = now
    call.send(CLOSE)
    meta = {3: FEEDBACK}
    while meta[3] == FEEDBACK:
        meta, _ = call.frame()
    assert meta[3] == CLOSE, meta


def fails(connection):
    call = Call(connection, "Nope", b"", 16)
    stream, outcome = call.answer()
    assert stream is None and outcome[1] == 1002, outcome
    call = Call(connection, "Count", text("nonsense"), 17)
    stream, outcome = call.answer()
    assert stream is None and outcome[1] == 1003 and b"nonsense" in outcome[2], outcome
    # Once the stream is open only its end can say it, and the response in it.
    call = Call(connection, "Count", text("13 1"), 18)
    call.answer()
    for _ in range(13):
        call.message()
    meta, payload = call.frame()
    _, response, _ = split(payload)
    assert meta[3] == RST and b"unlucky" in fields(response[2])[2], meta


def unary_with_a_stream(connection):
    call = Call(connection, "Echo", text("abc"), 19)
    meta, payload = call.frame()
    _, response, message = split(payload)
    assert meta[2] == NO_STREAM and 8 not in response, "its stream was not accepted"
    assert fields(message)[1] == b"hello abc", message


def unknown_streams(connection):
    # A connection begins with a call: by that servers with several wires know it.
    request = data(1, data(1, b"Echo") + data(2, b"Echo")) + number(4, 1)
    connection.send(frame(b"PRPC", request, text("a")))
    connection.receive()
    connection.send(stream_frame(77, 78, FEEDBACK, consumed=1), stream_frame(77, 78, CLOSE))
    connection.send(stream_frame(77, 79, DATA, b"x"))
    magic, meta, _ = connection.receive()
    assert (magic, meta[1], meta[3]) == (b"STRM", 79, RST), meta


def many(connection):
    """Streams and calls side by side: nobody waits for the one that is not read."""
    slow = Call(connection, "Count", text("100 100000"), 20)
    slow.answer()
    for id in range(100, 200):
        request = data(1, data(1, b"Echo") + data(2, b"Echo")) + number(4, id)
        connection.send(frame(b"PRPC", request, text("a")))
    answered = 0
    while answered < 100:
        magic, meta, payload = connection.receive()
        if magic == b"PRPC":
            answered += 1
            assert fields(payload)[1] == b"hello a"
        else:
            assert meta[1] == 20 and meta[3] == DATA
    slow.send(RST)


def client(port):
    failed = 0
    cases = [counts, chats, waits_for_feedback, gives_feedback, fails, unary_with_a_stream, unknown_streams, many]
    for case in cases:
        connection = Connection(socket.create_connection(("127.0.0.1", port)))
        try:
            case(connection)
            print(f"{case.__name__}: passed")
        except Exception as error:
            failed += 1
            print(f"{case.__name__}: FAILED: {type(error).__name__} {error}")
        connection.sock.close()
    return failed


# The server.


class Stream:
    """A server's end of a stream."""

    def __init__(self, connection, ours, theirs):
        self.connection, self.ours, self.theirs = connection, ours, theirs
        self.waiting, self.sent, self.consumed, self.received = [], 0, 0, 0
        self.parts, self.chats = b"", False

    def send(self, kind, payload=b"", **rest):
        self.connection.send(stream_frame(self.theirs, self.ours, kind, payload, **rest))

    def pump(self):
        """Sends what the window allows; whether all is sent, and the stream is closed."""
        while self.waiting and self.sent < self.consumed + WINDOW:
            message = self.waiting.pop(0)
            self.sent += len(message)
            self.send(DATA, message)
        if self.waiting or self.chats:
            return False
        self.send(CLOSE)
        return True


class Server:
    def __init__(self, connection):
        self.connection, self.streams, self.opened, self.resets = connection, {}, 0, 0

    def run(self):
        try:
            while True:
                magic, meta, payload = self.connection.receive()
                self.call(meta, payload) if magic == b"PRPC" else self.frame(meta, payload)
        except (EOFError, OSError):
            self.connection.sock.close()

    def call(self, meta, payload):
        request, id = fields(meta[1]), number(4, meta.get(4, 0))
        method, asked = request[2].decode(), fields(payload).get(1, b"").decode()
        success = data(2, number(1, 0)) + id
        if method == "Echo":
            # How many streams were reset so far.
            return self.connection.send(frame(b"PRPC", success, text(f"{self.resets} resets")))
        theirs = fields(meta[8])
        if asked == "plain":
            return self.connection.send(frame(b"PRPC", success, text("no stream")))
        if asked == "fail":
            failure = frame(b"PRPC", data(2, number(1, 2001) + data(2, b"not today")) + id)
            return self.connection.send(stream_frame(theirs[1], NO_STREAM, DATA, failure))
        self.opened += 1
        ours = self.opened << 32 | 5
        stream = self.streams[ours] = Stream(self.connection, ours, theirs[1])
        answer = frame(b"PRPC", success + settings(ours), text("welcome") if asked == "welcome" else b"")
        stream.send(DATA, answer)
        stream.chats = method == "Chat"
        if not stream.chats:
            count, size = (int(part) for part in asked.split()) if asked[0].isdigit() else (0, 0)
            stream.waiting = [text(str(at % 10) * size) for at in range(count)]
        if stream.pump():
            del self.streams[ours]

    def frame(self, meta, payload):
        stream = self.streams.get(meta[1])
        kind = meta[3]
        if stream is None:
            if kind == DATA:
                self.connection.send(stream_frame(meta[2], 0, RST))
            return
        if kind == FEEDBACK:
            stream.consumed = fields(meta[5])[1]
            assert stream.consumed <= stream.sent
            if stream.pump():
                del self.streams[meta[1]]
        elif kind == DATA:
            stream.parts += payload
            stream.received += len(payload)
            if not meta.get(4):
                asked, stream.parts = fields(stream.parts).get(1, b"").decode(), b""
                stream.send(FEEDBACK, consumed=stream.received)
                stream.waiting.append(text(asked.upper()))
                stream.pump()
        else:
            self.resets += kind == RST
            del self.streams[meta[1]]
            if kind == CLOSE:
                stream.send(CLOSE)


def server():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        connection = Connection(listener.accept()[0])
        connection.sock.settimeout(None)
        threading.Thread(target=Server(connection).run, daemon=True).start()


if __name__ == "__main__":
    if sys.argv[1:] == ["server"]:
        server()
    elif sys.argv[1:2] == ["client"]:
        sys.exit(1 if client(int(sys.argv[2])) else 0)
    else:
        sys.exit(__doc__)
