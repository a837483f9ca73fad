"""The Python classes of the schemas of the demo, generated at import into a temporary folder.

Generated each time, so that the tests use the current schema files.
"""

import importlib.resources
import pathlib
import sys
import tempfile

from grpc_tools import protoc

PROTO_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "crates" / "switchboard-cli" / "proto"
OPTIONS_FOLDER = PROTO_FOLDER.parents[1] / "switchboard-build" / "proto"
PROTO_FILES = (
    "google/api/annotations.proto",
    "google/api/http.proto",
    "switchboard/options.proto",
    "bench/v1/bench.proto",
    "demo/v1/demo.proto",
)

_generated = tempfile.TemporaryDirectory(prefix="switchboard-interop-")
_well_known = importlib.resources.files("grpc_tools") / "_proto"
_exit_code = protoc.main(
    [
        "protoc",
        f"--proto_path={PROTO_FOLDER}",
        f"--proto_path={OPTIONS_FOLDER}",
        f"--proto_path={_well_known}",
        f"--python_out={_generated.name}",
        f"--grpc_python_out={_generated.name}",
        *PROTO_FILES,
    ]
)
if _exit_code != 0:
    raise SystemExit(f"the schemas in {PROTO_FOLDER} do not compile")
sys.path.insert(0, _generated.name)

from bench.v1 import bench_pb2, bench_pb2_grpc  # noqa: E402, F401
from demo.v1 import demo_pb2, demo_pb2_grpc  # noqa: E402, F401

# The classes are loaded: nothing is left for a process that is killed to leave behind.
_generated.cleanup()
