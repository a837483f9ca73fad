// Starts the real server on a free port, and what the clients know of its schema.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const REFLECTION = fileURLToPath(new URL("reflection.proto", import.meta.url));
const SCHEMA = fileURLToPath(new URL("../../crates/switchboard-cli/proto/demo/v1/demo.proto", import.meta.url));
// What the schema imports.
const OPTIONS = fileURLToPath(new URL("../../crates/switchboard-build/proto", import.meta.url));

// Services for @grpc/grpc-js.
export const definitions = loader.loadSync(SCHEMA, { defaults: true, includeDirs: [OPTIONS], longs: String });

// Returns the port and a function that ends the server.
export async function start() {
  const [command, ...first] = (process.env.SWITCHBOARD_BIN || "switchboard").split(" ");
  const server = spawn(command, [...first, "serve", "--listen", "127.0.0.1:0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface({ input: server.stdout })) {
    const port = line.match(/^listening on http:\/\/.*:(\d+)$/)?.[1];
    if (port) return { port, end: () => server.kill("SIGKILL") };
  }
  throw new Error(`${command} ended before it listened`);
}

// The files that answer a question to the server about its own schema.
export async function reflected(port, question) {
  const { ServerReflection } = grpc.loadPackageDefinition(loader.loadSync(REFLECTION)).grpc.reflection.v1;
  const client = new ServerReflection(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  const call = client.ServerReflectionInfo();
  call.end(question);
  let files = [];
  for await (const answer of call) files = answer.fileDescriptorResponse.fileDescriptorProto;
  client.close();
  return files;
}
