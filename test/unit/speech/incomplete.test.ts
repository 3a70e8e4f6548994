// Incomplete speech calls over HTTP: if the last event is missing, no response may look complete.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { SpeakEvent, Speech, TranscribeEvent } from "../../../actors/api/speech/speech.ts";
import { startServer, type TestServer } from "../../fixtures/http-server.ts";
import { fakeSpeech } from "../../fixtures/speech/fake-speech.ts";
import { openStores, type TestStores } from "../http/agents/stores.ts";

const whole = fakeSpeech(() => null);

/** Returns the fake speech without its `done` events. */
function endless(): Speech {
  return {
    ...whole,
    async *speak(request, signal): AsyncGenerator<readonly SpeakEvent[]> {
      for await (const batch of whole.speak(request, signal)) yield batch.filter(({ type }) => type !== "done");
    },
    async *transcribe(request, signal): AsyncGenerator<readonly TranscribeEvent[]> {
      for await (const batch of whole.transcribe(request, signal)) yield batch.filter(({ type }) => type !== "done");
    },
  };
}

describe("a speech call without its last event", () => {
  let stores: TestStores;
  let server: TestServer;
  before(async () => {
    stores = await openStores();
    server = await startServer("node", { parts: { files: stores.files, speech: endless() } });
  });
  after(async () => {
    await server.stop();
    stores.dispose();
  });

  const speak = (fields: object) =>
    fetch(`${server.url}/v1/audio/speech`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: "Hello.", response_format: "wav", ...fields }),
    });
  const transcribe = (fields: Readonly<Record<string, string>>) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    form.set("file", new Blob([new Uint8Array(4)]), "audio.wav");
    return fetch(`${server.url}/v1/audio/transcriptions`, { method: "POST", body: form });
  };

  it("breaks the connection of audio", async () => {
    const reply = await speak({});
    assert.equal(reply.status, 200);
    await assert.rejects(reply.arrayBuffer());
  });

  it("ends the events of audio with an error", async () => {
    const text = await (await speak({ stream_format: "sse" })).text();
    assert.match(text, /speech\.audio\.delta/);
    assert.match(text, /"code":"peer_gone"/);
    assert.doesNotMatch(text, /speech\.audio\.done/);
  });

  it("is refused as a transcript", async () => {
    const reply = await transcribe({});
    assert.equal(reply.status, 503);
    assert.match(await reply.text(), /"code":"peer_gone"/);
  });

  it("ends the events of a transcript with an error", async () => {
    const text = await (await transcribe({ stream: "true" })).text();
    assert.match(text, /transcript\.text\.delta/);
    assert.match(text, /"code":"peer_gone"/);
    assert.doesNotMatch(text, /transcript\.text\.done/);
  });
});
