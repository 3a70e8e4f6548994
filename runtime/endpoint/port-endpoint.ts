// Owns the thread carrier: an Endpoint over a MessagePort. Typed arrays cross by structured clone, or move if listed.
// A port has no send buffer to look at, so the receiver acknowledges every 64 messages and the sender counts the rest.
import type { MessagePort } from "node:worker_threads";
import { BaseEndpoint, type LinkOptions, orderlyLoss, silentLoss } from "./base-endpoint.ts";
import type { Transferable } from "./endpoint.ts";

const acknowledgeEvery = 64;
/** Unacknowledged messages above which send() says "slow down", and above which the link is given up. */
const highWaterMark = 1024;
const hardLimit = 16_384;

/** [channel, payload] | how many messages the other side has received so far | goodbye. */
type Wire = readonly [channel: string, payload: unknown] | number | "bye";

export class PortEndpoint extends BaseEndpoint {
  readonly #port: MessagePort;
  #sent = 0;
  #acknowledged = 0;
  #received = 0;

  constructor(port: MessagePort, options: LinkOptions) {
    super(options);
    this.#port = port;
    port.on("message", (wire: Wire) => this.#arrived(wire));
    port.on("messageerror", (error) => this.fail(`a message could not be read: ${error.message}`));
    // Node closes a port when the other one's thread ends, after what it had sent: the only sign of an abrupt death.
    port.on("close", () => this.lose(silentLoss()));
  }

  override send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean {
    if (this.isLost) return false;
    const inFlight = this.#sent - this.#acknowledged;
    if (inFlight >= hardLimit) {
      this.fail(`"${this.peer}" has left ${hardLimit} messages unread`);
      return false;
    }
    this.#post([channel, payload], transfer);
    this.#sent++;
    return inFlight < highWaterMark;
  }

  override close(): void {
    if (this.isLost) return;
    this.#post("bye");
    this.lose(orderlyLoss("closed here"));
  }

  protected override abandon(): void {
    this.#port.close();
  }

  #post(wire: Wire, transfer?: readonly Transferable[]): void {
    this.#port.postMessage(wire, transfer);
  }

  #arrived(wire: Wire): void {
    if (this.isLost) return;
    if (typeof wire === "number") {
      this.#acknowledged = wire;
    } else if (wire === "bye") {
      this.lose(orderlyLoss("closed by the peer"));
    } else {
      this.#received++;
      if (this.#received % acknowledgeEvery === 0) this.#post(this.#received);
      this.deliver(wire[0], wire[1]);
    }
  }
}
