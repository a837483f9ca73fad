"""The native wire as a client in another language meets it, written from docs/native-wire.md."""

import struct
import unittest

import native_client as native
from native_client import Connection, Status
from schema import bench_pb2, demo_pb2
from server import PATIENCE_SECONDS, Server

GREET = "demo.v1.Greeter/Greet"
WATCH = "demo.v1.Greeter/Watch"
SUM = "demo.v1.Greeter/Sum"
CHAT = "demo.v1.Greeter/Chat"
ECHO = "bench.v1.Bench/Echo"
STREAM = "bench.v1.Bench/Stream"


def greet_request(name):
    return demo_pb2.GreetRequest(name=name).SerializeToString()


class NativeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def connect(self, **options):
        return self.enterContext(Connection(self.server.address, patience=PATIENCE_SECONDS, **options))

    def setUp(self):
        self.connection = self.connect()

    def greet(self, name="Ada", connection=None, **options):
        call = (connection or self.connection).unary(GREET, greet_request(name), **options)
        self.assertEqual(demo_pb2.GreetReply.FromString(call.result).text, f"hello {name}")
        return call

    def refused(self, code, act):
        with self.assertRaises(Status) as caught:
            act()
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class Unary(NativeTest):
    def test_answer(self):
        self.greet()
        self.greet("Zoë 🦀")

    def test_settings_come_first(self):
        self.assertEqual(self.connection.pump().kind, native.SETTINGS)
        self.assertGreaterEqual(self.connection.settings[native.STREAM_WINDOW_BYTES], native.DEFAULT_WINDOW)
        self.assertGreater(self.connection.settings[native.CALLS_MAX], 0)

    def test_json(self):
        call = self.connection.unary(GREET, b'{"name":"Ada"}', codec=native.JSON)
        self.assertEqual(call.result.replace(b" ", b""), b'{"text":"helloAda"}')

    def test_metadata_comes_back(self):
        call = self.greet(metadata=[("x-echo", "round trip"), ("trace-bin", b"\0\xff")])
        self.assertEqual(call.head, [("x-echo", "round trip")])
        self.assertEqual(call.trailers, [("x-echo-trailer", "round trip")])

    def test_large_and_empty_messages(self):
        payload = bytes(range(256)) * 4096 * 3
        for message in (bench_pb2.EchoMessage(payload=payload), bench_pb2.EchoMessage()):
            call = self.connection.unary(ECHO, message.SerializeToString())
            self.assertEqual(bench_pb2.EchoMessage.FromString(call.result), message)

    def test_many_calls_in_flight(self):
        names = [f"caller {number}" for number in range(500)]
        calls = [self.connection.start(GREET, greet_request(name)) for name in names]
        for name, call in zip(names, calls):
            call.wait()
            self.assertEqual(demo_pb2.GreetReply.FromString(call.result).text, f"hello {name}")

    def test_one_way(self):
        call = self.connection.start(GREET, greet_request("Ada"), oneway=True)
        # What comes for it would come before the answer to the ping.
        self.connection.ping(7)
        self.assertEqual((call.waiting, self.connection.calls), (0, {}))

    def test_byte_by_byte(self):
        class Slow(Connection):
            def send_bytes(self, content):
                for byte in content:
                    super().send_bytes(bytes([byte]))

        with Slow(self.server.address, patience=PATIENCE_SECONDS) as connection:
            self.greet(connection=connection)


