"""Starts goim-server and reads its lines."""

import http.client
import json
import os
import queue
import re
import subprocess
import threading
import time

LIMIT = 30


class Server:
    """The program goim-server with these options."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [os.environ["GOIM_SERVER"], *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        words = self.line().split()
        assert words[0] == "devices", words
        self.devices, self.im_cloud, self.api = (int(words[index]) for index in (1, 3, 5))

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        return self.line()

    def stats(self):
        return {name: int(count) for name, count in re.findall(r"(\w+): (\d+)", self.ask("stats"))}

    def until(self, condition):
        """Asks for the counters until they are as expected."""
        end = time.monotonic() + LIMIT
        while not condition(self.stats()):
            assert time.monotonic() < end, self.stats()

    def http(self, method, path, body=None, **headers):
        """A request to the interface: status, type and body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=LIMIT)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheader("content-type"), response.read().decode()
        finally:
            connection.close()

    def push(self, path, body):
        """A push that must be accepted with the 23 bytes of goim."""
        response = self.http("POST", f"/goim/push/{path}", body)
        assert response == (200, "application/json; charset=utf-8", '{"code":0,"message":""}'), response

    def data(self, path):
        """The data of a list."""
        status, _, body = self.http("GET", path)
        assert status == 200, body
        return json.loads(body)["data"]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()
