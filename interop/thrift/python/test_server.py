"""The cases of Thrift's cross tests, from our client to servers of the Python library."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import unittest

SERVE = pathlib.Path(__file__).with_name("serve.py")
FILE = pathlib.Path(__file__).parents[1] / "thrift" / "thrift_test.thrift"
PATIENCE_SECONDS = 120

WAYS = {
    "binary, framed": (["binary", "framed"], "protocol=binary"),
    "binary, buffered": (["binary", "buffered"], "protocol=binary&framed=false"),
    "binary in C, framed": (["accelerated", "framed"], "protocol=binary&framed=true"),
    "compact, framed": (["compact", "framed"], "protocol=compact"),
    "compact, buffered": (["compact", "buffered"], "protocol=compact&framed=false"),
    "binary, HTTP": (["binary", "http"], "path=/any/path"),
    "compact, HTTP": (["compact", "http"], "protocol=compact&http=1"),
    "header, binary": (["header", "bare"], "protocol=header"),
    "header, compact": (["header", "bare"], "protocol=header-compact"),
    "header, binary, zlib": (["header", "bare"], "protocol=header&zlib=true"),
}


@contextlib.contextmanager
def server(arguments, options):
    """The URL of a server that runs until the block ends."""
    process = subprocess.Popen(
        [sys.executable, str(SERVE), *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline())
        yield f"tcp://127.0.0.1:{port}?wire=thrift&{options}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(*command):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


class Cases(unittest.TestCase):
    def run_cases(self, serve, options, *more):
        with server(serve, options) as url:
            done = run(os.environ["THRIFT_CLIENT"], url, *more)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"^\d+ cases passed")

    def test_every_way(self):
        for way, (serve, options) in WAYS.items():
            with self.subTest(way):
                self.run_cases(serve, options)

    def test_multiplexed(self):
        for way in ["binary, framed", "binary, HTTP", "compact, buffered", "header, binary"]:
            serve, options = WAYS[way]
            with self.subTest(way):
                self.run_cases([*serve, "multiplexed"], options, "--multiplexed")

    def test_calls_by_hand(self):
        """`switchboard call` with the .thrift file."""
        struct = {"string_thing": "\u00e9", "byte_thing": -1, "i32_thing": 70000, "i64_thing": -(2**62)}
        for way in ["binary, buffered", "binary, HTTP", "compact, framed", "header, compact"]:
            with self.subTest(way), server(*WAYS[way]) as url:

                def call(method, data, *more):
                    command = [os.environ["SWITCHBOARD_BIN"], "call", url, f"ThriftTest/{method}", *more]
                    return run(*command, "--thrift", str(FILE), "--compact", "-d", json.dumps(data))

                for method, value in [
                    ("testString", "Ada"),
                    ("testBinary", "AP8="),
                    ("testDouble", "NaN"),
                    ("testStruct", struct),
                    ("testMap", {"1": -2}),
                    ("testSet", [5]),
                    ("testEnum", "FIVE"),
                ]:
                    done = call(method, {"thing": value})
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertEqual(json.loads(done.stdout), value, method)
                self.assertEqual(call("testVoid", {}).stdout, "null\n")
                self.assertEqual(call("testOneway", {"secondsToSleep": 0}).stdout, "")
                thrown = call("testException", {"arg": "Xception"})
                self.assertNotEqual(thrown.returncode, 0)
                self.assertIn('{"errorCode":1001,"message":"Xception"}', thrown.stdout)
                unknown = call("testException", {"arg": "TException"})
                self.assertNotEqual(unknown.returncode, 0, unknown.stdout)


if __name__ == "__main__":
    if "THRIFT_CLIENT" not in os.environ:
        sys.exit("THRIFT_CLIENT names the program to test")
    unittest.main()