class Streams(NativeTest):
    def test_server_stream(self):
        request = demo_pb2.WatchRequest(count=10_000).SerializeToString()
        ticks = [demo_pb2.Tick.FromString(item).n for item in self.connection.start(WATCH, request)]
        self.assertEqual(ticks, list(range(10_000)))

    def test_client_stream(self):
        call = self.connection.start(SUM, more=True)
        for value in range(2000):
            call.send(demo_pb2.Number(value=value).SerializeToString())
        call.finish()
        call.wait()
        total = demo_pb2.Total.FromString(call.result)
        self.assertEqual((total.sum, total.count), (sum(range(2000)), 2000))

    def test_client_stream_that_ends_with_its_call(self):
        call = self.connection.unary(SUM, demo_pb2.Number(value=7).SerializeToString())
        self.assertEqual(demo_pb2.Total.FromString(call.result).count, 1)
        call = self.connection.start(SUM)
        call.wait()
        self.assertEqual(demo_pb2.Total.FromString(call.result).count, 0)

    def test_both_ways_in_step(self):
        call = self.connection.start(CHAT, demo_pb2.Note(text="first").SerializeToString(), more=True)
        self.assertEqual(demo_pb2.Note.FromString(call.next()).text, "FIRST")
        for number in range(20):
            call.send(demo_pb2.Note(text=f"note {number}").SerializeToString())
            self.assertEqual(demo_pb2.Note.FromString(call.next()).text, f"NOTE {number}")
        call.finish()
        self.assertIsNone(call.next())

    def test_upload_waits_for_credit(self):
        call = self.connection.start(STREAM, more=True)
        message = bench_pb2.EchoMessage(payload=b"x" * 50_000).SerializeToString()
        for _ in range(60):
            call.send(message)
            while call.waiting:
                self.assertEqual(call.next(), message)
        call.finish()
        for answer in call:
            self.assertEqual(answer, message)
        self.assertGreater(call.waits, 0)

    def test_empty_messages_use_credit_and_get_it_back(self):
        call = self.connection.start(STREAM, more=True)
        # By its answer the settings have come.
        self.connection.ping(1)
        count = 3 * self.connection.initial_credit
        frame = struct.pack("<IBBHI", 0, native.ITEM, 0, 0, call.number)
        sent = received = 0
        while received < count:
            batch = min(count - sent, max(call.credit, 0))
            if batch:
                call.credit -= batch
                sent += batch
                self.connection.send_bytes(frame * batch)
            self.assertEqual(call.next(), b"")
            received += 1
        call.finish()
        self.assertIsNone(call.next())

    def test_server_keeps_to_our_window(self):
        connection = self.connect(window=native.DEFAULT_WINDOW)
        call = connection.start(STREAM, more=True)
        message = bench_pb2.EchoMessage(payload=b"x" * 20_000).SerializeToString()
        for _ in range(8):
            call.send(message)
        call.finish()
        # We take nothing, so four messages overdraw 64 KiB; the answer to the ping comes after them all.
        while call.waiting < 4:
            connection.pump()
        connection.ping(9)
        connection.ping(10)
        self.assertEqual(call.waiting, 4)
        self.assertEqual([len(item) for item in call], [len(message)] * 8)

    def test_credit_that_was_granted_at_once_counts(self):
        connection = self.connect(window=native.DEFAULT_WINDOW)
        call = connection.start(STREAM, more=True)
        connection.send(native.CREDIT, call=call.number, body=struct.pack("<I", 1 << 20))
        message = bench_pb2.EchoMessage(payload=b"x" * 20_000).SerializeToString()
        for _ in range(8):
            call.send(message)
        while call.waiting < 8:
            connection.pump()
        call.cancel()

    def test_sending_without_credit_ends_the_call(self):
        call = self.connection.start(CHAT, more=True)
        # A server whose replies are not read stops reading.
        message = demo_pb2.Note(text="x" * 60_000).SerializeToString()

        def flood():
            for _ in range(100):
                call.credit = 1
                call.send(message)
            call.wait()

        status = self.refused(native.RESOURCE_EXHAUSTED, flood)
        self.assertIn("stream_window_bytes", status.text)
        self.greet()

    def test_cancel(self):
        request = demo_pb2.WatchRequest(count=10_000, interval_ms=10).SerializeToString()
        call = self.connection.start(WATCH, request)
        self.assertEqual(demo_pb2.Tick.FromString(call.next()).n, 0)
        call.cancel()
        self.connection.ping()
        # After the answer nothing of the call comes any more.
        self.connection.send(native.PING, call=77)
        frame = self.connection.pump()
        self.assertEqual((frame.kind, frame.call), (native.PING, 77))

    def test_a_failure_ends_the_stream(self):
        request = demo_pb2.WatchRequest(count=0).SerializeToString()
        call = self.connection.start(WATCH, request)
        self.assertNotEqual(self.refused(native.INVALID_ARGUMENT, call.next).text, "")


