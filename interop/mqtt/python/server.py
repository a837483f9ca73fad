"""Starts mqtt-server, and drives it by lines."""

import os
import queue
import re
import subprocess
import threading

LIMIT = 20


class Server:
    """The program mqtt-server."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [os.environ["MQTT_SERVER"], *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.addresses = self.line().removeprefix("listening on ").split(" ")

    @property
    def port(self):
        return int(self.addresses[0].rsplit(":", 1)[1])

    @property
    def tls_port(self):
        return int(self.addresses[1].rsplit(":", 1)[1])

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def say(self, command):
        self.process.stdin.write(command + "\n")

    def ask(self, command):
        self.say(command)
        return self.line()

    def stats(self):
        return {name: int(count) for name, count in re.findall(r"(\w+): (\d+)", self.ask("stats"))}

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()
