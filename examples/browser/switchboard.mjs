// A client of Switchboard for browsers: the native wire (docs/native-wire.md) inside a WebSocket, messages in JSON.
//
//   const channel = await Channel.connect("ws://localhost:8080/");
//   const reply = await channel.unary("demo.v1.Greeter/Greet", { name: "you" });
//   for await (const tick of channel.serverStream("demo.v1.Greeter/Watch", { count: 3 })) console.log(tick);
//   const chat = channel.bidi("demo.v1.Greeter/Chat");
//   await chat.send({ text: "hello" });
//   console.log((await chat.next()).value);
//
// Options of a call: `timeoutMs`, `metadata` ({ name: value }, values of names in -bin are Uint8Array) and `signal` (an
// AbortSignal). What fails is a Status with `code`, `message`, `metadata` and `details`. A channel is one connection; when
// it has ended, `closed` resolves and a new one has to be made.

/** The kinds of failure, with gRPC's numbers. */
export const Code = Object.freeze({
  Ok: 0, Canceled: 1, Unknown: 2, InvalidArgument: 3, DeadlineExceeded: 4, NotFound: 5, AlreadyExists: 6,
  PermissionDenied: 7, ResourceExhausted: 8, FailedPrecondition: 9, Aborted: 10, OutOfRange: 11, Unimplemented: 12,
  Internal: 13, Unavailable: 14, DataLoss: 15, Unauthenticated: 16,
});

/** Why a call failed. `retry` is 0 never, 1 safe, 2 if the method is idempotent, 3 after `pauseMs`. */
export class Status extends Error {
  constructor(code, message, { retry = 0, pauseMs = 0, metadata = [], details = [] } = {}) {
    super(message);
    Object.assign(this, { name: "Status", code, retry, pauseMs, metadata, details });
  }
}

