// Rig of the messages tests: sends a body to an app with a fake inference, and returns the translated request.
import assert from "node:assert/strict";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

export const messages = [{ role: "user", content: "hi" }];
export const look = { name: "look", description: "looks", input_schema: { type: "object", properties: {} } };

/** Returns the protocol-independent request that a body is translated into. */
export async function taken(body: object, path = "/v1/messages") {
  const inference = new FakeInference();
  const app = createApp({ inference, log: recordingLog() });
  const reply = await request(app, "POST", path, { body: { messages, ...body } });
  assert.equal(reply.status, 200, reply.body);
  return inference.runs[0]?.request ?? inference.countRequests[0]!;
}

/** Returns the message of the error with which a body is rejected, and the field that it names. */
export async function refused(body: object, path = "/v1/messages"): Promise<[message: string, param: string]> {
  const app = createApp({ inference: new FakeInference(), log: recordingLog() });
  const reply = await request(app, "POST", path, { body: { messages, ...body } });
  const { type, error, request_id } = JSON.parse(reply.body);
  assert.deepEqual([reply.status, type, error.type], [400, "error", "invalid_request_error"], reply.body);
  assert.equal(request_id, reply.headers["x-request-id"]);
  return [error.message, error.details.param];
}

export async function refusedParams(bodies: readonly object[]): Promise<string[]> {
  return Promise.all(bodies.map(async (body) => (await refused(body))[1]));
}
