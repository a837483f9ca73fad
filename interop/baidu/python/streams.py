"""Streaming RPC of brpc (frames `STRM`), written from its description and with nothing of Switchboard.

    streams.py client PORT    calls a server of Echo, a line for each case
    streams.py server         serves Echo; prints `listening on 127.0.0.1:PORT`

As in brpc:
- A stream that either side has closed is gone: what still comes for it is answered with RST, except for FEEDBACK.
- The client reads the response in a task of its own. If CLOSE comes before that task has run, the call fails.
- The server cannot write into a stream that its client has closed.
- FEEDBACK has the number of all consumed bytes, in each batch, and a full writer waits for it. The window is the
  writer's own (`max_buf_size`), 2 MiB by default, and the reader does not know it.
"""

import queue
import socket
import struct
import sys
import threading
import time

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

    def frame_of(self, kind):
        """The next frame that is no feedback, or the next feedback."""
        meta = {3: None}
        while meta[3] != kind:
            meta, payload = self.frame()
            assert meta[3] in (kind, FEEDBACK), meta
        return payload

    def message(self):
        payload = self.frame_of(DATA)
        return fields(payload).get(1, b"").decode()

    def close(self):
        self.frame_of(CLOSE)


class AsyncCall:
    """A call as brpc makes it: a thread reads frames, another one the messages, of which the response is the first."""

    def __init__(self, connection, method, request, id, late):
        self.call, self.late = Call(connection, method, request, id), late
        self.messages, self.failed, self.failure = queue.Queue(), threading.Event(), None
        self.read, self.consumed, self.theirs = [], 0, None
        self.consumer = threading.Thread(target=self.consume, daemon=True)
        self.consumer.start()

    def consume(self):
        response = self.messages.get()
        # The thread that has to read the response is late: the machine is busy.
        time.sleep(self.late)
        if self.failed.is_set():
            self.failure = "the stream was closed before the response was read"
            return
        magic, meta, _ = split(response)
        assert magic == b"PRPC", magic
        self.theirs = self.call.theirs = fields(meta[8])[1]
        while True:
            message = self.messages.get()
            if message is None:
                return
            self.read.append(fields(message).get(1, b"").decode())
            self.consumed += len(message)
            if message and not self.failed.is_set():
                self.call.send(FEEDBACK, consumed=self.consumed)

    def run(self):
        """Reads frames until the stream is closed; all messages."""
        while True:
            meta, payload = self.call.frame()
            if meta[3] == DATA:
                self.messages.put(payload)
                continue
            assert meta[3] == CLOSE, meta
            self.failed.set()
            self.messages.put(None)
            self.consumer.join()
            assert self.failure is None, self.failure
            return self.read


def short_streams(connection):
    """The end of a short stream does not overtake the response."""
    for at, (request, late) in enumerate([("1 3", 0.05), ("2 0", 0.05), ("0 0", 0.02), ("3 100000", 0.05)]):
        count = int(request.split()[0])
        read = AsyncCall(connection, "Count", text(request), 300 + at, late).run()
        assert len(read) == count, read


def small_window(connection):
    """A writer with `max_buf_size` of 64 KiB goes on once the reader has taken what was sent."""
    call = Call(connection, "Chat", b"", 21)
    call.answer()
    sent = consumed = replies = 0
    message = text("x" * 10_000)
    for _ in range(100):
        while sent >= consumed + 65_536:
            meta, payload = call.frame()
            if meta[3] == FEEDBACK:
                consumed = fields(meta[5])[1]
            else:
                replies += len(payload)
                call.send(FEEDBACK, consumed=replies)
        call.send(DATA, message)
        sent += len(message)
    call.send(RST)


def large_window(connection):
    """A writer with `max_buf_size` of 16 MiB waits for its reader, and loses nothing."""
    call = Call(connection, "Chat", b"", 22)
    call.answer()
    message, count = text("x" * 100_000), 100
    replies, lock = [], threading.Lock()

    def done():
        return sum(meta[3] == DATA for meta, _ in replies) == count

    def reader():
        consumed = 0
        while not done():
            meta, payload = call.frame()
            replies.append((meta, payload))
            if meta[3] == DATA:
                consumed += len(payload)
                # brpc writes feedback and messages through one queue; here through one socket.
                with lock:
                    call.send(FEEDBACK, consumed=consumed)

    read = threading.Thread(target=reader, daemon=True)
    read.start()
    for _ in range(count):
        with lock:
            call.send(DATA, message)
    read.join(20)
    assert done(), len(replies)
    call.send(RST)


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
    """Streams and calls side by side: none waits for the stream that is not read."""
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
    cases += [short_streams, small_window, large_window]
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
        self.connection, self.ours, self.theirs, self.window = connection, ours, theirs, WINDOW
        self.waiting, self.sent, self.consumed, self.received = [], 0, 0, 0
        self.parts, self.chats = b"", False

    def send(self, kind, payload=b"", **rest):
        self.connection.send(stream_frame(self.theirs, self.ours, kind, payload, **rest))

    def pump(self):
        """Sends what the window allows; whether all is sent, and the stream is closed."""
        while self.waiting and self.sent < self.consumed + self.window:
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
        method, query = request[2].decode(), fields(payload).get(1, b"").decode()
        success = data(2, number(1, 0)) + id
        if method == "Echo":
            # How many streams were reset so far.
            return self.connection.send(frame(b"PRPC", success, text(f"{self.resets} resets")))
        theirs = fields(meta[8])
        if query == "plain":
            return self.connection.send(frame(b"PRPC", success, text("no stream")))
        if query == "fail":
            failure = frame(b"PRPC", data(2, number(1, 2001) + data(2, b"not today")) + id)
            return self.connection.send(stream_frame(theirs[1], NO_STREAM, DATA, failure))
        self.opened += 1
        ours = self.opened << 32 | 5
        stream = self.streams[ours] = Stream(self.connection, ours, theirs[1])
        answer = frame(b"PRPC", success + settings(ours), text("welcome") if query == "welcome" else b"")
        stream.send(DATA, answer)
        stream.chats = method == "Chat"
        if not stream.chats:
            count, size, *rest = (int(part) for part in query.split()) if query[0].isdigit() else (0, 0)
            stream.window = rest[0] if rest else WINDOW
            stream.waiting = [text(str(at % 10) * size) for at in range(count)]
        if stream.pump():
            del self.streams[ours]

    def frame(self, meta, payload):
        stream = self.streams.get(meta[1])
        kind = meta[3]
        if stream is None:
            if kind != FEEDBACK and meta.get(2):
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
                query, stream.parts = fields(stream.parts).get(1, b"").decode(), b""
                # The handler writes its reply, and feedback for the bytes that it has read is sent when it
                # returns.
                stream.waiting.append(text(query.upper()))
                stream.pump()
                stream.send(FEEDBACK, consumed=stream.received)
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