class Compression(NativeTest):
    def setUp(self):
        super().setUp()
        self.connection.ping()
        self.encodings = [code for code in native.COMPRESS if self.connection.settings[native.ENCODINGS] >> code & 1]

    def test_server_says_what_it_takes(self):
        self.assertEqual(self.connection.settings[native.ENCODINGS], 0b11_1110)
        self.assertEqual(self.encodings, [native.GZIP, native.DEFLATE, native.SNAPPY, native.LZ4])

    def test_unary(self):
        for encoding in self.encodings:
            call = self.greet("Ada " * 1000, encoding=encoding)
            self.assertEqual(call.compressed, 1)
            # Small replies are not, and neither are those of calls that name no encoding.
            self.assertEqual(self.greet(encoding=encoding).compressed, 0)
            self.assertEqual(self.greet("Ada " * 1000).compressed, 0)

    def test_example_of_the_document(self):
        body = bytes.fromhex("00000000 01 03 0000 78dae372704c4954a00403006b9412ab")
        call = native.Call(self.connection, 4000, native.DEFLATE)
        self.connection.calls[call.number] = call
        flags = native.FLAG_END | native.FLAG_MESSAGE | native.FLAG_COMPRESSED
        self.connection.send(native.CALL, flags, self.connection.number_of(GREET), call.number, body)
        call.wait()
        self.assertEqual(demo_pb2.GreetReply.FromString(call.result).text, "hello " + "Ada " * 16)

    def test_streams(self):
        message = bench_pb2.EchoMessage(payload=b"x" * 50_000).SerializeToString()
        for encoding in self.encodings:
            call = self.connection.start(STREAM, more=True, encoding=encoding)
            for _ in range(20):
                call.send(message)
                self.assertEqual(call.next(), message)
            call.finish()
            self.assertIsNone(call.next())
            self.assertEqual(call.compressed, 20)

    def test_bomb(self):
        bomb = greet_request("a" * (8 << 20))
        for encoding in self.encodings:
            call = self.connection.start(GREET, bomb, encoding=encoding)
            status = self.refused(native.RESOURCE_EXHAUSTED, call.wait)
            self.assertIn("message_bytes_max", status.text)
            call = self.connection.start(CHAT, more=True, encoding=encoding)
            call.send(bomb)
            self.refused(native.RESOURCE_EXHAUSTED, call.wait)
        self.greet()


class Statuses(NativeTest):
    def test_text(self):
        status = self.refused(native.INVALID_ARGUMENT, lambda: self.greet(""))
        self.assertNotEqual(status.text, "")

    def test_status_of_the_document(self):
        # No method of the demo sends details: the document's example is read instead.
        body = bytes.fromhex(
            "03000000280000000c000000 6e6f207375636820706f7374 0f0004000000"
            "676f6f676c652e7270632e48656c70 0a020a00"
        )
        call = native.Call(self.connection, 1)
        call.hear(native.Frame(native.END, native.FLAG_END, native.NOT_FOUND, 1, body))
        status = self.refused(native.NOT_FOUND, call.wait)
        self.assertEqual(status.text, "no such post")
        self.assertEqual((status.retry, status.pause_ms), (3, 40))
        self.assertEqual(status.details, [("google.rpc.Help", b"\x0a\x02\x0a\x00")])

    def test_unknown_names_and_numbers(self):
        for method in ("demo.v1.Greeter/Nope", "demo.v1.Missing/Greet", "x" * 2000):
            with self.subTest(method[:30]):
                self.refused(native.UNIMPLEMENTED, lambda: self.connection.unary(method, b""))
        call = self.connection.start(GREET, greet_request("Ada"))
        call.wait()
        stray = native.Call(self.connection, 1000)
        self.connection.calls[1000] = stray
        self.connection.send(native.CALL, native.FLAG_END | native.FLAG_MESSAGE, 900, 1000, bytes(8))
        # A number that was never given a name.
        self.refused(native.INTERNAL, stray.wait)
        self.greet()

    def test_codec_and_encoding(self):
        self.refused(native.UNIMPLEMENTED, lambda: self.greet(codec=99))
        method = self.connection.number_of(GREET)
        for flags, encoding, code in (
            (0, 99, native.UNIMPLEMENTED),
            (native.FLAG_COMPRESSED, 0, native.INTERNAL),
            (native.FLAG_COMPRESSED, native.GZIP, native.INVALID_ARGUMENT),
        ):
            call = native.Call(self.connection, 2000 + code)
            self.connection.calls[call.number] = call
            body = struct.pack("<IBBH", 0, native.PROTO, encoding, 0) + greet_request("Ada")
            flags |= native.FLAG_END | native.FLAG_MESSAGE
            self.connection.send(native.CALL, flags, method, call.number, body)
            self.refused(code, call.wait)
        self.greet()

    def test_schema_is_for_services_that_have_one(self):
        # Those of protobuf have none, and then nothing is compared.
        self.connection.number_of(GREET, schema=0x1234)
        self.greet()

    def test_kind_of_call(self):
        start = self.connection.start
        self.refused(native.UNIMPLEMENTED, start(GREET, more=True).wait)
        self.refused(native.UNIMPLEMENTED, start(GREET).wait)

    def test_wrong_metadata(self):
        for name, value, code in (
            ("upper-Case", "x", native.INVALID_ARGUMENT),
            ("a", "line\nbreak", native.INVALID_ARGUMENT),
            ("a", "x" * 30_000, native.RESOURCE_EXHAUSTED),
        ):
            with self.subTest(name):
                self.refused(code, lambda: self.greet(metadata=[(name, value)]))
        self.refused(native.RESOURCE_EXHAUSTED, lambda: self.greet(metadata=[("a", "x")] * 65))
        self.greet()

    def test_number_in_use(self):
        request = demo_pb2.WatchRequest(count=10, interval_ms=60_000).SerializeToString()
        call = self.connection.start(WATCH, request)
        self.assertIsNotNone(call.next())
        method = self.connection.number_of(GREET)
        body = struct.pack("<IBBH", 0, native.PROTO, 0, 0) + greet_request("Ada")
        flags = native.FLAG_END | native.FLAG_MESSAGE
        self.connection.send(native.CALL, flags, method, call.number, body)
        self.refused(native.INTERNAL, call.wait)
        call.cancel()
        self.greet()

    def test_deadline(self):
        request = demo_pb2.WatchRequest(count=10, interval_ms=60_000).SerializeToString()
        call = self.connection.start(WATCH, request, timeout_ms=100)
        self.refused(native.DEADLINE_EXCEEDED, lambda: list(call))

    def test_message_over_the_limit(self):
        over = self.connection.settings.get(native.MESSAGE_BYTES_MAX, 4 << 20)
        for excess in (1, 1 << 20):
            with self.subTest(excess=excess):
                name = "a" * (over + excess)
                self.refused(native.RESOURCE_EXHAUSTED, lambda: self.greet(name))
                call = self.connection.start(CHAT, more=True)
                call.send(name.encode())
                self.refused(native.RESOURCE_EXHAUSTED, call.wait)
        self.greet()


