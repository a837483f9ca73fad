// @connectrpc/connect on Node, in each of its dialects and over both versions of HTTP.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { reflected, start } from "./server.mjs";

const TRANSPORTS = [
  ["Connect, protobuf, HTTP/1.1", createConnectTransport, { httpVersion: "1.1", useBinaryFormat: true }],
  ["Connect, JSON, HTTP/1.1", createConnectTransport, { httpVersion: "1.1" }],
  ["Connect, GET, HTTP/1.1", createConnectTransport, { httpVersion: "1.1", useHttpGet: true }],
  ["Connect, JSON, HTTP/2", createConnectTransport, { httpVersion: "2" }],
  ["gRPC, HTTP/2", createGrpcTransport, { httpVersion: "2" }],
  ["gRPC-Web, HTTP/1.1", createGrpcWebTransport, { httpVersion: "1.1" }],
  ["gRPC-Web, HTTP/2", createGrpcWebTransport, { httpVersion: "2" }],
];

let server, Greeter;
before(async () => {
  server = await start();
  const file = await described({ fileContainingSymbol: "demo.v1.Greeter" });
  Greeter = createFileRegistry(create(FileDescriptorSetSchema, { file })).getService("demo.v1.Greeter");
});
after(() => server.end());

// The files that the server names, each behind those that it imports.
async function described(question, known = new Map()) {
  for (const bytes of await reflected(server.port, question)) {
    const file = fromBinary(FileDescriptorProtoSchema, bytes);
    if (known.has(file.name)) continue;
    for (const name of file.dependency) {
      if (!known.has(name)) await described({ fileByFilename: name }, known);
    }
    known.set(file.name, file);
  }
  return [...known.values()];
}

async function* given(...messages) {
  yield* messages;
}

async function all(stream, field) {
  const values = [];
  for await (const message of stream) values.push(message[field]);
  return values;
}

for (const [name, transport, options] of TRANSPORTS) {
  describe(name, () => {
    let client;
    before(() => {
      client = createClient(Greeter, transport({ baseUrl: `http://127.0.0.1:${server.port}`, ...options }));
    });

    test("unary, with metadata both ways", async () => {
      let head, trailers;
      const reply = await client.greet(
        { name: "Ada" },
        {
          headers: { "x-echo": "ping" },
          onHeader: (seen) => (head = seen),
          onTrailer: (seen) => (trailers = seen),
        },
      );
      assert.equal(reply.text, "hello Ada");
      assert.equal(head.get("x-echo"), "ping");
      assert.equal(trailers.get("x-echo-trailer"), "ping");
    });

    test("a status with its text", async () => {
      const error = await client.greet({ name: "" }).catch(ConnectError.from);
      assert.equal(error.code, Code.InvalidArgument);
      assert.match(error.rawMessage, /say whom to greet/);
    });

    test("server stream", async () => {
      assert.deepEqual(await all(client.watch({ count: 3 }), "n"), [0, 1, 2]);
    });

    test("client stream", async () => {
      const total = await client.sum(given({ value: 1n }, { value: 41n }));
      assert.deepEqual([total.sum, total.count], [42n, 2]);
    });

    // Both ways at once needs HTTP/2; one after the other does not.
    test("bidirectional stream", async () => {
      assert.deepEqual(await all(client.chat(given({ text: "one" }, { text: "two" })), "text"), ["ONE", "TWO"]);
    });

    test("deadline", async () => {
      const error = await all(client.watch({ count: 9, intervalMs: 60000 }, { timeoutMs: 200 })).catch(
        ConnectError.from,
      );
      assert.equal(error.code, Code.DeadlineExceeded);
    });
  });
}
