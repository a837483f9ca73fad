// JSON-RPC 2.0 in the text messages of a WebSocket, with streams of replies (docs/json-rpc.md).
//
//   const client = await connect("ws://localhost:8080/rpc");
//   const reply = await client.request("Greeter.Greet", { name: "you" });
//   await client.request("Greeter.Watch", { count: 3 }, (tick) => console.log(tick));
//
// What fails is an Error with `code` and `data`, those of JSON-RPC's error object.

/** Opens a connection; any number of requests may be under way on it. */
export function connect(url) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, "jsonrpc");
    const client = new Client(socket);
    socket.onopen = () => resolve(client);
    socket.onmessage = ({ data }) => client.receive(JSON.parse(data));
    socket.onclose = ({ code, reason }) => {
      const error = new Error(`the connection has ended: ${reason || `close code ${code}`}`);
      client.end(error);
      reject(error);
    };
  });
}

class Client {
  constructor(socket) {
    Object.assign(this, { socket, requests: new Map(), last: 0, ended: null });
  }

  /** The result; of a method that streams, each reply goes to `onReply` first. */
  request(method, params, onReply = () => {}) {
    return new Promise((resolve, reject) => {
      if (this.ended) return reject(this.ended);
      const id = (this.last += 1);
      this.requests.set(id, { resolve, reject, onReply });
      this.socket.send(JSON.stringify({ jsonrpc: "2.0", method, params, id }));
    });
  }

  close() {
    this.socket.close(1000);
  }

  receive({ method, params, id, result, error }) {
    if (method === "rpc.stream") return this.requests.get(params.id)?.onReply(params.result);
    const request = this.requests.get(id);
    this.requests.delete(id);
    if (error) request?.reject(Object.assign(new Error(error.message), { code: error.code, data: error.data }));
    else request?.resolve(result);
  }

  end(error) {
    this.ended = error;
    for (const { reject } of this.requests.values()) reject(error);
    this.requests.clear();
  }
}
