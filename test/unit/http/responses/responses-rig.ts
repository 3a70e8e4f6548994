// Responses rig: an app with an in-memory store of responses, and short methods that call its routes.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { StoredResponses } from "../../../../actors/api/stored-responses.ts";
import { createApp } from "../../../../http/app.ts";
import { responseEventSchema, responseSchema } from "../../../../http/responses/fold/resource-schema.ts";
import type { Piece } from "../../../../http/server/write-piece.ts";
import { FakeInference, type Script } from "../../../fixtures/fakes/fake-inference.ts";
import { altered, memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { request, type SocketlessReply } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import {
  checkResource,
  checkResponseStream,
  parseResponseStream,
  type StreamEvent,
} from "../../../fixtures/responses-checker.ts";

/** Any JSON value. */
export type Json = ReturnType<typeof JSON.parse>;

export interface Streamed {
  readonly events: readonly StreamEvent[];
  readonly types: readonly string[];
  /** Response object in the last event. */
  readonly response: Json;
}

export class ResponsesRig {
  readonly inference: FakeInference;
  readonly log = recordingLog();
  /** Ids of all stored responses, in order. */
  readonly addedIds: string[] = [];
  readonly store: StoredResponses;
  readonly app: ReturnType<typeof createApp>;

  constructor(script?: Script, options: { store?: StoredResponses; maxBackgroundResponses?: number } = {}) {
    const { store = memoryResponses(), maxBackgroundResponses = 4 } = options;
    this.inference = new FakeInference(script);
    const { inference, log, addedIds } = this;
    this.store = altered(store, {
      add(response) {
        addedIds.push(response.id);
        return store.add(response);
      },
    });
    this.app = createApp({
      inference,
      log,
      storedResponses: this.store,
      config: { accessLog: false, maxBackgroundResponses },
    });
  }

  send(body: Json, signal?: AbortSignal): Promise<SocketlessReply> {
    return request(this.app, "POST", "/v1/responses", { body, ...(signal === undefined ? {} : { signal }) });
  }

  /** Sends a request and returns its response. */
  async create(body: Json): Promise<Json> {
    return resource(await this.send(body));
  }

  /** Sends a streamed request. Returns the stream, which has been checked. */
  async stream(body: Json): Promise<Streamed> {
    return streamed(await this.send({ stream: true, ...body }));
  }

  get(id: string, query = ""): Promise<SocketlessReply> {
    return request(this.app, "GET", `/v1/responses/${id}`, { query });
  }

  async fetch(id: string): Promise<Json> {
    return resource(await this.get(id));
  }

  delete(id: string): Promise<SocketlessReply> {
    return request(this.app, "DELETE", `/v1/responses/${id}`);
  }

  cancel(id: string): Promise<SocketlessReply> {
    return request(this.app, "POST", `/v1/responses/${id}/cancel`, { body: {} });
  }

  inputItems(id: string, query = ""): Promise<SocketlessReply> {
    return request(this.app, "GET", `/v1/responses/${id}/input_items`, { query });
  }

  get lastId(): string {
    return this.addedIds.at(-1) ?? "";
  }

  /** Waits until a response has ended. Returns it. */
  async ended(id: string): Promise<Json> {
    for (let i = 0; i < 200; i++) {
      const response = await this.fetch(id);
      if (response.status !== "queued" && response.status !== "in_progress") return response;
      await sleep(2);
    }
    throw new Error(`response ${id} does not end`);
  }
}

export function resource(reply: SocketlessReply): Json {
  assert.equal(reply.status, 200, reply.body);
  const response = JSON.parse(reply.body) as Json;
  checkResource(response);
  responseSchema.parse(response);
  return response;
}

export function streamed(reply: SocketlessReply): Streamed {
  assert.deepEqual([reply.status, reply.headers["content-type"]], [200, "text/event-stream"]);
  const events = parseResponseStream(reply.body);
  for (const event of events) responseEventSchema.parse(event);
  const response = checkResponseStream(events);
  return { events, types: events.map((event) => String(event.type).replace("response.", "")), response };
}

export function errorOf(reply: SocketlessReply): readonly [status: number, code: string, param: string | null] {
  const { error } = JSON.parse(reply.body) as Json;
  return [reply.status, error.code, error.param];
}

/** Joins the pieces into one string. */
export async function whole(pieces: AsyncIterable<Piece>): Promise<string> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(Buffer.from(piece));
  return Buffer.concat(all).toString();
}
