"""The cases of Thrift's cross tests, from the Python library to our server, in every protocol and transport."""

import os
import socket
import struct
import subprocess
import sys
import unittest
import zlib
from contextlib import contextmanager

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolAccelerated
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.THeaderTransport import (
    THeaderClientType,
    THeaderSubprotocolID,
    THeaderTransformID,
)
from thrift.transport.THttpClient import THttpClient
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport

import thrift_test as t

# Long enough for a loaded machine; nothing waits this long when all is well.
PATIENCE_MS = 30_000


def header(transport, protocol=THeaderSubprotocolID.BINARY, compressed=False):
    made = THeaderProtocol(transport, (THeaderClientType.HEADERS,), protocol)
    if compressed:
        made.add_transform(THeaderTransformID.ZLIB)
    return made


WAYS = {
    "binary, framed": lambda socket: TBinaryProtocol(TFramedTransport(socket)),
    "binary, buffered": lambda socket: TBinaryProtocol(TBufferedTransport(socket)),
    "binary in C, framed": lambda socket: TBinaryProtocolAccelerated(TFramedTransport(socket)),
    "binary without a version, framed": lambda socket: TBinaryProtocol(TFramedTransport(socket), strictWrite=False),
    "compact, framed": lambda socket: TCompactProtocol(TFramedTransport(socket)),
    "compact, buffered": lambda socket: TCompactProtocol(TBufferedTransport(socket)),
    "compact in C, framed": lambda socket: TCompactProtocolAccelerated(TFramedTransport(socket)),
    "header, binary": header,
    "header, compact": lambda socket: header(socket, THeaderSubprotocolID.COMPACT),
    "header, binary, zlib": lambda socket: header(socket, compressed=True),
}

def post(socket):
    return THttpClient(f"http://127.0.0.1:{socket.port}/any/path")


# One call after the other: each flush is a request, and waits for its answer.
BY_POST = {
    "binary, HTTP": lambda socket: TBinaryProtocol(post(socket)),
    "compact, HTTP": lambda socket: TCompactProtocol(post(socket)),
}


