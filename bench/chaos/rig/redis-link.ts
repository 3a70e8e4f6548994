// Link to Redis: a TCP proxy between a server and Redis. It can close its connections, drop all data silently, and switch to
// another Redis server.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

export class RedisLink {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #target: number;
  #isSilent = false;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((socket) => this.#join(socket));
  }

  /** Opens a proxy to port `target` of this machine. */
  static async open(target: number): Promise<RedisLink> {
    const link = new RedisLink(target);
    link.#server.listen(0, "127.0.0.1");
    await once(link.#server, "listening");
    return link;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Closes all connections. New connections go to port `target`. */
  cut(target = this.#target): void {
    this.#target = target;
    for (const socket of this.#sockets) socket.destroy();
  }

  /** true: keeps connections open but forwards no data, as if packets were lost. false: forwards again, and closes the old connections. */
  partition(isSilent: boolean): void {
    this.#isSilent = isSilent;
    if (!isSilent) this.cut();
    else for (const socket of this.#sockets) socket.pause();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #join(client: Socket): void {
    const upstream = connect(this.#target, "127.0.0.1");
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(from);
      from.on("error", () => {});
      from.on("data", (data) => {
        if (!this.#isSilent) to.write(data);
      });
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      if (this.#isSilent) from.pause();
    }
  }
}