const PREFACE = [0xf5, 0x53, 0x57, 0x42, 1, 0, 0, 0];
const Kind = { Settings: 0, Method: 1, Call: 2, Head: 3, Item: 4, Reply: 5, End: 6, Cancel: 7, Credit: 8, Ping: 9, GoAway: 10 };
const HEADER = 12;
const END = 1;
const MESSAGE = 2;
const JSON_CODEC = 2;
/** Bytes of a stream that the server may send ahead of its reader. */
const WINDOW = 256 << 10;
const MESSAGE_MAX = 4 << 20;
const LEAST_WINDOW = 65536;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** One connection, shared by any number of calls. */
export class Channel {
  /** Connects; `WebSocket` may be that of a library where there is none. */
  static connect(url, { WebSocket = globalThis.WebSocket } = {}) {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, ["swb.1"]);
      socket.binaryType = "arraybuffer";
      const channel = new Channel(socket);
      socket.onopen = () => {
        channel.greet();
        resolve(channel);
      };
      socket.onmessage = ({ data }) => channel.receive(new Uint8Array(data));
      socket.onerror = () => {};
      socket.onclose = ({ code, reason }) => {
        const text = `the connection has ended: ${reason || `close code ${code}`}`;
        channel.end(new Status(Code.Unavailable, text, { retry: 2 }));
        reject(new Status(Code.Unavailable, `cannot connect to ${url}: close code ${code}`, { retry: 1 }));
      };
    });
  }

  constructor(socket) {
    this.socket = socket;
    this.input = new Uint8Array(0);
    this.greeted = false;
    this.calls = new Map();
    this.methods = new Map();
    this.lastCall = 0;
    this.window = LEAST_WINDOW;
    this.messageMax = Infinity;
    this.methodsMax = 1024;
    this.ended = null;
    this.closed = new Promise((resolve) => (this.resolveClosed = resolve));
  }

  /** One message each way. */
  async unary(method, message, options) {
    const call = this.open(method, options, message);
    return call.only();
  }

  /** One message there, many back: `for await`, or `next()` and `cancel()`. */
  serverStream(method, message, options) {
    return new ServerStream(this.open(method, options, message));
  }

  /** Many messages there, one back: `send()`, then `finish()` for the reply. */
  clientStream(method, options) {
    return new ClientStream(this.open(method, options));
  }

  /** Many messages both ways. */
  bidi(method, options) {
    return new Bidi(this.open(method, options));
  }

  /** Ends the connection and every call on it. */
  close() {
    this.end(new Status(Code.Canceled, "the channel was closed"));
    this.socket.close(1000);
  }

  // What follows is the wire.

  greet() {
    const settings = new DataView(new ArrayBuffer(12));
    settings.setUint16(0, 1, true);
    settings.setUint32(2, MESSAGE_MAX, true);
    settings.setUint16(6, 4, true);
    settings.setUint32(8, WINDOW, true);
    this.socket.send(Uint8Array.from(PREFACE));
    this.frame(Kind.Settings, 0, 0, 0, new Uint8Array(settings.buffer));
  }

  frame(kind, flags, aux, call, ...parts) {
    if (this.ended || this.socket.readyState !== 1) return;
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    const bytes = new Uint8Array(HEADER + length);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, length, true);
    bytes[4] = kind;
    bytes[5] = flags;
    view.setUint16(6, aux, true);
    view.setUint32(8, call, true);
    let at = HEADER;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    this.socket.send(bytes);
  }

  open(method, { timeoutMs, metadata = {}, signal } = {}, ...first) {
    const call = new Call(this, timeoutMs, signal);
    try {
      if (this.ended) throw this.ended;
      if (this.away) throw this.away;
      const block = writeMetadata(metadata);
      const message = first.map((value) => this.encode(value));
      const fixed = new DataView(new ArrayBuffer(8));
      fixed.setUint32(0, timeoutMs ? Math.max(1, Math.ceil(timeoutMs)) : 0, true);
      fixed.setUint8(4, JSON_CODEC);
      fixed.setUint16(6, block.length, true);
      const number = this.number(method);
      do {
        this.lastCall = (this.lastCall + 1) >>> 0 || 1;
      } while (this.calls.has(this.lastCall));
      call.id = this.lastCall;
      this.calls.set(call.id, call);
      const flags = message.length ? END | MESSAGE : 0;
      this.frame(Kind.Call, flags, number, call.id, new Uint8Array(fixed.buffer), block, ...message);
    } catch (error) {
      call.fail(error);
    }
    return call;
  }

  encode(value) {
    const bytes = encoder.encode(JSON.stringify(value));
    if (bytes.length > this.messageMax) {
      const text = `a request of ${bytes.length} bytes is over the server's limit of ${this.messageMax}`;
      throw new Status(Code.ResourceExhausted, text);
    }
    return bytes;
  }

  /** The number of a method; its name is sent once. */
  number(method) {
    let number = this.methods.get(method);
    if (number === undefined) {
      number = this.methods.size;
      if (number >= this.methodsMax) throw new Status(Code.ResourceExhausted, "too many methods on one connection");
      this.methods.set(method, number);
      this.frame(Kind.Method, 0, number, 0, encoder.encode(method));
    }
    return number;
  }

  receive(bytes) {
    const input = new Uint8Array(this.input.length + bytes.length);
    input.set(this.input);
    input.set(bytes, this.input.length);
    const view = new DataView(input.buffer);
    let at = 0;
    if (!this.greeted) {
      if (input.length < PREFACE.length) return void (this.input = input);
      if (PREFACE.slice(0, 5).some((byte, place) => input[place] !== byte)) {
        return this.socket.close(4002, "this is not the native wire, version 1");
      }
      this.greeted = true;
      at = PREFACE.length;
    }
    while (input.length - at >= HEADER) {
      const length = view.getUint32(at, true);
      if (length > MESSAGE_MAX + (64 << 10)) return this.socket.close(4002, "a frame over the limit");
      if (input.length - at < HEADER + length) break;
      const body = input.subarray(at + HEADER, at + HEADER + length);
      this.handle(input[at + 4], input[at + 5], view.getUint16(at + 6, true), view.getUint32(at + 8, true), body);
      at += HEADER + length;
    }
    this.input = input.slice(at);
  }

  handle(kind, flags, aux, id, body) {
    const call = this.calls.get(id);
    switch (kind) {
      case Kind.Settings: return this.settings(body);
      case Kind.Ping: return flags & END ? undefined : this.frame(Kind.Ping, END, 0, id);
      case Kind.GoAway:
        this.away = new Status(aux === 0 || aux === 2 ? Code.Unavailable : aux, decoder.decode(body), { retry: 1 });
        if (this.calls.size === 0) this.close();
        return undefined;
      case Kind.Head: return call && (call.head = readMetadata(body));
      case Kind.Item: return call?.push(body);
      case Kind.Reply:
        call?.push(body);
        return call?.finish([]);
      case Kind.End: {
        const { status, metadata } = readEnd(aux, body);
        return status ? call?.fail(status) : call?.finish(metadata);
      }
      case Kind.Credit: return call?.grow(new DataView(body.buffer, body.byteOffset, 4).getUint32(0, true));
      default: return undefined;
    }
  }

  settings(body) {
    const view = new DataView(body.buffer, body.byteOffset, body.length);
    for (let at = 0; at + 6 <= body.length; at += 6) {
      const value = view.getUint32(at + 2, true);
      switch (view.getUint16(at, true)) {
        case 1: this.messageMax = value; break;
        case 4:
          for (const call of this.calls.values()) call.grow(value - this.window);
          this.window = value;
          break;
        case 5: this.methodsMax = value; break;
        default:
      }
    }
  }

  forget(call) {
    this.calls.delete(call.id);
    if (this.away && this.calls.size === 0 && !this.ended) this.close();
  }

  end(status) {
    if (this.ended) return;
    this.ended = status;
    for (const call of [...this.calls.values()]) call.fail(status);
    this.resolveClosed(status);
  }
}

