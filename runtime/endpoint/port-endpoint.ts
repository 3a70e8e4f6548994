// Endpoint over a MessagePort. Typed arrays are cloned; those in the transfer list are transferred. A port does not report how
// full its send buffer is. So the receiver acknowledges every 64 messages, and the sender counts the unacknowledged ones.
import type { MessagePort } from "node:worker_threads";
import { BaseEndpoint, type EndpointOptions, orderlyLoss, silentLoss } from "./base-endpoint.ts";
import type { Transferable } from "./endpoint.ts";

const acknowledgeEvery = 64;
/**
 * Limits on the number of unacknowledged messages. Above highWaterMark, send() returns false. Above hardLimit, the connection
 * is closed.
 */
const highWaterMark = 1024;
const hardLimit = 16_384;

/** A message on the port: [channel, payload], the number of messages that the other end has received so far, or a goodbye. */
type Wire = readonly [channel: string, payload: unknown] | number | "bye";

export class PortEndpoint extends BaseEndpoint {
  readonly #port: MessagePort;
  #sent = 0;
  #acknowledged = 0;
  #received = 0;

  constructor(port: MessagePort, options: EndpointOptions) {
    super(options);
    this.#port = port;
    port.on("message", (wire: Wire) => this.#arrived(wire));
    port.on("messageerror", (error) => this.fail(`a message could not be read: ${error.message}`));
    // When the other thread ends, Node closes the port after its last message. This event is the only sign that
    // the thread has ended abruptly.
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
