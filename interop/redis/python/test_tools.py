"""redis-cli and redis-benchmark on the port of a server with the plugin for Redis."""

import json
import subprocess
import unittest

import redis
from server import LIMIT, Server


class Tools(unittest.TestCase):
    options = ()

    def setUp(self):
        self.server = Server(*self.options)

    def tearDown(self):
        self.server.end()

    def run_tool(self, tool, *arguments, stdin=None):
        command = [tool, "-h", "127.0.0.1", "-p", str(self.server.port), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.stdout + done.stderr

    def cli(self, *arguments, stdin=None):
        return self.run_tool("redis-cli", *arguments, stdin=stdin).strip()

    def subscribed(self, *arguments):
        """A redis-cli that subscribes, of which the first lines of the confirmation are read."""
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(self.server.port), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, (lambda count: [process.stdout.readline().strip() for _ in range(count)])


class Cli(Tools):
    def test_commands(self):
        for version in ((), ("-3",)):
            with self.subTest(version):
                self.assertEqual(self.cli(*version, "PING"), "PONG")
                self.assertEqual(self.cli(*version, "-r", "3", "ECHO", "a b"), "a b\na b\na b")
                self.assertIn("redis_mode:standalone", self.cli(*version, "INFO", "server"))
                self.assertEqual(self.cli(*version, "PUBLISH", "t", "x"), "0")
                self.assertIn("ERR unknown command 'GET', with args beginning with: 'k'", self.cli(*version, "GET", "k"))
        # Lines of a pipe, as in a terminal.
        self.assertEqual(self.cli(stdin="PING\nPUBLISH t 'a b'\n"), "PONG\n0")
        self.assertEqual(json.loads(self.cli("--json", "PUBSUB", "NUMSUB", "t")), ["t", 0])

    def test_subscriptions(self):
        for version in ((), ("-3",)):
            with self.subTest(version):
                process, lines = self.subscribed(*version, "SUBSCRIBE", "news", "other")
                self.assertEqual(lines(6), ["subscribe", "news", "1", "subscribe", "other", "2"])
                _, by_pattern = self.subscribed(*version, "PSUBSCRIBE", "n[a-f]ws")
                self.assertEqual(by_pattern(3), ["psubscribe", "n[a-f]ws", "1"])
                self.assertEqual(self.cli("PUBLISH", "news", "hello"), "2")
                self.assertRegex(self.server.ask("publish news native"), "published")
                self.assertEqual(lines(6), ["message", "news", "hello", "message", "news", "native"])
                self.assertEqual(by_pattern(4), ["pmessage", "n[a-f]ws", "news", "hello"])
                process.kill()
                self.doCleanups()
                self.server.until(lambda _: self.cli("PUBSUB", "NUMSUB", "news") == "news\n0")

    def test_calls(self):
        self.assertEqual(json.loads(self.cli("CALL", "interop.v1.Desk/Echo", '{"text":"hi"}')), "hi")
        failed = self.cli("CALL", "interop.v1.Desk/Fail", '{"text":"not today"}')
        self.assertIn("FAILED_PRECONDITION not today", failed)
        self.assertIn("UNIMPLEMENTED unknown service", self.cli("CALL", "no.Service/Method", "{}"))

    def test_a_pipe_of_many_commands(self):
        subscriber = redis.Redis(port=self.server.port, socket_timeout=LIMIT).pubsub()
        subscriber.subscribe("t")
        self.assertEqual(subscriber.get_message(timeout=LIMIT)["type"], "subscribe")
        commands = "".join(f"*3\r\n$7\r\nPUBLISH\r\n$1\r\nt\r\n${len(str(at))}\r\n{at}\r\n" for at in range(20_000))
        self.assertIn("errors: 0, replies: 20000", self.cli("--pipe", stdin=commands))
        received = [subscriber.get_message(timeout=LIMIT)["data"] for _ in range(20_000)]
        self.assertEqual(received, [b"%d" % at for at in range(20_000)])
        subscriber.close()

    def test_benchmark(self):
        for arguments in (("-t", "ping_mbulk"), ("PUBLISH", "t", "x"), ("-P", "16", "-3", "PUBLISH", "t", "x")):
            with self.subTest(arguments):
                printed = self.run_tool("redis-benchmark", "-n", "5000", "-c", "20", "-q", *arguments)
                self.assertIn("requests per second", printed)
                self.assertNotIn("Error", printed)


class Credentials(Tools):
    options = ("auth",)

    def test_credentials(self):
        self.assertIn("NOAUTH Authentication required.", self.cli("PUBLISH", "t", "x"))
        self.assertIn("WRONGPASS", self.cli("--no-auth-warning", "-a", "wrong", "PUBLISH", "t", "x"))
        for version in ((), ("-3",)):
            for login, name in ((("-a", "secret"), "ali"), (("--user", "bob", "-a", "pass"), "bob")):
                with self.subTest((version, name)):
                    called = self.cli(*version, "--no-auth-warning", *login, "CALL", "interop.v1.Desk/Caller", "{}")
                    self.assertEqual(json.loads(called), name)


if __name__ == "__main__":
    unittest.main()
