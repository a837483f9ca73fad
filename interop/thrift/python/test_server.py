"""The cases of Thrift's cross tests, from our client to servers of the Python library."""

import os
import pathlib
import subprocess
import sys
import unittest

SERVE = pathlib.Path(__file__).with_name("serve.py")
PATIENCE_SECONDS = 120

WAYS = {
    "binary, framed": (["binary", "framed"], "protocol=binary"),
    "binary, buffered": (["binary", "buffered"], "protocol=binary&framed=false"),
    "binary in C, framed": (["accelerated", "framed"], "protocol=binary&framed=true"),
    "compact, framed": (["compact", "framed"], "protocol=compact"),
    "compact, buffered": (["compact", "buffered"], "protocol=compact&framed=false"),
    "header, binary": (["header", "bare"], "protocol=header"),
    "header, compact": (["header", "bare"], "protocol=header-compact"),
    "header, binary, zlib": (["header", "bare"], "protocol=header&zlib=true"),
}


class Cases(unittest.TestCase):
    def run_cases(self, serve, options, *more):
        server = subprocess.Popen(
            [sys.executable, str(SERVE), *serve], stdout=subprocess.PIPE, text=True
        )
        try:
            port = int(server.stdout.readline())
            url = f"tcp://127.0.0.1:{port}?wire=thrift&{options}"
            done = subprocess.run(
                [os.environ["THRIFT_CLIENT"], url, *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"^\d+ cases passed")

    def test_every_way(self):
        for way, (serve, options) in WAYS.items():
            with self.subTest(way):
                self.run_cases(serve, options)

    def test_multiplexed(self):
        for way in ["binary, framed", "compact, buffered", "header, binary"]:
            serve, options = WAYS[way]
            with self.subTest(way):
                self.run_cases([*serve, "multiplexed"], options, "--multiplexed")


if __name__ == "__main__":
    if "THRIFT_CLIENT" not in os.environ:
        sys.exit("THRIFT_CLIENT names the program to test")
    unittest.main()
