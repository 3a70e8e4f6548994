// Mount: HTTP front end without a socket. A different HTTP server passes its requests to it, either as web Requests or as
// node:http requests. Body limits are the same as in the other front ends.
import type { IncomingMessage, ServerResponse } from "node:http";
import { ServerError } from "../../../runtime/errors.ts";
import type { AddressOf } from "../access/trusted-proxies.ts";
import { BodyIntake } from "../body-intake.ts";
import type { BodyLimits, EdgeHandler, EdgeServer } from "../edge.ts";
import { InFlight } from "../in-flight.ts";
import { NodeReply } from "../node/reply.ts";
import { NodeRequest, readBody } from "../node/request.ts";
import { FetchReply } from "./fetch-reply.ts";
import { FetchRequest, receiveBody } from "./fetch-request.ts";

export interface MountOptions extends BodyLimits {
  /** Path prefix of the requests, such as "/ai"; "": no prefix. */
  readonly basePath: string;
  /** Returns the address of a node:http request's client; default: the remote address of its connection. */
  readonly addressOf?: AddressOf;
}

/** node:http request passed on by a framework. A body parser of the framework may have set `body`. */
type ParsedRequest = IncomingMessage & { readonly body?: unknown };

export class Mount {
  readonly #basePath: string;
  readonly #handler: EdgeHandler;
  readonly #intake: BodyIntake;
  readonly #addressOf: AddressOf | undefined;
  readonly #inFlight = new InFlight();
  /** EdgeServer without a port, used by the caller to close this front end. */
  readonly server: EdgeServer;

  constructor(handler: EdgeHandler, options: MountOptions) {
    this.#basePath = options.basePath;
    this.#handler = handler;
    this.#addressOf = options.addressOf;
    this.#intake = new BodyIntake(handler, options);
    this.server = this.#inFlight.server({ port: 0, stopAccepting: () => {}, stop: () => this.#intake.stop() });
  }

  /** Handles a web Request. `address`: identifies a client without an API key, for fair scheduling between clients. */
  fetch(request: Request, address = ""): Promise<Response> {
    const reply = new FetchReply(request, this.#inFlight);
    const { pathname, search } = new URL(request.url);
    const path = this.#ownPath(pathname);
    const own = new FetchRequest(request, `${path ?? pathname}${search}`, reply.signal, address);
    if (path === null) this.#handler(own, reply, this.#elsewhere());
    else if (request.bodyUsed) this.#handler(own, reply, bodyIsRead());
    else void receiveBody(request.body, own, reply, this.#intake);
    return reply.response;
  }

  /** Handles a node:http request. For a path outside the base path, calls `next` if it is given. */
  node(incoming: ParsedRequest, response: ServerResponse, next?: () => void): void {
    const { url = "/" } = incoming;
    const [pathname = "/"] = url.split("?", 1);
    const path = this.#ownPath(pathname);
    if (path === null && next !== undefined) {
      next();
      return;
    }
    const reply = new NodeReply(response, this.#inFlight, new Set());
    const ownUrl = `${path ?? pathname}${url.slice(pathname.length)}`;
    const request = new NodeRequest(incoming, reply.signal, ownUrl, this.#addressOf);
    if (path === null) this.#handler(request, reply, this.#elsewhere());
    else if (!incoming.readableDidRead) readBody(incoming, request, reply, this.#intake);
    else if (incoming.body === undefined) this.#handler(request, reply, bodyIsRead());
    else this.#intake.receive(request, reply, bytesOf(incoming.body));
  }

  /** Returns the path without the base path; null if the path is outside the base path. */
  #ownPath(path: string): string | null {
    if (path === this.#basePath) return "/";
    return path.startsWith(`${this.#basePath}/`) ? path.slice(this.#basePath.length) : null;
  }

  #elsewhere(): ServerError {
    return new ServerError("not_found", `expected a path below ${this.#basePath}`);
  }
}

function bodyIsRead(): ServerError {
  const message =
    "expected a request whose body has not been read; mount troupe before the middleware that reads bodies";
  return new ServerError("internal", message);
}

/** Returns the bytes of a body that a framework's body parser has read. */
function bytesOf(body: unknown): Uint8Array {
  if (body instanceof Uint8Array) return body;
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}
