"""Every kind of call, as a Python gRPC client makes it."""

import concurrent.futures
import functools
import queue
import unittest

import grpc

from schema import bench_pb2, bench_pb2_grpc, demo_pb2, demo_pb2_grpc
from server import PATIENCE_SECONDS, Server

MESSAGE_BYTES_MAX = 4 * 1024 * 1024


class DemoTest(unittest.TestCase):
    """One server and one channel for all cases: they must not disturb each other."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.channel = cls.enterClassContext(grpc.insecure_channel(cls.server.address))
        cls.greeter = demo_pb2_grpc.GreeterStub(cls.channel)
        cls.posts = demo_pb2_grpc.PostsStub(cls.channel)
        cls.bench = bench_pb2_grpc.BenchStub(cls.channel)

    def greet(self, name, **options):
        options.setdefault("timeout", PATIENCE_SECONDS)
        return self.greeter.Greet(demo_pb2.GreetRequest(name=name), **options)

    def watch(self, count, interval_ms=0, timeout=PATIENCE_SECONDS):
        request = demo_pb2.WatchRequest(count=count, interval_ms=interval_ms)
        return self.greeter.Watch(request, timeout=timeout)

    def refused(self, code, call):
        """Makes the call, which must end with this status, and returns the error."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual(caught.exception.code(), code, caught.exception)
        return caught.exception


class Unary(DemoTest):
    def test_answer(self):
        self.assertEqual(self.greet("Ada").text, "hello Ada")

    def test_text_beyond_ascii(self):
        self.assertEqual(self.greet("Zoë 🦀").text, "hello Zoë 🦀")

    def test_compressed_request(self):
        name = "a" * 10_000
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            self.assertEqual(self.greet(name, compression=compression).text, f"hello {name}")

    def test_echo_of_a_large_message(self):
        payload = bytes(range(256)) * 4096 * 3
        message = bench_pb2.EchoMessage(payload=payload)
        self.assertEqual(self.bench.Echo(message, timeout=PATIENCE_SECONDS).payload, payload)

    def test_empty_message(self):
        empty = bench_pb2.EchoMessage()
        self.assertEqual(self.bench.Echo(empty, timeout=PATIENCE_SECONDS), empty)

    def test_benchmark_message_keeps_its_other_fields(self):
        request = bench_pb2.BenchmarkMessage(
            field1="request", field2=7, field3=-3, field4="four", field5=[1, 2**63], field22=-(2**40),
            field80=True, field81=False, field129="not the default", field60=0, field280=280,
        )  # fmt: skip
        expected = bench_pb2.BenchmarkMessage()
        expected.CopyFrom(request)
        expected.field1, expected.field2 = "OK", 100
        self.assertEqual(self.bench.Message(request, timeout=PATIENCE_SECONDS), expected)

    def test_posts(self):
        def query(**request):
            return self.posts.Query(demo_pb2.QueryRequest(**request), timeout=PATIENCE_SECONDS).posts

        every = query()
        self.assertGreater(len(every), 0)
        self.assertLessEqual(len(every), 10)
        self.assertEqual(list(query(limit=1)), [every[0]])
        for post in every:
            self.assertTrue(post.title and post.url and post.author and post.time > 0, post)
        tag = next(post.tags[0] for post in every if post.tags)
        tagged = query(tag=tag)
        self.assertGreater(len(tagged), 0)
        self.assertTrue(all(tag in post.tags for post in tagged), tagged)
        self.assertEqual(len(query(tag="no-such-tag")), 0)

    def test_metadata_comes_back(self):
        request = demo_pb2.GreetRequest(name="Ada")
        metadata = [("x-echo", "round trip")]
        _, call = self.greeter.Greet.with_call(request, timeout=PATIENCE_SECONDS, metadata=metadata)
        self.assertIn(("x-echo", "round trip"), call.initial_metadata())
        self.assertIn(("x-echo-trailer", "round trip"), call.trailing_metadata())

    def test_metadata_is_not_invented(self):
        _, call = self.greeter.Greet.with_call(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        keys = [key for key, _ in (*call.initial_metadata(), *call.trailing_metadata())]
        self.assertNotIn("x-echo", keys)
        self.assertNotIn("x-echo-trailer", keys)

    def test_calls_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            names = [f"caller {number}" for number in range(640)]
            texts = pool.map(lambda name: self.greet(name).text, names)
            self.assertEqual(list(texts), [f"hello {name}" for name in names])

    def test_connections_at_once(self):
        def greet_alone(number):
            # Channels with equal options share a connection.
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(self.server.address, options=options) as channel:
                stub = demo_pb2_grpc.GreeterStub(channel)
                return stub.Greet(demo_pb2.GreetRequest(name=str(number)), timeout=PATIENCE_SECONDS).text

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            texts = pool.map(greet_alone, range(64))
            self.assertEqual(list(texts), [f"hello {number}" for number in range(64)])


class Streams(DemoTest):
    def test_watch(self):
        self.assertEqual([tick.n for tick in self.watch(5)], [0, 1, 2, 3, 4])

    def test_watch_with_an_interval(self):
        self.assertEqual([tick.n for tick in self.watch(3, interval_ms=5)], [0, 1, 2])

    def test_watch_as_often_as_allowed(self):
        self.assertEqual([tick.n for tick in self.watch(10_000)], list(range(10_000)))

    def test_sum(self):
        numbers = [*range(1000), -1_000_000_000_000]
        total = self.greeter.Sum(
            (demo_pb2.Number(value=number) for number in numbers), timeout=PATIENCE_SECONDS
        )
        self.assertEqual((total.sum, total.count), (sum(numbers), len(numbers)))

    def test_sum_of_nothing(self):
        total = self.greeter.Sum(iter([]), timeout=PATIENCE_SECONDS)
        self.assertEqual((total.sum, total.count), (0, 0))

    def test_chat_answers_each_note_before_the_next_is_sent(self):
        notes = queue.SimpleQueue()
        answers = self.greeter.Chat(iter(notes.get, None), timeout=PATIENCE_SECONDS)
        for number in range(20):
            notes.put(demo_pb2.Note(text=f"note {number}"))
            self.assertEqual(next(answers).text, f"NOTE {number}")
        notes.put(None)
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code(), grpc.StatusCode.OK)

    def test_echo_stream_keeps_order(self):
        payloads = [number.to_bytes(2, "big") * 500 for number in range(1000)]
        messages = (bench_pb2.EchoMessage(payload=payload) for payload in payloads)
        answers = self.bench.Stream(messages, timeout=PATIENCE_SECONDS)
        self.assertEqual([answer.payload for answer in answers], payloads)

    def test_streams_at_once(self):
        streams = [self.watch(50, interval_ms=1) for _ in range(50)]
        for stream in streams:
            self.assertEqual([tick.n for tick in stream], list(range(50)))