/** What all kinds of call share. */
class Call {
  constructor(channel, timeoutMs, signal) {
    Object.assign(this, { channel, id: 0, items: [], taken: 0, ended: false, status: null, head: [], trailers: [] });
    this.credit = channel.window;
    this.readers = [];
    this.writers = [];
    if (timeoutMs) {
      const late = new Status(Code.DeadlineExceeded, "no answer within the call's deadline");
      this.timer = setTimeout(() => this.cancel(late), timeoutMs);
    }
    this.signal = signal;
    this.abort = () => this.cancel();
    signal?.addEventListener("abort", this.abort);
  }

  /** Ends the call on both sides. */
  cancel(status = new Status(Code.Canceled, "canceled by its caller")) {
    if (this.ended) return;
    this.channel.frame(Kind.Cancel, 0, 0, this.id);
    this.items = [];
    this.fail(status);
  }

  push(body) {
    if (this.ended) return;
    // A copy: the body is a part of a buffer of many messages.
    this.items.push(body.slice());
    this.wake(this.readers);
  }

  finish(trailers) {
    if (this.ended) return;
    this.ended = true;
    this.trailers = trailers;
    clearTimeout(this.timer);
    this.signal?.removeEventListener("abort", this.abort);
    this.channel.forget(this);
    this.wake(this.readers);
    this.wake(this.writers);
  }

  fail(status) {
    if (this.ended) return;
    this.status = status;
    this.finish(status.metadata ?? []);
  }

  grow(bytes) {
    this.credit += bytes;
    this.wake(this.writers);
  }

  wake(waiting) {
    for (const resolve of waiting.splice(0)) resolve();
  }

  /** The next message; none at the end. */
  async take() {
    while (this.items.length === 0) {
      if (this.ended) {
        if (this.status) throw this.status;
        return undefined;
      }
      await new Promise((resolve) => this.readers.push(resolve));
    }
    const item = this.items.shift();
    this.taken += item.length || 1;
    if (this.taken >= WINDOW / 4 && !this.ended) {
      const grant = new DataView(new ArrayBuffer(4));
      grant.setUint32(0, this.taken, true);
      this.taken = 0;
      this.channel.frame(Kind.Credit, 0, 0, this.id, new Uint8Array(grant.buffer));
    }
    return item;
  }

  /** The only message of a call that succeeds. */
  async only() {
    const item = await this.take();
    while (!this.ended) await new Promise((resolve) => this.readers.push(resolve));
    if (this.status) throw this.status;
    if (item === undefined) throw new Status(Code.Internal, "the server sent no message");
    return decode(item);
  }

