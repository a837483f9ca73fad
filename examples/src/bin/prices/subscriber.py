"""Prints prices that a Switchboard server publishes: subscriber.py HOST:PORT. Needs pyzmq."""

import sys

import zmq

subscriber = zmq.Context().socket(zmq.SUB)
subscriber.connect(f"tcp://{sys.argv[1]}")
subscriber.subscribe(b"prices/")
# The example publishes it until it arrives, and sends the first price after it.
subscriber.subscribe(b"ready")
is_ready = False
while True:
    topic, price = (frame.decode() for frame in subscriber.recv_multipart())
    if topic != "ready" or not is_ready:
        print(topic, price)
    is_ready = True
