// @grpc/grpc-js, the gRPC client of Node programs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import grpc from "@grpc/grpc-js";
import { definitions, start } from "./server.mjs";

let server, client;

before(async () => {
  server = await start();
  const Greeter = grpc.loadPackageDefinition(definitions).demo.v1.Greeter;
  client = new Greeter(`127.0.0.1:${server.port}`, grpc.credentials.createInsecure());
});

after(() => {
  client.close();
  server.end();
});

// Resolves with the answer, its metadata and its status.
function unary(request, metadata = new grpc.Metadata(), options = {}) {
  return new Promise((resolve) => {
    const seen = {};
    const call = client.Greet(request, metadata, options, (error, reply) => Object.assign(seen, { error, reply }));
    call.on("metadata", (head) => (seen.head = head));
    call.on("status", (status) => resolve(Object.assign(seen, { status })));
  });
}

test("unary, with metadata both ways", async () => {
  const metadata = new grpc.Metadata();
  metadata.set("x-echo", "ping");
  const { reply, head, status } = await unary({ name: "Ada" }, metadata);
  assert.equal(reply.text, "hello Ada");
  assert.deepEqual(head.get("x-echo"), ["ping"]);
  assert.deepEqual(status.metadata.get("x-echo-trailer"), ["ping"]);
});

test("a status with its text", async () => {
  const { error } = await unary({ name: "" });
  assert.equal(error.code, grpc.status.INVALID_ARGUMENT);
  assert.match(error.details, /say whom to greet/);
});

test("server stream", async () => {
  const ticks = [];
  for await (const tick of client.Watch({ count: 3 })) ticks.push(tick.n);
  assert.deepEqual(ticks, [0, 1, 2]);
});

test("client stream", async () => {
  const total = await new Promise((resolve, reject) => {
    const call = client.Sum((error, total) => (error ? reject(error) : resolve(total)));
    for (const value of [1, 2, 39]) call.write({ value });
    call.end();
  });
  assert.deepEqual(total, { sum: "42", count: 3 });
});

test("bidirectional stream, turn by turn", async () => {
  const call = client.Chat();
  const notes = call[Symbol.asyncIterator]();
  for (const text of ["one", "two"]) {
    call.write({ text });
    assert.equal((await notes.next()).value.text, text.toUpperCase());
  }
  call.end();
  assert.equal((await notes.next()).done, true);
});

test("deadline", async () => {
  const call = client.Watch({ count: 10, intervalMs: 60000 }, { deadline: Date.now() + 200 });
  const error = await new Promise((resolve) => call.on("data", () => {}).on("error", resolve));
  assert.equal(error.code, grpc.status.DEADLINE_EXCEEDED);
});

test("compressed requests", async () => {
  const Greeter = grpc.loadPackageDefinition(definitions).demo.v1.Greeter;
  const options = { "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip };
  const gzip = new Greeter(`127.0.0.1:${server.port}`, grpc.credentials.createInsecure(), options);
  const name = "x".repeat(100000);
  const reply = await new Promise((resolve, reject) => {
    gzip.Greet({ name }, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
  gzip.close();
  assert.equal(reply.text, `hello ${name}`);
});