class Server:
    """`thrift-server`, as a context manager; `port` is where it listens."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [os.environ["THRIFT_SERVER"]],
            stdout=subprocess.PIPE,
            text=True,
            # A handler that panics is part of the tests.
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    @contextmanager
    def connected(self, way, service=None, multiplexed=None):
        transport = TSocket("127.0.0.1", self.server.port)
        transport.setTimeout(PATIENCE_MS)
        transport.open()
        protocol = {**WAYS, **BY_POST}[way](transport)
        if multiplexed:
            protocol = TMultiplexedProtocol(protocol, multiplexed)
        try:
            yield t.Client(protocol, service)
        finally:
            protocol.trans.close()
            transport.close()

    def everywhere(self, check, ways=(*WAYS, *BY_POST)):
        for way in ways:
            with self.subTest(way), self.connected(way) as client:
                check(client)

    def echoes(self, name, *values):
        def check(client):
            for value in values:
                self.assertEqual(getattr(client, name)(value), value)

        self.everywhere(check)

    def test_void(self):
        self.everywhere(lambda client: self.assertIsNone(client.testVoid()))

    def test_string(self):
        self.echoes("testString", "", "Python" * 20, "Afrikaans, Ελληνικά, 日本語, quote: \" backslash: \\ \0", "x" * 100_000)

    def test_bool(self):
        self.echoes("testBool", True, False)

    def test_byte(self):
        self.echoes("testByte", 63, -127, -128, 127, 0)

    def test_i32(self):
        self.echoes("testI32", -1, 0, 2**31 - 1, -(2**31))

    def test_i64(self):
        self.echoes("testI64", 1, -34359738368, 2**63 - 1, -(2**63))

    def test_double(self):
        self.echoes("testDouble", 5.235098235, 0.0, -1.5e300, float("inf"))

    def test_binary(self):
        self.echoes("testBinary", b"", bytes(range(256)))

    def test_uuid(self):
        self.echoes("testUuid", t.SOME_UUID)

    def test_struct(self):
        self.echoes("testStruct", t.Xtruct("Zero", 1, -3, -5), t.Xtruct("", 0, 0, 0))

    def test_nest(self):
        self.echoes("testNest", t.Xtruct2(0, t.Xtruct("Zero", 1, -3, -5), 0))

    def test_map(self):
        self.echoes("testMap", {0: 1, 1: 2, -1: 2**31 - 1}, {})

    def test_string_map(self):
        self.echoes("testStringMap", {"a": "2", "b": "blah", "": ""}, {})

    def test_set(self):
        self.echoes("testSet", {8, 1, 42}, set())

    def test_list(self):
        self.echoes("testList", [1, 4, 9, -42], [], list(range(100)))

    def test_enum(self):
        self.echoes("testEnum", t.FIVE, 77)

    def test_typedef(self):
        self.echoes("testTypedef", 0xFFFFFFFFFFFFFF)

    def test_map_map(self):
        self.everywhere(lambda client: self.assertEqual(client.testMapMap(42), t.Handler().testMapMap(42)))

    def test_insanity(self):
        argument = t.Insanity({t.ONE: 1, t.FIVE: 5}, [t.Xtruct("Goodbye4", 4, 4, 4), t.Xtruct("Hello2", 2, 2, 2)])
        expected = t.Handler().testInsanity(argument)
        self.everywhere(lambda client: self.assertEqual(client.testInsanity(argument), expected))

    def test_multi(self):
        values = (74, 0xFF00FF, 0xFFFFFFFFD0D0, {0: "abc"}, t.FIVE, 0xF0F0F0)
        expected = t.Xtruct("Hello2", 74, 0xFF00FF, 0xFFFFFFFFD0D0)
        self.everywhere(lambda client: self.assertEqual(client.testMulti(*values), expected))

    def test_exception(self):
        def check(client):
            client.testException("Safe")
            with self.assertRaises(t.Xception) as thrown:
                client.testException("Xception")
            self.assertEqual((thrown.exception.errorCode, thrown.exception.message), (1001, "Xception"))
            for text, says in [("TException", "not_found: an undeclared error"), ("panic", "internal: ")]:
                with self.assertRaises(TApplicationException) as thrown:
                    client.testException(text)
                self.assertEqual(thrown.exception.type, TApplicationException.INTERNAL_ERROR)
                self.assertTrue(thrown.exception.message.startswith(says), thrown.exception.message)
            client.testException("success")

        self.everywhere(check)

    def test_multi_exception(self):
        def check(client):
            with self.assertRaises(t.Xception) as thrown:
                client.testMultiException("Xception", "ignore")
            self.assertEqual((thrown.exception.errorCode, thrown.exception.message), (1001, "This is an Xception"))
            with self.assertRaises(t.Xception2) as thrown:
                client.testMultiException("Xception2", "ignore")
            self.assertEqual(thrown.exception.errorCode, 2002)
            self.assertEqual(thrown.exception.struct_thing.string_thing, "This is an Xception2")
            self.assertEqual(client.testMultiException("success", "foobar").string_thing, "foobar")

        self.everywhere(check)

    def test_oneway(self):
        def check(client):
            before = client.countOneway()
            client.testOneway(0)
            # Over HTTP the next request may be handled before the handler of this one has ended.
            if not any(client.countOneway() == before + 1 for _ in range(1000)):
                self.fail("a one-way call was not handled")

        self.everywhere(check)

    # Beyond the list: what else a schema can say.

    def test_inherited(self):
        self.everywhere(lambda client: self.assertEqual(client.ping("x"), "pong: x"))

    def test_nesting(self):
        insanity = t.Insanity({t.SIX: 6}, [])
        self.echoes(
            "testNesting",
            t.CrazyNesting("x", {insanity}, [{}], b"\x00\xff", t.SOME_UUID),
            t.CrazyNesting("", None, [], b"", t.SOME_UUID),
        )

    def test_union(self):
        inner = t.SomeUnion(i32_thing=-1)
        self.echoes(
            "testUnion",
            t.SomeUnion(map_thing={t.ONE: 1}),
            t.SomeUnion(xtruct_thing=t.Xtruct("a", 1, 2, 3)),
            t.SomeUnion(several=[inner, t.SomeUnion(several=[inner])]),
        )

    def test_tree(self):
        leaf = t.Tree(1, None, None, [])
        self.echoes("testTree", t.Tree(0, leaf, t.Tree(2, leaf, None, [leaf]), [leaf, leaf]))

    def test_defaults(self):
        def check(client):
            answer = client.testDefaults(t.Defaults())
            self.assertEqual((answer.number, answer.text, answer.flag), (16, 'he said "hi"', True))
            self.assertEqual((answer.table, answer.doubles), ({"a": [1, 2], "b": []}, {1.0, 2.5, -0.0}))
            self.assertEqual((answer.numberz, answer.xtruct), (t.FIVE, t.Xtruct("x", 0, 7, 0)))
            self.assertEqual((answer.none, answer.ratio), (None, 0.0))
            # Without its argument at all.
            self.assertEqual(client.testDefaults(None).number, 16)

        self.everywhere(check)

    def test_unknown_method(self):
        unknown = t.methods(t.Method("testNothing", [t.STRING], t.STRING))

        for way in WAYS:
            with self.subTest(way), self.connected(way, {**t.THRIFT_TEST, **unknown}) as client:
                with self.assertRaises(TApplicationException) as thrown:
                    client.testNothing("x")
                self.assertEqual(thrown.exception.type, TApplicationException.UNKNOWN_METHOD)
                self.assertEqual(client.testI32(5), 5)

    def test_arguments_that_do_not_parse(self):
        # A required field is missing.
        with self.connected("binary, framed") as client:
            with self.assertRaises(TApplicationException) as thrown:
                client.testNesting(t.CrazyNesting("x"))
            self.assertEqual(thrown.exception.type, TApplicationException.PROTOCOL_ERROR)
            self.assertIn("list_field", thrown.exception.message)
            self.assertEqual(client.testI32(5), 5)

    def test_multiplexed(self):
        for way in WAYS:
            with self.subTest(way), self.connected(way, t.SECOND, "SecondService") as client:
                self.assertEqual(client.secondtestString("foo"), 'testString("foo")')
                self.assertEqual(client.testString("foo"), "second foo")
            with self.connected(way, None, "ThriftTest") as client:
                self.assertEqual(client.testString("foo"), "foo")

    def test_ten_calls_at_once(self):
        method = t.THRIFT_TEST["testI32"]

        def check(client):
            for number in range(10):
                client.send(method, [number], sequence=-number)
            for number in range(10):
                self.assertEqual(client.receive(method, -number), number)

        self.everywhere(check, WAYS)

    def test_headers(self):
        with self.connected("header, binary") as client:
            client.protocol.set_header(b"tenant", b"a")
            self.assertEqual(client.testString("x"), "x")
            self.assertEqual(client.protocol.get_headers(), {b"served-for": b"a"})

    def test_one_byte_at_a_time(self):
        from thrift.transport.TTransport import TMemoryBuffer

        for name in ["compact, buffered", "binary, framed", "header, binary"]:
            buffer = TMemoryBuffer()
            way = WAYS[name]
            writer = t.Client(way(buffer))
            writer.send(t.THRIFT_TEST["testStringMap"], [{"a": "b"}])
            request = buffer.getvalue()
            with self.subTest(name), socket.create_connection(("127.0.0.1", self.server.port), 30) as raw:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for byte in request:
                    raw.sendall(bytes([byte]))
                transport = TSocket()
                transport.setHandle(raw)
                reader = t.Client(way(transport))
                reader.sequence = 1
                self.assertEqual(reader.receive(t.THRIFT_TEST["testStringMap"]), {"a": "b"})

    def test_hostile_bytes(self):
        call = b"\x80\x01\x00\x01\x00\x00\x00\x08testList\x00\x00\x00\x01\x0f\x00\x01"
        framed = lambda body: struct.pack(">I", len(body)) + body
        sizes = call + b"\x08\x7f\xff\xff\xff"
        deep = b"\x80\x01\x00\x01\x00\x00\x00\x08testList\x00\x00\x00\x01" + b"\x0c\x00\x02" * 65 + b"\x00" * 66
        bomb = zlib.compress(bytes(50 << 20))
        headed = b"\x0f\xff\0\0\0\0\0\x01\0\x01\x00\x01\x01\x00" + bomb
        for name, hostile, keeps in [
            ("a list of 2^31-1", framed(sizes + b"\x00"), True),
            ("the same without a frame", sizes + b"\x00", False),
            ("depth 65", framed(deep), True),
            ("depth 65 without a frame", deep, False),
            ("an empty frame", framed(b""), False),
            ("a frame over the limit", struct.pack(">I", 90 << 20) + call, False),
            ("a compact number of 11 bytes", b"\x82\x21" + b"\xff" * 11, False),
            ("zlib with 50 MB inside", framed(headed), False),
        ]:
            with self.subTest(name), socket.create_connection(("127.0.0.1", self.server.port), 30) as raw:
                raw.sendall(hostile)
                if keeps:
                    # An answer, and the connection goes on.
                    size = struct.unpack(">I", raw.recv(4, socket.MSG_WAITALL))[0]
                    answer = raw.recv(size, socket.MSG_WAITALL)
                    self.assertEqual(answer[3], 3, answer)
                    raw.sendall(framed(b"\x80\x01\x00\x01\x00\x00\x00\x08testVoid\x00\x00\x00\x02\x00"))
                    self.assertTrue(raw.recv(100))
                else:
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(4096):
                        pass
        with self.connected("binary, framed") as client:
            self.assertEqual(client.testI32(1), 1)


if __name__ == "__main__":
    if "THRIFT_SERVER" not in os.environ:
        sys.exit("THRIFT_SERVER names the program to test")
    unittest.main()
