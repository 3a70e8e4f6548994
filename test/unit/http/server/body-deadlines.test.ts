import assert from "node:assert/strict";
import { it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ArrivingBody } from "../../../../http/server/body-deadlines.ts";

it("a body progresses with every KiB, and stalls if bytes trickle", async () => {
  const body = new ArrivingBody(() => {});
  const start = body.movedAt;
  await sleep(5);
  for (let i = 0; i < 1023; i++) body.onBytes(1);
  assert.equal(body.movedAt, start);
  body.onBytes(1);
  assert.ok(body.movedAt > start);
  const moved = body.movedAt;
  await sleep(5);
  body.onBytes(1023);
  assert.equal(body.movedAt, moved);
});
