// gRPC-Web with nothing but fetch: binary frames (five bytes, then a message), and a last frame with the trailers.
//
//   for await (const bytes of call("demo.v1.Greeter/Greet", request)) decode(bytes);
//
// Messages are bytes in protobuf's encoding. What fails is an Error with `code`, gRPC's number. A server stream is read
// as it arrives; leaving the loop early ends the call.

const HEADER = 5;
const COMPRESSED = 0x01;
const TRAILERS = 0x80;
const MESSAGE_MAX = 4 << 20;

/** The messages that the method answers with; `base` is the server's URL, the page's own unless given. */
export async function* call(method, message, { base = "/", signal } = {}) {
  const response = await fetch(new URL(method, new URL(base, location.href)), {
    method: "POST",
    headers: { "content-type": "application/grpc-web+proto", "x-grpc-web": "1" },
    body: frame(message),
    signal,
  });
  if (!response.ok) throw failure(2, `status ${response.status} of HTTP`);
  // A call that fails before its first message may have its status in the head.
  if (response.headers.has("grpc-status")) check(response.headers);
  const reader = response.body.getReader();
  let input = new Uint8Array(0);
  try {
    for (;;) {
      const whole = input.length >= HEADER && HEADER + size(input);
      if (!whole || input.length < whole) {
        const { value, done } = await reader.read();
        if (done) throw failure(14, "the answer ended without a status");
        input = joined(input, value);
        continue;
      }
      const [flags, body] = [input[0], input.subarray(HEADER, whole)];
      if (flags & COMPRESSED) throw failure(13, "a compressed message, though none was requested");
      if (flags & TRAILERS) return check(trailers(body));
      yield body;
      input = input.subarray(whole);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function frame(message) {
  const bytes = new Uint8Array(HEADER + message.length);
  new DataView(bytes.buffer).setUint32(1, message.length);
  bytes.set(message, HEADER);
  return bytes;
}

function size(input) {
  const length = new DataView(input.buffer, input.byteOffset).getUint32(1);
  if (length > MESSAGE_MAX) throw failure(8, `a message of ${length} bytes is over the limit of ${MESSAGE_MAX}`);
  return length;
}

function joined(before, after) {
  const bytes = new Uint8Array(before.length + after.length);
  bytes.set(before);
  bytes.set(after, before.length);
  return bytes;
}

/** The last frame holds lines as HTTP/1.1 has them. */
function trailers(body) {
  const lines = new TextDecoder().decode(body).split("\r\n").filter(Boolean);
  return new Map(lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
  }));
}

function check(fields) {
  const code = Number(fields.get("grpc-status") ?? 2);
  if (code !== 0) throw failure(code, decodeURIComponent(fields.get("grpc-message") ?? ""));
}

function failure(code, message) {
  return Object.assign(new Error(message), { name: "Status", code });
}
