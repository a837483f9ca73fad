"""Snappy in its raw format and LZ4 in blocks, from their descriptions alone: slow, and blind to all but runs.

What they write is valid; what they read is all of both formats.
"""

import re
import struct

# A byte that comes often enough in a row to be worth a copy.
RUN = re.compile(rb"(.)\1{31,}", re.DOTALL)


def runs(data):
    """Pairs of bytes as they are, and how often the last of them comes again."""
    position = 0
    for run in RUN.finditer(data):
        yield data[position : run.start() + 1], run.end() - run.start() - 1
        position = run.end()
    yield data[position:], 0


def snappy_compress(data):
    parts = [varint(len(data))]
    for literal, again in runs(data):
        for at in range(0, len(literal), 65536):
            piece = literal[at : at + 65536]
            parts += [b"\xf4", struct.pack("<H", len(piece) - 1), piece]
        whole, rest = divmod(again, 64)
        parts.append(b"\xfe\x01\x00" * whole)
        if rest:
            parts.append(bytes([(rest - 1) << 2 | 2, 1, 0]))
    return b"".join(parts)


def snappy_decompress(data):
    length, position = read_varint(data)
    out = bytearray()
    while position < len(data):
        tag, kind = data[position], data[position] & 3
        position += 1
        if kind == 0:
            size = tag >> 2
            if size >= 60:
                width = size - 59
                size = int.from_bytes(data[position : position + width], "little")
                position += width
            out += data[position : position + size + 1]
            position += size + 1
            continue
        if kind == 1:
            size, offset = (tag >> 2 & 7) + 4, tag >> 5 << 8 | data[position]
            position += 1
        else:
            width = 2 if kind == 2 else 4
            size, offset = (tag >> 2) + 1, int.from_bytes(data[position : position + width], "little")
            position += width
        copy(out, offset, size)
    assert len(out) == length
    return bytes(out)


def lz4_compress(data):
    """A block behind the length of the message."""
    parts, literal = [struct.pack("<I", len(data))], b""
    for piece, again in runs(data):
        literal += piece
        # The last bytes of a block are never part of a match.
        match = again - 12
        if match >= 4:
            parts += [lz4_head(len(literal), match - 4), literal, b"\x01\x00", lz4_more(match - 4)]
            literal, again = b"", 12
        literal += piece[-1:] * again
    return b"".join([*parts, lz4_head(len(literal), 0), literal])


def lz4_head(literal, match):
    return bytes([min(literal, 15) << 4 | min(match, 15)]) + lz4_more(literal)


def lz4_more(length):
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def lz4_decompress(data):
    (length,), position = struct.unpack_from("<I", data), 4
    out = bytearray()

    def size(start):
        nonlocal position
        total = start
        while start == 15:
            total += data[position]
            position += 1
            if data[position - 1] < 255:
                break
        return total

    while True:
        token = data[position]
        position += 1
        literal = size(token >> 4)
        out += data[position : position + literal]
        position += literal
        if position == len(data):
            break
        offset = int.from_bytes(data[position : position + 2], "little")
        position += 2
        copy(out, offset, size(token & 15) + 4)
    assert len(out) == length
    return bytes(out)


def copy(out, offset, size):
    """Appends what came `offset` before; it may overlap with itself."""
    assert 0 < offset <= len(out)
    piece = bytes(out[len(out) - offset :])
    out += (piece * (size // offset + 1))[:size]


def varint(number):
    encoded = b""
    while number >= 128:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def read_varint(data):
    number = shift = 0
    for position, byte in enumerate(data):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, position + 1
    raise ValueError("cut short")
