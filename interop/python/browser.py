"""Starts Chromium without a window, and drives it by its DevTools protocol."""

import contextlib
import itertools
import json
import os
import queue
import re
import subprocess
import tempfile
import threading

from websockets.sync.client import connect

from server import PATIENCE_SECONDS, end_with_parent

# Chromium's own sandbox does not start for the superuser; the only pages that are opened are ours.
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}


class Browser:
    """A browser with one page, as a context manager."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="switchboard-browser-", ignore_cleanup_errors=True)
        program = os.environ.get("SWITCHBOARD_PEER") or "chromium"
        command = [program, *_FLAGS, "--remote-debugging-port=0", f"--user-data-dir={self._folder.name}"]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._open = contextlib.ExitStack()
        try:
            address = self._address()
            self._socket = self._open.enter_context(
                connect(address, open_timeout=PATIENCE_SECONDS, max_size=None, compression=None)
            )
            self._ids = itertools.count(1)
            self.events = []
            self._session = None
            target = self.do("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Log", "Page", "Runtime"):
                self.do(f"{domain}.enable")
            # Keys go to the page that has the focus.
            self.do("Emulation.setFocusEmulationEnabled", enabled=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stderr.close()
        self._folder.cleanup()

    def do(self, method, **parameters):
        """A command of the protocol; returns its result. What happens meanwhile goes to `events`."""
        id = next(self._ids)
        request = {"id": id, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        self._socket.send(json.dumps(request))
        while True:
            message = self._receive()
            if message.get("id") == id:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def open(self, url):
        """Loads a page, and all that it names."""
        self.events.clear()
        error = self.do("Page.navigate", url=url).get("errorText")
        assert not error, f"{url}: {error}"
        while all(event["method"] != "Page.loadEventFired" for event in self.events):
            self._receive()

    def run(self, expression):
        """The value of an expression in the page; a promise is waited for."""
        done = self.do("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, condition):
        """Waits until the expression is true, looking again whenever the page changes."""
        self.run(
            f"""new Promise((resolve) => {{
                const look = () => ({condition}) && (observer.disconnect(), resolve());
                const observer = new MutationObserver(look);
                const what = {{ attributes: true, characterData: true, childList: true, subtree: true }};
                observer.observe(document, what);
                look();
            }})"""
        )

    def press(self, key):
        """A key, down and up."""
        code, text = _KEYS[key]
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        kind = "keyDown" if text else "rawKeyDown"
        self.do("Input.dispatchKeyEvent", type=kind, text=text, **common)
        self.do("Input.dispatchKeyEvent", type="keyUp", **common)

    def width(self, width, height=900):
        """Makes the page so wide, in pixels of CSS."""
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def scheme(self, scheme):
        """`light` or `dark`, as the user prefers."""
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def complaints(self):
        """What the page and the browser said was wrong since the page was opened."""
        wrong = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                wrong.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                wrong.append(event["params"]["entry"])
        return wrong

    def _receive(self):
        message = json.loads(self._socket.recv(PATIENCE_SECONDS))
        if "method" in message:
            self.events.append(message)
        return message

    def _read(self):
        # Reads on to the end: a full pipe would block the browser.
        for line in self._process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def _address(self):
        seen = []
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no address of DevTools, only {seen}") from None
            if line is None:
                raise AssertionError(f"the browser ended after {seen}")
            found = re.search(r"DevTools listening on (ws://\S+)", line)
            if found:
                return found[1]
            seen.append(line)
