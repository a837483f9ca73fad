"""`switchboard bus` with a NATS server, a Redis server and sockets of libzmq.

SWITCHBOARD, NATS_SERVER and REDIS_SERVER are programs; NATS_TOOL, the tool `nats`, may be missing. Every server runs on
a free port of its own and is asked whether it is ready.
"""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import zmq

SWITCHBOARD = os.environ["SWITCHBOARD"]
PATIENCE_SECONDS = 30
# Exit codes: 64 and the number of the status.
INVALID, DEADLINE, PERMISSION, FAILED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 67, 68, 71, 73, 76, 78, 80
USAGE = 2


def bus(verb, address, *rest, data=None):
    """Runs a command to its end."""
    command = [SWITCHBOARD, "bus", verb, address, *rest]
    return subprocess.run(command, input=data, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def out(verb, address, *rest, data=None):
    """Standard output of a command that succeeds."""
    ended = bus(verb, address, *rest, data=data)
    assert ended.returncode == 0, f"{verb} {rest}: {ended.returncode} {ended.stderr}"
    return ended.stdout


class Running:
    """A command that goes on; its lines on standard error say when it is ready."""

    def __init__(self, verb, address, *rest):
        self.child = subprocess.Popen(
            [SWITCHBOARD, "bus", verb, address, *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines = []

    def until(self, *beginnings):
        for line in self.child.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(beginnings):
                return line.rstrip()
        raise AssertionError(f"ended without {beginnings}: {self.lines}")

    def ready(self):
        self.until("subscribed to", "replying to", "forwarding between")
        return self

    def take(self, received):
        """Appends each line of standard output to a list, in a thread; its end is that of the command."""
        thread = threading.Thread(target=lambda: received.extend(line.rstrip() for line in self.child.stdout))
        thread.start()
        return thread

    def end(self):
        """Waits for the end, which a limit such as --count brings; returns standard output."""
        stdout, stderr = self.child.communicate(timeout=PATIENCE_SECONDS)
        assert self.child.returncode == 0, (self.child.returncode, self.lines, stderr)
        return stdout

    def interrupt(self):
        self.child.terminate()
        return self.end()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A foreign server on a port that was free. Another program may take the port: then it starts on another one."""

    def __init__(self, command, is_ready):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.port = free_port()
            self.child = subprocess.Popen(
                command(self.port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while self.child.poll() is None and time.monotonic() < deadline:
                try:
                    if is_ready(self.port):
                        return
                except OSError:
                    time.sleep(0.02)
            self.close()
            if time.monotonic() >= deadline:
                raise AssertionError(f"{command(self.port)} does not answer")

    def close(self):
        self.child.kill()
        self.child.wait()


def answers(port, request, expected):
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.settimeout(2)
        connection.sendall(request)
        return connection.recv(4096).startswith(expected)


def nats_server(*options):
    program = os.environ["NATS_SERVER"]
    return Process(
        lambda port: [program, "-a", "127.0.0.1", "-p", str(port), *options], lambda port: answers(port, b"", b"INFO")
    )


def redis_server(folder, *options):
    program = os.environ["REDIS_SERVER"]
    return Process(
        lambda port: [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, *options],
        lambda port: answers(port, b"PING\r\n", b"+PONG") or answers(port, b"PING\r\n", b"-NOAUTH"),
    )


class Nats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = nats_server()
        cls.address = f"nats://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def test_messages_are_received_with_headers(self):
        subscriber = Running("sub", self.address, "quotes.*", "--count", "2").ready()
        as_json = Running("sub", self.address, "quotes.>", "--count", "2", "--json").ready()
        self.assertEqual(out("pub", self.address, "quotes.acme", "12.5"), "")
        out("pub", self.address, "quotes.acme", "13", "-H", "trace: 7")
        self.assertEqual(subscriber.end(), "quotes.acme 12.5\nquotes.acme 13\n")
        first, second = map(json.loads, as_json.end().splitlines())
        self.assertEqual(first, {"topic": "quotes.acme", "payload": "12.5"})
        self.assertEqual(second["headers"], {"trace": ["7"]})

    def test_lines_of_standard_input_are_messages_in_order(self):
        subscriber = Running("sub", self.address, "lines", "--count", "500").ready()
        lines = "".join(f"{number}\n" for number in range(500))
        out("pub", self.address, "lines", "--lines", data=lines)
        self.assertEqual(subscriber.end(), "".join(f"lines {number}\n" for number in range(500)))

    def test_members_of_a_group_share_messages(self):
        first = Running("pull", self.address, "jobs").ready()
        second = Running("sub", self.address, "jobs", "--group", "workers").ready()
        other = Running("sub", self.address, "jobs", "--group", "audit", "--count", "20").ready()
        out("push", self.address, "jobs", "--lines", data="".join(f"{number}\n" for number in range(20)))
        jobs = sorted(f"jobs {number}" for number in range(20))
        self.assertEqual(sorted(other.end().splitlines()), jobs)
        # Each member has printed its part, and together they have all: none is lost, and none is taken twice.
        taken = []
        threads = [member.take(taken) for member in (first, second)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(taken) < len(jobs) and time.monotonic() < deadline:
            time.sleep(0.02)
        for member, thread in zip((first, second), threads):
            member.child.terminate()
            thread.join()
            member.child.stderr.close()
            member.child.stdout.close()
            self.assertEqual(member.child.wait(timeout=PATIENCE_SECONDS), 0)
        self.assertEqual(sorted(taken), jobs)

    def test_requests_have_replies_and_fail_without_a_replier(self):
        replier = Running("rep", self.address, "echo", "--echo", "--count", "3").ready()
        self.assertEqual(out("req", self.address, "echo", "--lines", data="a\nb\n"), "a\nb\n")
        self.assertEqual(json.loads(out("req", self.address, "echo", "c", "--json"))["payload"], "c")
        self.assertEqual(replier.end(), "echo a\necho b\necho c\n")
        failed = bus("req", self.address, "none", "x")
        self.assertEqual(failed.returncode, UNAVAILABLE, failed.stderr)
        self.assertIn("no subscriber", failed.stderr)
        silent = Running("sub", self.address, "silent").ready()
        failed = bus("req", self.address, "silent", "x", "--timeout", "200ms")
        self.assertEqual(failed.returncode, DEADLINE, failed.stderr)
        silent.interrupt()

    def test_the_tool_of_nats_reads_and_replies(self):
        tool = os.environ.get("NATS_TOOL")
        if not tool:
            self.skipTest("the tool nats is not installed")
        command = [tool, "--server", self.address, "subscribe", "tool.x", "--count", "1", "--raw"]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while reader.poll() is None and time.monotonic() < deadline:
            out("pub", self.address, "tool.x", "seen")
        self.assertIn("seen", reader.communicate(timeout=PATIENCE_SECONDS)[0])

    def test_refusals_have_exit_codes(self):
        for arguments, code, text in [
            (("pub", "a..b", "x"), INVALID, "subject"),
            (("pub", "a.*", "x"), INVALID, "subject"),
            (("pub", "a", "x" * (1 << 20) + "x"), 72, "max_payload"),
            (("sub", "a", "--from", "last:1"), USAGE, "keep no messages"),
            (("sub", "a", "--ack"), USAGE, "JetStream"),
            (("pub", "a", "x", "--key", "k"), USAGE, "--key"),
            (("topics",), USAGE, "do not list"),
            (("sub", "a", "--bind"), USAGE, "--bind"),
        ]:
            verb, *rest = arguments
            data = None
            if len(rest) > 1 and len(rest[1]) > 1000:
                data, rest = rest[1], rest[:1]
            failed = bus(verb, self.address, *rest, data=data)
            self.assertEqual(failed.returncode, code, f"{arguments}: {failed.stderr}")
            self.assertIn(text, failed.stderr)
            failed = bus(verb, self.address, *rest, "--json", data=data)
            self.assertEqual((failed.returncode, failed.stderr), (code, ""), arguments)
            self.assertIn(text, json.loads(failed.stdout)["status"]["message"])

    def test_a_killed_server_ends_the_command(self):
        server = nats_server()
        subscriber = Running("sub", f"nats://127.0.0.1:{server.port}", "x").ready()
        server.close()
        _, stderr = subscriber.child.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(subscriber.child.returncode, UNAVAILABLE, stderr)

    def test_credentials_of_the_address(self):
        server = nats_server("--user", "ann", "--pass", "s3/cret")
        place = f"127.0.0.1:{server.port}"
        try:
            out("pub", f"nats://ann:s3%2Fcret@{place}", "a", "x")
            for login in ("", "ann:wrong@"):
                failed = bus("pub", f"nats://{login}{place}", "a", "x")
                self.assertEqual(failed.returncode, UNAUTHENTICATED, failed.stderr)
                self.assertNotIn("wrong", failed.stderr)
        finally:
            server.close()


class Redis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = redis_server(cls.folder.name)
        cls.address = f"redis://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def cli(self, *arguments):
        command = ["redis-cli", "-p", str(self.server.port), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout

    def test_channels_and_patterns(self):
        channel = Running("sub", self.address, "quotes", "--count", "2").ready()
        pattern = Running("sub", self.address, "quo*", "--count", "2", "--json").ready()
        listed = out("topics", self.address, "--json")
        self.assertIn({"topic": "quotes", "subscribers": 1}, [json.loads(line) for line in listed.splitlines()])
        self.assertIn("quotes", out("topics", self.address, "q*"))
        self.assertEqual(out("pub", self.address, "quotes", "12.5"), "2\n")
        self.cli("publish", "quotes", "13")
        self.assertEqual(channel.end(), "quotes 12.5\nquotes 13\n")
        payloads = [json.loads(line) for line in pattern.end().splitlines()]
        self.assertEqual(payloads, [{"topic": "quotes", "payload": text} for text in ("12.5", "13")])

    def test_streams_have_starts_groups_and_acknowledgements(self):
        ids = out("push", self.address, "jobs", "--lines", data="a\nb\nc\n").split()
        self.assertEqual(self.cli("xlen", "jobs").strip(), "3")
        pulled = out("pull", self.address, "jobs", "--from", "last:2", "--count", "1", "--ack")
        self.assertEqual(pulled, f"jobs {ids[1]} b\n")
        self.assertEqual(self.cli("xpending", "jobs", "workers").split()[0], "0")
        # The group goes on, whatever the start says.
        pulled = out("pull", self.address, "jobs", "--from", ids[0], "--count", "1", "--json")
        self.assertEqual(json.loads(pulled), {"topic": "jobs", "position": ids[2], "payload": "c"})
        for start, expected in [(ids[0], "b"), ("-1h", "a"), ("last:9", "a")]:
            pulled = out("pull", self.address, "jobs", "--group", f"g{start}", "--from", start, "--count", "1")
            self.assertTrue(pulled.endswith(f" {expected}\n"), (start, pulled))
        self.cli("xadd", "fields", "*", "price", "12", "symbol", "acme")
        pulled = out("pull", self.address, "fields", "--from", "last:1", "--count", "1")
        self.assertTrue(pulled.endswith(" price=12 symbol=acme\n"), pulled)

    def test_members_of_a_group_share_entries(self):
        first = Running("pull", self.address, "shared", "--ack", "--count", "1").ready()
        second = Running("pull", self.address, "shared", "--ack", "--count", "1").ready()
        out("push", self.address, "shared", "--lines", data="a\nb\n")
        self.assertEqual(sorted(line.split()[-1] for line in (first.end() + second.end()).splitlines()), ["a", "b"])

    def test_entries_of_a_member_that_has_ended_are_claimed(self):
        ids = out("push", self.address, "left", "--lines", data="a\nb\nc\n").split()
        self.cli("xgroup", "create", "left", "workers", "0")
        # Two entries went to a member that did not acknowledge them; the second one has them for a second only.
        self.cli("xreadgroup", "group", "workers", "ended", "count", "2", "streams", "left", ">")
        self.cli("xclaim", "left", "workers", "ended", "0", ids[0], "idle", "3600000")
        self.cli("xclaim", "left", "workers", "ended", "0", ids[1], "idle", "1000")
        pulled = out("pull", self.address, "left", "--count", "2", "--ack")
        self.assertEqual(pulled, f"left {ids[0]} a\nleft {ids[2]} c\n")
        self.assertEqual(self.cli("xpending", "left", "workers").split()[:2], ["1", ids[1]])
        # A claimed entry that was deleted is skipped.
        self.cli("xclaim", "left", "workers", "ended", "0", ids[1], "idle", "3600000")
        self.cli("xdel", "left", ids[1])
        last = out("push", self.address, "left", "d").strip()
        self.assertEqual(out("pull", self.address, "left", "--count", "1", "--ack"), f"left {last} d\n")
        # Without acknowledgements nothing is claimed.
        self.cli("xgroup", "create", "left", "others", "0")
        self.cli("xreadgroup", "group", "others", "ended", "count", "2", "streams", "left", ">")
        self.cli("xclaim", "left", "others", "ended", "0", ids[0], "idle", "3600000")
        self.assertEqual(out("pull", self.address, "left", "--group", "others", "--count", "1"), f"left {last} d\n")

    def test_refusals_have_exit_codes(self):
        self.cli("set", "text", "x")
        for arguments, code, text in [
            (("sub", "a", "--from", "last:1"), USAGE, "keep no messages"),
            (("sub", "a", "--group", "g"), USAGE, "no groups"),
            (("req", "a", "x"), USAGE, "no replies"),
            (("pub", "a", "x", "-H", "a: b"), USAGE, "no headers"),
            (("push", "text", "x"), FAILED, "WRONGTYPE"),
            (("pull", "a", "--from", "5e:1"), USAGE, "position"),
        ]:
            verb, *rest = arguments
            failed = bus(verb, self.address, *rest)
            self.assertEqual(failed.returncode, code, f"{arguments}: {failed.stderr}")
            self.assertIn(text, failed.stderr)

    def test_credentials_and_database_of_the_address(self):
        server = redis_server(self.folder.name, "--requirepass", "s3cret")
        place = f"127.0.0.1:{server.port}"
        try:
            out("push", f"redis://:s3cret@{place}/3", "jobs", "x")
            self.assertIn("x", out("pull", f"redis://default:s3cret@{place}/3", "jobs", "--from", "last:1", "--count", "1"))
            for login in ("", ":wrong@"):
                failed = bus("pub", f"redis://{login}{place}", "a", "x")
                self.assertEqual(failed.returncode, UNAUTHENTICATED, failed.stderr)
        finally:
            server.close()


class ZeroMq(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)

    def socket(self, kind):
        made = self.context.socket(kind)
        made.setsockopt(zmq.RCVTIMEO, PATIENCE_SECONDS * 1000)
        made.setsockopt(zmq.SNDTIMEO, PATIENCE_SECONDS * 1000)
        return made

    def bound(self, kind):
        made = self.socket(kind)
        port = made.bind_to_random_port("tcp://127.0.0.1")
        return made, f"zmq+tcp://127.0.0.1:{port}"

    def test_pub_waits_for_subscribers_of_libzmq(self):
        subscriber, address = self.bound(zmq.SUB)
        subscriber.subscribe(b"quotes/")
        publisher = Running("pub", address, "quotes/acme", "12.5")
        # libzmq sends subscriptions while its socket is used.
        self.assertEqual(subscriber.recv_multipart(), [b"quotes/acme", b"12.5"])
        publisher.end()
        publisher = Running("pub", "zmq+tcp://127.0.0.1:0", "quotes/acme", "13", "--bind")
        subscriber.connect(publisher.until("bound to").removeprefix("bound to "))
        self.assertEqual(subscriber.recv_multipart(), [b"quotes/acme", b"13"])
        publisher.end()
        failed = bus("pub", address, "orders", "x", "--timeout", "300ms")
        self.assertEqual(failed.returncode, DEADLINE, failed.stderr)
        self.assertIn("subscriber", failed.stderr)

    def test_sub_receives_from_a_publisher_of_libzmq(self):
        publisher, address = self.bound(zmq.XPUB)
        subscriber = Running("sub", address, "quotes/", "--count", "2", "--json").ready()
        self.assertEqual(publisher.recv(), b"\x01quotes/")
        publisher.send_multipart([b"orders", b"no"])
        publisher.send_multipart([b"quotes/acme", b"12.5"])
        publisher.send_multipart([b"quotes/acme", b"a", b"b"])
        first, second = map(json.loads, subscriber.end().splitlines())
        self.assertEqual(first, {"topic": "quotes/acme", "payload": "12.5"})
        self.assertEqual(second["frames"], [{"payload": "a"}, {"payload": "b"}])

    def test_push_and_pull(self):
        pull, address = self.bound(zmq.PULL)
        out("push", address, "--lines", data="a\nb\n")
        self.assertEqual([pull.recv_multipart() for _ in range(2)], [[b"a"], [b"b"]])
        out("push", address, "job", "c")
        self.assertEqual(pull.recv_multipart(), [b"job", b"c"])
        push, address = self.bound(zmq.PUSH)
        puller = Running("pull", address, "--count", "2").ready()
        push.send(b"a")
        push.send_multipart([b"b", b"c"])
        self.assertEqual(puller.end(), "a\nb c\n")

    def test_requests_and_replies(self):
        replier = Running("rep", "zmq+tcp://127.0.0.1:0", "--echo", "--count", "3", "--bind")
        endpoint = replier.until("bound to").removeprefix("bound to ")
        replier.ready()
        self.assertEqual(out("req", f"zmq+{endpoint}", "hello"), "hello\n")
        self.assertEqual(out("req", f"zmq+{endpoint}", "a.B/C", "{}"), "a.B/C {}\n")
        requester = self.socket(zmq.REQ)
        requester.connect(endpoint)
        requester.send(b"x")
        self.assertEqual(requester.recv(), b"x")
        self.assertEqual(replier.end(), "hello\na.B/C {}\nx\n")

    def test_ipc_and_bound_senders(self):
        with tempfile.TemporaryDirectory() as folder:
            address = f"zmq+ipc://{pathlib.Path(folder) / 'jobs'}"
            pusher = Running("push", address, "job", "--bind", "--timeout", "20s")
            pusher.until("bound to")
            pull = self.socket(zmq.PULL)
            pull.connect(address.removeprefix("zmq+"))
            self.assertEqual(pull.recv(), b"job")
            pusher.end()

    def proxied(self, kind, front_type, back_type, *options):
        proxy = Running("proxy", "zmq+tcp://127.0.0.1:*", "zmq+tcp://127.0.0.1:*", "--kind", kind, *options)
        line = proxy.until("forwarding between")
        words = [word for word in line.split() if word.startswith("tcp://")]
        front, back = self.socket(front_type), self.socket(back_type)
        front.connect(words[0])
        back.connect(words[1])
        return proxy, front, back

    def test_proxies_of_each_kind(self):
        proxy, push, pull = self.proxied("streamer", zmq.PUSH, zmq.PULL)
        push.send(b"job")
        self.assertEqual(pull.recv(), b"job")
        proxy.interrupt()
        proxy, req, rep = self.proxied("queue", zmq.REQ, zmq.REP)
        req.send(b"question")
        self.assertEqual(rep.recv(), b"question")
        rep.send(b"answer")
        self.assertEqual(req.recv(), b"answer")
        proxy.interrupt()
        proxy, publisher, subscriber = self.proxied("forwarder", zmq.XPUB, zmq.SUB)
        subscriber.subscribe(b"a")
        self.assertEqual(publisher.recv(), b"\x01a")
        publisher.send_multipart([b"a", b"1"])
        self.assertEqual(subscriber.recv_multipart(), [b"a", b"1"])
        proxy.interrupt()

    def test_refusals_have_exit_codes(self):
        closed = f"zmq+tcp://127.0.0.1:{free_port()}"
        for arguments, code, text in [
            (("sub", closed, "--timeout", "300ms"), UNAVAILABLE, "no connection"),
            (("push", closed, "x", "--timeout", "300ms"), DEADLINE, "PUSH"),
            (("req", closed, "x", "--timeout", "300ms"), DEADLINE, ""),
            (("sub", closed, "--from", "last:1"), USAGE, "keeps no messages"),
            (("pull", closed, "--ack"), USAGE, "no acknowledgements"),
            (("pull", closed, "topic"), USAGE, "no topics"),
            (("topics", closed), USAGE, "do not list"),
            (("sub", "zmq+udp://127.0.0.1:1"), USAGE, "zmq+tcp"),
            (("sub", "zmq+tcp://127.0.0.1"), USAGE, "port is missing"),
            (("proxy", closed, "nats://127.0.0.1", "--kind", "queue"), USAGE, "not an endpoint of ZeroMQ"),
        ]:
            verb, *rest = arguments
            failed = bus(verb, *rest)
            self.assertEqual(failed.returncode, code, f"{arguments}: {failed.stderr}")
            self.assertIn(text, failed.stderr)


class Terminal(unittest.TestCase):
    """A terminal gets no control characters of a message; --raw and pipes get the message as it is."""

    def test_control_characters_are_escaped_on_a_terminal(self):
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)
        publisher = context.socket(zmq.PUSH)
        publisher.setsockopt(zmq.SNDTIMEO, PATIENCE_SECONDS * 1000)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        message = "\x1b[31mred\x07"
        for options, expected in [((), r"\u{1b}[31mred\u{7}"), (("--raw",), message)]:
            leader, follower = os.openpty()
            command = [SWITCHBOARD, "bus", "pull", f"zmq+tcp://127.0.0.1:{port}", "--count", "1", *options]
            child = subprocess.Popen(command, stdout=follower, stderr=subprocess.PIPE, text=True)
            os.close(follower)
            publisher.send_string(message)
            self.assertEqual(child.wait(timeout=PATIENCE_SECONDS), 0, child.stderr.read())
            child.stderr.close()
            self.assertEqual(os.read(leader, 4096).decode().rstrip(), expected)
            os.close(leader)
        puller = Running("pull", f"zmq+tcp://127.0.0.1:{port}", "--count", "1")
        publisher.send_string(message)
        self.assertEqual(puller.end(), message + "\n")


if __name__ == "__main__":
    unittest.main()
