// Dial ticket: with a ticket, any thread can connect to a place (thread or process) directly, without its spawner.
import { connect } from "node:net";
import type { MessagePort } from "node:worker_threads";
import type { Endpoint, Transferable } from "../endpoint/endpoint.ts";
import { PortEndpoint } from "../endpoint/port-endpoint.ts";
import { SocketEndpoint } from "../endpoint/socket-endpoint.ts";
import { ServerError } from "../errors.ts";

/**
 * Ticket for a connection to a place (thread or process). It is plain data that can be sent to other places. A ticket to a
 * thread can be used only once; a ticket to a child process can be used many times.
 */
export type DialTicket =
  | { readonly place: string; readonly kind: "thread"; readonly port: MessagePort }
  | { readonly place: string; readonly kind: "process"; readonly path: string };

/** Returns the objects to transfer when the ticket is sent to another thread. */
export function ticketTransfer(ticket: DialTicket): Transferable[] {
  return ticket.kind === "thread" ? [ticket.port] : [];
}

/** Connects to the thread or process of the ticket. Rejects with `peer_gone` if it has ended. */
export async function openEndpoint(ticket: DialTicket): Promise<Endpoint> {
  if (ticket.kind === "thread") return new PortEndpoint(ticket.port, { peer: ticket.place });
  return new Promise((resolve, reject) => {
    const socket = connect(ticket.path);
    const refused = (cause: Error) => {
      reject(new ServerError("peer_gone", `"${ticket.place}" does not answer at ${ticket.path}`, { cause }));
    };
    socket.once("error", refused);
    socket.once("connect", () => {
      socket.off("error", refused);
      resolve(new SocketEndpoint(socket, { peer: ticket.place }));
    });
  });
}