  async next() {
    const item = await this.take();
    return item === undefined ? { value: undefined, done: true } : { value: decode(item), done: false };
  }

  /** Sends one message; waits while the reader is behind. */
  async send(value) {
    const bytes = this.channel.encode(value);
    while (this.credit <= 0 && !this.ended) await new Promise((resolve) => this.writers.push(resolve));
    if (this.ended) throw this.status ?? new Status(Code.Canceled, "the call has ended");
    this.credit -= bytes.length || 1;
    this.channel.frame(Kind.Item, 0, 0, this.id, bytes);
  }

  halfClose() {
    if (!this.ended) this.channel.frame(Kind.End, END, 0, this.id);
  }
}

class Stream {
  #call;

  constructor(call) {
    this.#call = call;
  }

  /** Metadata that came before the first message and with the end: [name, value] pairs. */
  get metadata() {
    return this.#call.head;
  }

  get trailers() {
    return this.#call.trailers;
  }

  /** Ends the call; what waits for it gets Canceled. */
  cancel() {
    this.#call.cancel();
  }
}

class ServerStream extends Stream {
  #call;

  constructor(call) {
    super(call);
    this.#call = call;
  }

  next() {
    return this.#call.next();
  }

  /** Called when a loop is left early. */
  async return() {
    this.#call.cancel();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

class ClientStream extends Stream {
  #call;

  constructor(call) {
    super(call);
    this.#call = call;
  }

  send(value) {
    return this.#call.send(value);
  }

  /** Says that no more follows; the reply. */
  finish() {
    this.#call.halfClose();
    return this.#call.only();
  }
}

class Bidi extends ServerStream {
  #call;

  constructor(call) {
    super(call);
    this.#call = call;
  }

  send(value) {
    return this.#call.send(value);
  }

  /** Says that no more follows. */
  finish() {
    this.#call.halfClose();
  }
}

function decode(item) {
  return JSON.parse(decoder.decode(item));
}

function writeMetadata(metadata) {
  const bytes = [];
  for (const [name, value] of Object.entries(metadata)) {
    const raw = typeof value === "string" ? encoder.encode(value) : value;
    const text = name.endsWith("-bin") || raw.every((byte) => byte >= 0x20 && byte < 0x7f);
    if (!/^[0-9a-z_.-]{1,255}$/.test(name) || !text || raw.length > 65535) {
      throw new Status(Code.InvalidArgument, `${JSON.stringify(name)} with this value is no metadata`);
    }
    bytes.push(name.length, raw.length & 0xff, raw.length >> 8, ...encoder.encode(name), ...raw);
  }
  return Uint8Array.from(bytes);
}

function readMetadata(block) {
  const pairs = [];
  for (let at = 0; at + 3 <= block.length; ) {
    const nameEnd = at + 3 + block[at];
    const end = nameEnd + (block[at + 1] | (block[at + 2] << 8));
    const name = decoder.decode(block.subarray(at + 3, nameEnd));
    const value = block.slice(nameEnd, end);
    pairs.push([name, name.endsWith("-bin") ? value : decoder.decode(value)]);
    at = end;
  }
  return pairs;
}

function readEnd(code, body) {
  let metadata = [];
  let message = "";
  const details = [];
  let [retry, pauseMs] = [0, 0];
  if (body.length >= 12) {
    const view = new DataView(body.buffer, body.byteOffset, body.length);
    retry = body[0];
    pauseMs = view.getUint32(4, true);
    const text = 12 + view.getUint16(2, true);
    let at = text + view.getUint32(8, true);
    metadata = readMetadata(body.subarray(12, text));
    message = decoder.decode(body.subarray(text, at));
    while (at + 6 <= body.length) {
      const name = at + 6 + view.getUint16(at, true);
      const end = name + view.getUint32(at + 2, true);
      details.push({ type: decoder.decode(body.subarray(at + 6, name)), value: body.slice(name, end) });
      at = end;
    }
  }
  if (code === Code.Ok) return { metadata };
  return { status: new Status(code <= 16 ? code : Code.Unknown, message, { retry, pauseMs, metadata, details }) };
}
