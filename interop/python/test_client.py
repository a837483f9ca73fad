"""Our client against a server of Python grpcio, which answers the interop cases of gRPC.

`SWITCHBOARD_PEER` names the program that makes the calls.
"""

import concurrent.futures
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import grpc
from grpc_tools import protoc

PROTO_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "proto"
ECHO_INITIAL = "x-grpc-test-echo-initial"
ECHO_TRAILING = "x-grpc-test-echo-trailing-bin"

_generated = tempfile.TemporaryDirectory(prefix="switchboard-interop-")
_exit_code = protoc.main(
    [
        "protoc",
        f"--proto_path={PROTO_FOLDER}",
        f"--python_out={_generated.name}",
        "grpc/testing/test.proto",
    ]
)
if _exit_code != 0:
    raise SystemExit(f"the schema in {PROTO_FOLDER} does not compile")
# The package `grpc` is that of the library: the module is loaded from its own folder.
sys.path.insert(0, str(pathlib.Path(_generated.name) / "grpc" / "testing"))
messages = importlib.import_module("test_pb2")
# The classes are loaded: nothing is left for a process that is killed to leave behind.
_generated.cleanup()


def echo_metadata(context):
    for name, value in context.invocation_metadata():
        if name == ECHO_INITIAL:
            context.send_initial_metadata(((name, value),))
        if name == ECHO_TRAILING:
            context.set_trailing_metadata(((name, value),))


def refuse_on_request(request, context):
    if request.HasField("response_status") and request.response_status.code:
        # The codes of this library are looked up by number.
        code = next(code for code in grpc.StatusCode if code.value[0] == request.response_status.code)
        context.abort(code, request.response_status.message)


def payload(size):
    return messages.Payload(body=bytes(size))


def empty_call(request, context):
    return messages.Empty()


def unary_call(request, context):
    echo_metadata(context)
    refuse_on_request(request, context)
    return messages.SimpleResponse(payload=payload(request.response_size))


def streaming_output_call(request, context):
    for parameters in request.response_parameters:
        time.sleep(parameters.interval_us / 1e6)
        yield messages.StreamingOutputCallResponse(payload=payload(parameters.size))


def streaming_input_call(requests, context):
    total = sum(len(request.payload.body) for request in requests)
    return messages.StreamingInputCallResponse(aggregated_payload_size=total)


def full_duplex_call(requests, context):
    echo_metadata(context)
    for request in requests:
        refuse_on_request(request, context)
        yield from streaming_output_call(request, context)


def handler(make, behaviour, request, response):
    return make(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )


HANDLERS = {
    "EmptyCall": handler(
        grpc.unary_unary_rpc_method_handler, empty_call, messages.Empty, messages.Empty
    ),
    "UnaryCall": handler(
        grpc.unary_unary_rpc_method_handler,
        unary_call,
        messages.SimpleRequest,
        messages.SimpleResponse,
    ),
    "StreamingOutputCall": handler(
        grpc.unary_stream_rpc_method_handler,
        streaming_output_call,
        messages.StreamingOutputCallRequest,
        messages.StreamingOutputCallResponse,
    ),
    "StreamingInputCall": handler(
        grpc.stream_unary_rpc_method_handler,
        streaming_input_call,
        messages.StreamingInputCallRequest,
        messages.StreamingInputCallResponse,
    ),
    "FullDuplexCall": handler(
        grpc.stream_stream_rpc_method_handler,
        full_duplex_call,
        messages.StreamingOutputCallRequest,
        messages.StreamingOutputCallResponse,
    ),
}


class OurClient(unittest.TestCase):
    def calls(self, options, compression=None):
        server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(max_workers=8), compression=compression
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpc.testing.TestService", HANDLERS),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            command = [os.environ["SWITCHBOARD_PEER"], f"tcp://127.0.0.1:{port}?wire=grpc{options}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count(": passed\n"), 14, done.stdout)
        finally:
            server.stop(None).wait()

    def test_every_case(self):
        self.calls("")

    def test_every_case_compressed_both_ways(self):
        self.calls("&compression=gzip", grpc.Compression.Gzip)


if __name__ == "__main__":
    unittest.main()
