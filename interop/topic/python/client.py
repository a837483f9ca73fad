"""A subscriber of one topic: `client.py KIND ADDRESS TOPIC` prints the text of each entry on a line of its own.

Each kind runs in the environment that has its library.
"""

import base64
import json
import pathlib
import socket
import sys
import tempfile

PROTO = pathlib.Path(__file__).resolve().parents[3] / "crates/switchboard-bus/proto"


def show(payload):
    text = payload.decode() if isinstance(payload, bytes) else payload
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def zmq(address, topic):
    import zmq

    subscriber = zmq.Context().socket(zmq.SUB)
    subscriber.rcvhwm = 0
    subscriber.connect(f"tcp://{address}")
    subscriber.subscribe(topic.encode())
    while True:
        name, payload = subscriber.recv_multipart()
        assert name == topic.encode(), name
        show(payload)


def nats(address, topic):
    import asyncio

    import nats

    async def run():
        client = await nats.connect(f"nats://{address}")
        subscription = await client.subscribe(topic.replace("/", "."))
        async for message in subscription.messages:
            show(message.data)

    asyncio.run(run())


def redis(address, topic):
    import redis

    host, port = address.split(":")
    channel = redis.Redis(host=host, port=int(port)).pubsub(ignore_subscribe_messages=True)
    channel.subscribe(topic)
    for message in channel.listen():
        show(message["data"])


def sse(address, topic):
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)))
    request = f"GET /events?topic={topic} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
    connection.sendall(request.encode())
    for line in connection.makefile("r", newline="\n"):
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "data" in event:
                show(event["data"] if isinstance(event["data"], str) else str(event["data"]))


def grpc(address, topic):
    import grpc
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        includes = [f"--proto_path={PROTO}", f"--proto_path={pathlib.Path(protoc.__file__).parent / '_proto'}"]
        outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        files = [str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto")]
        assert protoc.main(["protoc", *includes, *outputs, *files]) == 0
        sys.path.insert(0, folder)
        from switchboard.bus.v1 import bus_pb2, bus_pb2_grpc

        stub = bus_pb2_grpc.BusStub(grpc.insecure_channel(address))
        for event in stub.Subscribe(bus_pb2.SubscribeRequest(topic=topic)):
            if event.HasField("entry"):
                show(event.entry.payload)


def jsonrpc(address, topic):
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)))
    method = "switchboard.bus.v1.Bus.Subscribe"
    request = {"jsonrpc": "2.0", "method": method, "params": {"topic": topic}, "id": 1}
    connection.sendall(json.dumps(request).encode() + b"\n")
    for line in connection.makefile("r"):
        message = json.loads(line)
        assert "error" not in message, message
        result = message.get("params", {}).get("result") or {}
        if "entry" in result:
            show(base64.b64decode(result["entry"]["payload"]))


if __name__ == "__main__":
    kinds = {"grpc": grpc, "jsonrpc": jsonrpc, "nats": nats, "redis": redis, "sse": sse, "zmq": zmq}
    kinds[sys.argv[1]](*sys.argv[2:])
