"""kiss-rpc, written from its document alone: frames, and Snappy's raw format. Nothing of Switchboard is used here."""

import struct

HEADER = struct.Struct(">2sBBHBHQIH")
# Magic, bytes from the version to the size of the body, version.
BEGIN = (b"\xff\xff", 20, 1)
NONE, DYNAMIC, FORCED = 0, 1, 2
FAILED, NON_BLOCKING, ONEWAY = 0x01, 0x20, 0x80
# What real peers write, although the body is a table of FlatBuffers.
SERIALISATION = 4


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def pack(plain):
    """Literals of at most 60 bytes, and copies of what repeats by itself: a short encoder, but no trivial one."""
    out = bytearray(varint(len(plain)))
    at = 0
    while at < len(plain):
        run = 1
        while at + run < len(plain) and plain[at + run] == plain[at] and run < 61:
            run += 1
        if run >= 5:
            # One literal byte, and a copy with an offset of 1 in two bytes.
            out += bytes([0]) + plain[at : at + 1]
            out += bytes([(run - 2) << 2 | 2]) + struct.pack("<H", 1)
            at += run
            continue
        literal = plain[at : at + 60]
        out += bytes([(len(literal) - 1) << 2]) + literal
        at += len(literal)
    return bytes(out)


def unpack(packed):
    at = size = shift = 0
    while True:
        byte = packed[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(packed):
        tag = packed[at]
        at += 1
        kind, rest = tag & 3, tag >> 2
        if kind == 0:
            if rest >= 60:
                width = rest - 59
                rest = int.from_bytes(packed[at : at + width], "little")
                at += width
            out += packed[at : at + rest + 1]
            at += rest + 1
            continue
        if kind == 1:
            length, offset = (rest & 7) + 4, rest >> 3 << 8 | packed[at]
            at += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = rest + 1, int.from_bytes(packed[at : at + width], "little")
            at += width
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size, (len(out), size)
    return bytes(out)


def frame(function, sequence, body, compression=NONE, status=0):
    packs = compression == FORCED or compression == DYNAMIC and len(body) >= 200
    body = pack(body) if packs else body
    how = (0xF000 if packs else 0) | compression << 8 | SERIALISATION
    assert HEADER.size + len(body) <= 65536
    return HEADER.pack(*BEGIN, how, status, 0, function, sequence, len(body)) + body


def read(stream):
    """The next frame of a file: function, sequence, kind of compression, status, body, and whether that was packed."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    *begin, how, status, reserved, function, sequence, size = HEADER.unpack(header)
    assert tuple(begin) == BEGIN and reserved == 0, header
    body = stream.read(size)
    packed = how >> 12 != 0
    return function, sequence, how >> 8 & 0xF, status, unpack(body) if packed else body, packed