class Statuses(DemoTest):
    def test_unknown_method(self):
        self.call_unknown("/demo.v1.Greeter/Nope")

    def test_unknown_service(self):
        self.call_unknown("/demo.v1.Missing/Greet")

    def call_unknown(self, path):
        call = self.channel.unary_unary(path)
        self.refused(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=PATIENCE_SECONDS))

    def test_greet_without_a_name(self):
        error = self.refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.greet(""))
        self.assertNotEqual(error.details(), "")

    def test_watch_nothing_or_too_much(self):
        for count in (0, 10_001):
            with self.subTest(count=count):
                error = self.refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: list(self.watch(count)))
                self.assertNotEqual(error.details(), "")

    def test_bytes_that_are_no_message(self):
        call = self.channel.unary_unary("/demo.v1.Greeter/Greet")
        with self.assertRaises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff", timeout=PATIENCE_SECONDS)
        codes = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
        self.assertIn(caught.exception.code(), codes, caught.exception)

    def test_deadline(self):
        watching = self.watch(10, interval_ms=1000, timeout=0.2)
        self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: list(watching))

    def test_cancel(self):
        watching = self.watch(10_000, interval_ms=10)
        self.assertEqual([next(watching).n, next(watching).n], [0, 1])
        watching.cancel()
        self.refused(grpc.StatusCode.CANCELLED, lambda: list(watching))
        self.assertEqual(self.greet("Ada").text, "hello Ada")

    def test_message_over_the_limit(self):
        name = "a" * (MESSAGE_BYTES_MAX + 1)
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.greet(name))
        self.assertEqual(self.greet("Ada").text, "hello Ada")

    def test_message_over_the_limit_once_decompressed(self):
        name = "a" * (MESSAGE_BYTES_MAX + 1)
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            call = functools.partial(self.greet, name, compression=compression)
            self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, call)


del DemoTest  # Has no cases of its own.

if __name__ == "__main__":
    unittest.main(verbosity=2)
