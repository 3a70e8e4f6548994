// POST transport: extends the library's transport and tracks the pending requests of each POST. A cancelled request gets no
// response. The stream of a POST ends when its other requests have responses.
import {
  isJSONRPCErrorResponse,
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type RequestId,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { ServerError } from "../../runtime/errors.ts";

/** Requests of one POST: those that wait for a response, and those that were cancelled. */
interface Post {
  readonly waiting: Set<RequestId>;
  readonly cancelled: RequestId[];
}

export class PostTransport extends WebStandardStreamableHTTPServerTransport {
  /** The POST of each unanswered request, by request id. */
  readonly #posts = new Map<RequestId, Post>();

  /** Called by the library after the server has set `onmessage`. */
  override async start(): Promise<void> {
    const deliver = this.onmessage;
    this.onmessage = (message, extra) => {
      deliver?.(message, extra);
      const cancelled = cancelledId(message);
      if (cancelled !== null) this.#settle(cancelled, true);
    };
    await super.start();
  }

  /**
   * Returns the response to a POST. Throws `invalid_value` if an unanswered request has the same id, because the two responses
   * could not be distinguished.
   */
  async answer(request: Request, parsedBody: unknown): Promise<Response> {
    const ids = requestIds(parsedBody);
    const taken = ids.find((id, at) => this.#posts.has(id) || ids.indexOf(id) < at);
    if (taken !== undefined) {
      const shown = JSON.stringify(taken).slice(0, 100);
      throw new ServerError("invalid_value", `expected a unique id; a request with id ${shown} is not answered yet`);
    }
    const post: Post = { waiting: new Set(ids), cancelled: [] };
    for (const id of ids) this.#posts.set(id, post);
    let isTaken = false;
    try {
      const response = await this.handleRequest(request, { parsedBody });
      isTaken = response.ok;
      return response;
    } finally {
      if (!isTaken) for (const id of ids) this.#posts.delete(id);
    }
  }

  override async send(message: JSONRPCMessage, options?: { relatedRequestId?: RequestId }): Promise<void> {
    try {
      await super.send(message, options);
    } finally {
      if (isAnswer(message) && message.id !== undefined) this.#settle(message.id, false);
    }
  }

  #settle(id: RequestId, isCancelled: boolean): void {
    const post = this.#posts.get(id);
    if (post === undefined) return;
    this.#posts.delete(id);
    post.waiting.delete(id);
    if (isCancelled) post.cancelled.push(id);
    if (post.waiting.size === 0) this.#end(post);
  }

  /**
   * Closes the stream of a POST with cancelled requests. Without cancelled requests, the library has already closed the stream.
   */
  #end({ cancelled }: Post): void {
    for (const id of cancelled) {
      this.closeSSEStream(id);
      // This response is not delivered, because the stream is closed. It makes the library forget the id. Without this
      // response, the library would keep the id until the session ends.
      super.send({ jsonrpc: "2.0", id, result: {} }).catch(() => {});
    }
  }
}

function requestIds(parsedBody: unknown): readonly RequestId[] {
  return [parsedBody].flat().flatMap((message) => (isJSONRPCRequest(message) ? [message.id] : []));
}

function isAnswer(message: JSONRPCMessage): message is JSONRPCMessage & { readonly id?: RequestId } {
  return isJSONRPCResultResponse(message) || isJSONRPCErrorResponse(message);
}

/** Returns the id of the request that a message cancels; null if it cancels none. */
function cancelledId(message: JSONRPCMessage): RequestId | null {
  if (!isJSONRPCNotification(message) || message.method !== "notifications/cancelled") return null;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : null;
}
