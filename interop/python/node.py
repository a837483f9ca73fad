"""Runs the cases that are written for Node."""

import os
import pathlib
import subprocess

from server import PATIENCE_SECONDS

_INTEROP = pathlib.Path(__file__).resolve().parent.parent
BROWSER_CLIENT = _INTEROP.parent / "examples/browser/switchboard.mjs"


def run(script, *arguments):
    """Runs a script of `interop/js` to its end; returns what went wrong, or nothing."""
    environment = {**os.environ, "NODE_PATH": os.path.join(os.environ.get("SWITCHBOARD_PEER", ""), "node_modules")}
    command = ["node", str(_INTEROP / "js" / script), *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=4 * PATIENCE_SECONDS
    )
    return "" if ended.returncode == 0 else f"exit code {ended.returncode}: {ended.stdout}{ended.stderr}"