class Frames(NativeTest):
    def test_ping(self):
        self.connection.ping()
        self.connection.ping(123_456)

    def test_unknown_and_foreign_frames_are_skipped(self):
        self.connection.send(200, flags=255, aux=7, call=9, body=b"new")
        self.connection.send(77, body=bytes(300_000))
        for kind in (native.HEAD, native.REPLY, native.GO_AWAY):
            self.connection.send(kind, body=b"\x01\x01\x00ab")
        self.greet()

    def test_frames_of_unknown_calls_are_ignored(self):
        for kind, body in ((native.ITEM, b"x"), (native.CREDIT, bytes(4)), (native.CANCEL, b""), (native.END, b"")):
            self.connection.send(kind, call=4242, body=body)
        self.greet()

    def fatal(self, kind, reason, **fields):
        connection = self.connect()
        self.greet(connection=connection)
        connection.send(kind, **fields)
        self.assertIn(reason, native.end_of(connection) or "")

    def test_fatal_errors_are_named(self):
        self.fatal(native.SETTINGS, "second SETTINGS", body=struct.pack("<HI", 4, 1 << 20))
        self.fatal(native.CREDIT, "CREDIT", body=b"123")
        self.fatal(native.CALL, "cut short", body=b"123")
        self.fatal(native.CALL, "metadata", body=struct.pack("<IBBH", 0, 1, 0, 9))
        self.fatal(native.METHOD, "methods_max", aux=65535, body=b"a/b")
        self.fatal(native.METHOD, "schema", flags=native.FLAG_SCHEMA, body=b"a/b")
        # The reason of this one can get lost: the server closes before it has read it all.
        self.fatal(native.METHOD, "", body=bytes(100_000))
        self.greet()

    def test_small_window_is_fatal(self):
        self.assertIn("window", native.end_of(self.connect(window=1000)))

    def test_other_version(self):
        connection = self.connect(preface=b"\xf5SWB\x02\0\0\0")
        self.assertIn("version 2", native.end_of(connection))
        self.assertEqual(connection.go_away[0], native.UNAVAILABLE)

    def test_closing_half_way_drops_the_calls(self):
        request = demo_pb2.WatchRequest(count=10, interval_ms=60_000).SerializeToString()
        call = self.connection.start(WATCH, request)
        self.assertIsNotNone(call.next())
        self.connection.close_half()
        self.assertIsNone(native.end_of(self.connection))

    def test_drain(self):
        with Server() as server, Connection(server.address, patience=PATIENCE_SECONDS) as connection:
            request = demo_pb2.WatchRequest(count=20, interval_ms=100).SerializeToString()
            call = connection.start(WATCH, request)
            self.assertIsNotNone(call.next())
            server.interrupt()
            while connection.go_away is None:
                connection.pump()
            # Calls that may have crossed GO_AWAY on their way are answered, half a second long.
            status = None
            while status is None:
                try:
                    connection.start(GREET, greet_request("Ada")).wait()
                except Status as refused:
                    status = refused
            self.assertEqual((status.code, status.retry), (native.UNAVAILABLE, 1))
            self.assertEqual([demo_pb2.Tick.FromString(item).n for item in call], list(range(1, 20)))
            native.end_of(connection)
            self.assertEqual(server.exit_code(), 0)


del NativeTest  # Has no cases of its own.

if __name__ == "__main__":
    unittest.main(verbosity=2)
