// Text actor: the wait for a slot and the name of the model, over real connections to a fake server of chat completions.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type ModelStatistics, remoteTextChannel, remoteTextWindow } from "../../../../actors/messages.ts";
import { TextActor } from "../../../../actors/remote-text/text-actor.ts";
import { TextUpstream } from "../../../../actors/remote-text/text-upstreams.ts";
import {
  type GenerateEvent,
  type GenerateRequest,
  type RequestedSampling,
  requestDefaults,
} from "../../../../engines/generation.ts";
import type { RemoteSettings } from "../../../../engines/remote/upstream.ts";
import { StreamHub } from "../../../../runtime/actor/stream.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { send } from "../../../fixtures/remote/stand-in.ts";
import { until } from "../remote-model/rig.ts";

/** Sampling of a request that leaves all settings to the model. */
const unset: RequestedSampling = {
  ...{ temperature: null, topK: null, topP: null, minP: null, repetitionPenalty: null },
  ...{ presencePenalty: null, frequencyPenalty: null, dry: null, logitBias: [], seed: null, topLogprobs: null },
};

interface ChatServer {
  readonly url: string;
  /** Name of the only model. */
  model: string;
  /** Status of the response to a request for another model. */
  unknownStatus: number;
  /** Whether responses stay open until release() is called. */
  isHolding: boolean;
  readonly held: ServerResponse[];
  release(): Promise<void>;
}

async function startChatServer(t: TestContext): Promise<ChatServer> {
  const server = createServer(async (request, reply) => {
    if (request.url === "/v1/models") return void reply.end(JSON.stringify({ data: [{ id: far.model }] }));
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { model } = JSON.parse(Buffer.concat(chunks).toString()) as { model: string };
    if (model !== far.model) return void reply.writeHead(far.unknownStatus).end('{"error":"no such model"}');
    await send(reply, { choices: [{ index: 0, delta: { content: model } }] });
    if (far.isHolding) far.held.push(reply);
    else await finish(reply);
  });
  const finish = async (reply: ServerResponse): Promise<void> => {
    await send(reply, { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
    reply.end();
  };
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const far: ChatServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...{ model: "first", unknownStatus: 404, isHolding: false, held: [] },
    release: async () => {
      far.isHolding = false;
      for (const reply of far.held.splice(0)) await finish(reply);
    },
  };
  return far;
}

function openActor(t: TestContext, { url }: ChatServer, options: { slots?: number; queueTimeoutMs?: number } = {}) {
  const { slots = 4, queueTimeoutMs = 0 } = options;
  const settings: RemoteSettings = {
    ...{ urls: [url], model: null, apiKey: null, balance: "least", slots, retries: 2 },
    ...{ connectTimeoutMs: 5000, firstTokenTimeoutMs: 20_000, stallTimeoutMs: 20_000, probeIntervalMs: 60_000 },
  };
  const { left, right } = portPair();
  const upstreams = [new TextUpstream(url, settings)];
  const rest = { queueTimeoutMs, maxQueue: 8, front: left, onNotice: () => {} };
  const actor = new TextActor({ settings, upstreams, ...rest });
  const hub = new StreamHub(right, { channel: remoteTextChannel, window: remoteTextWindow });
  t.after(() => {
    actor.stop();
    left.close();
    right.close();
  });
  let nextStream = 1;
  return {
    statistics: async () => (await actor.statistics({}, { sender: left })) as ModelStatistics,
    /** Sends a request. Resolves with its text, or with the code of its error. */
    async ask(client = "me"): Promise<string> {
      const stream = nextStream++;
      const reader = hub.reader<GenerateEvent>(stream);
      const request: GenerateRequest = {
        ...requestDefaults,
        ...{ model: "m", client, sampling: unset },
        prompt: { kind: "chat", messages: [{ role: "user", content: "Hello" }], templateArguments: {} },
      };
      actor.generate({ stream, request }, { sender: left });
      let text = "";
      for await (const events of reader) {
        for (const event of events) {
          if (event.type === "text") text += event.text;
          if (event.type === "error") return event.error.code;
        }
      }
      return text;
    },
  };
}

describe("a request to a model in text mode", () => {
  it("fails when it has waited for a slot for queue_timeout_secs, and takes none", async (t) => {
    const far = await startChatServer(t);
    const { statistics, ask } = openActor(t, far, { slots: 1, queueTimeoutMs: 400 });
    far.isHolding = true;
    const first = ask();
    await until(() => far.held.length === 1);
    const late = await Promise.race([ask("other"), sleep(8000, "still waiting", { ref: false })]);
    assert.equal(late, "queue_timeout");
    assert.deepEqual((await statistics()).ended, { stop: 0, length: 0, cancelled: 0, error: 1 });
    await far.release();
    assert.equal(await first, "first", "the limit does not apply to a request that has a slot");
    assert.equal(await ask(), "first");
  });

  it("is sent again with the server's new model name after a restart, if remote_model is unset", async (t) => {
    const far = await startChatServer(t);
    const { ask } = openActor(t, far);
    assert.equal(await ask(), "first");
    far.model = "second";
    assert.equal(await ask(), "second");
  });

  it("costs a single error if the server refuses its old model name", async (t) => {
    const far = await startChatServer(t);
    far.unknownStatus = 400;
    const { ask } = openActor(t, far);
    assert.equal(await ask(), "first");
    far.model = "second";
    assert.equal(await ask(), "invalid_value");
    assert.equal(await ask(), "second");
  });
});
