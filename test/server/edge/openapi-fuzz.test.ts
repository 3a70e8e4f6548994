// OpenAPI fuzzing: thousands of random requests to every route of the API document, with a fake model. The server must
// respond to each in time, with a response that the document declares and that is not an internal error.
import assert from "node:assert/strict";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import type { Agents } from "../../../actors/api/agent/agents.ts";
import type { Session } from "../../../actors/api/agent/sessions.ts";
import type { ModelEntry } from "../../../actors/api/inference.ts";
import type { ModelLibrary } from "../../../actors/api/model-management.ts";
import type { GenerateRequest } from "../../../engines/generation.ts";
import { createApp } from "../../../http/app.ts";
import { commonErrors } from "../../../http/errors.ts";
import { openApiDocument } from "../../../http/openapi/document.ts";
import { routes } from "../../../http/routes.ts";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { DeclaredAnswers } from "../../fixtures/api/declared-answers.ts";
import { type Documented, type RandomRequest, randomRequest } from "../../fixtures/api/random-requests.ts";
import { randomScript } from "../../fixtures/api/random-script.ts";
import { RandomValues, type Schema } from "../../fixtures/api/random-values.ts";
import { tuneResult } from "../../fixtures/api/tune-result.ts";
import { fakeImages } from "../../fixtures/diffusion/fake-images.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { FakeLora } from "../../fixtures/fakes/fake-lora.ts";
import { FakeModels } from "../../fixtures/fakes/fake-models.ts";
import { request, type SocketlessReply } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { seeded } from "../../fixtures/schemas/random-text.ts";
import { skillText } from "../../fixtures/skills/zip-builder.ts";
import { fakeSpeech } from "../../fixtures/speech/fake-speech.ts";
import { SkillRig } from "../../unit/actors/state/skill-rig.ts";
import { openStores, type TestStores } from "../../unit/http/agents/stores.ts";

const thisFile = fileURLToPath(import.meta.url);
/** Number of random requests to a route. */
const REQUESTS_PER_ROUTE = Number(process.env.FUZZ_REQUESTS ?? 1000);
/** Fraction of REQUESTS_PER_ROUTE for routes that delete files. Fewer, because each request needs the files restored on disk. */
const DELETION_SHARE = 1 / 8;
const ANSWER_LIMIT_MS = 2000;
/** Error codes with which the fake model fails: errors of the model itself, and errors of earlier steps, such as the queue. */
const failures: readonly ErrorCode[] = [
  "context_length_exceeded",
  "unsupported",
  "queue_full",
  "queue_timeout",
  "model_loading",
  "model_failed",
  "peer_gone",
  "timeout",
];

const document = JSON.parse(JSON.stringify(openApiDocument(routes)));
const components: Record<string, Schema> = document.components.schemas;
const declared = new DeclaredAnswers(document);

/** Prompt whose response takes longer than any test. */
const LONG = "Tell me a long story";

/** Request field values by field name: ids of existing objects, which the schemas cannot express, and empty values for missing features. */
const knownFields = {
  mcp_servers: [[]],
  skills: [[]],
  container: [null],
  web_search_options: [null],
  enable_search: [false],
  model: ["tiny", "tiny", "default", "a::b", "nope"],
  name: ["a_tool", "b_tool", "c_tool", "d_tool"],
  n: [1, 1, 2],
  input: ["hi"],
  agent_permission: ["auto", "deny"],
  model_id: ["tiny", "other", "default", "nope"],
  requested_isq: [null, "Q4K", "q8_0", "Q9"],
  adapter: ["an_adapter", { generation: "5a".repeat(32) }],
  generation: ["5a".repeat(32)],
  expected_generation: ["5a".repeat(32)],
  lora_name: ["an_adapter", " b "],
  lora_path: ["a/path"],
  load_inplace: [true],
  replace: [true],
};

const anAdapter = { model: "tiny", alias: "an_adapter", path: "a/path", replace: true, expectedGeneration: null };

type World = ReturnType<typeof setUp>;

function isLong({ prompt }: GenerateRequest): boolean {
  return prompt.kind === "chat" && prompt.messages.some(({ content }) => content === LONG);
}

/** Fake agent loop of a server without tools: no call waits for an approval, and every approval decision is accepted. */
const noTools: Agents = {
  groups: [],
  dispatches: false,
  permission: "auto",
  serverTools: [],
  registersServerTools: true,
  toolServers: null,
  run: () => assert.fail("no request uses tools"),
  decide: () => "resolved",
  forget: async () => {},
  pending: () => [],
};

/** Fake model library, whose downloads complete at once. */
function fakeLibrary(failure: () => ErrorCode | null): ModelLibrary {
  const outcome = async () => {
    const code = failure();
    if (code !== null) throw new ServerError(code, "scripted");
  };
  const model = "owner/name";
  const download = { model, status: `download ${model}`, doneBytes: 1, totalBytes: null };
  return {
    downloads: () => [download],
    download: async (_name, _signal, onProgress) => {
      onProgress(download);
      await outcome();
    },
    remove: outcome,
  };
}

/** Path prefixes of agent routes. Only these are tested with file, session and skill stores. */
const ofAgents = /^\/v1\/(?:files|containers|sessions|skills|agent)\b/;

function setUp(seed: number, stores: Stores | null = null) {
  const responseIds: string[] = [];
  const known = { ...knownFields, previous_response_id: responseIds };
  const values = new RandomValues(seeded(seed), components, known);
  const inference = new FakeInference();
  const log = recordingLog();
  const [tiny, other] = inference.entries;
  // Any file can stand in for the model file.
  const path = fileURLToPath(import.meta.url);
  inference.entries = [
    { ...(tiny as ModelEntry), path, adapters: [{ alias: "a::b", generation: "5a".repeat(32), createdAt: 1 }] },
    { ...(other as ModelEntry), path },
  ];
  const models = new FakeModels(inference);
  const lora = new FakeLora();
  const kept =
    stores === null
      ? {}
      : { files: stores.files, sessions: stores.sessions, skills: stores.skills.store, agents: noTools };
  const app = createApp({
    inference,
    models,
    imageGeneration: fakeImages(() => world.failsWith),
    speech: fakeSpeech(() => world.failsWith),
    lora,
    tuner: { tune: async () => tuneResult },
    library: fakeLibrary(() => world.failsWith),
    webModels: [{ name: "tiny", files: [{ name: "index.html", path: thisFile, bytes: statSync(thisFile).size }] }],
    log,
    config: { allowLoraUpdates: true, sharesModelFiles: true, downloadsModels: true },
    ...kept,
  });
  const failWith = (code: ErrorCode | null): void => {
    world.failsWith = code;
    lora.failure = code === null ? null : new ServerError(code, "scripted");
    models.becomes = code === null ? null : { status: "unloaded", error: { code, message: "scripted" } };
  };
  const world = { values, log, app, lora, responseIds, failWith, failsWith: null as ErrorCode | null };
  const { embedder } = inference;
  inference.script = (generation) =>
    isLong(generation) ? [{ waitMs: 60_000 }] : randomScript(values, generation, world.failsWith);
  inference.embedder = async (embed, signal) => {
    if (world.failsWith !== null) throw new ServerError(world.failsWith, "scripted");
    return embedder(embed, signal);
  };
  return world;
}

/**
 * Replaces the server's stored responses by new ones: one response that is still running and whose events no client reads if
 * `areRunning`, otherwise two responses that have ended.
 */
async function stock({ app, responseIds }: World, areRunning: boolean): Promise<void> {
  for (const id of responseIds.splice(0)) await request(app, "DELETE", `/v1/responses/${id}`);
  const streamed = { input: "hi", background: true, stream: true };
  const bodies = areRunning ? [{ input: LONG, background: true }] : [{ input: "hi" }, streamed];
  for (const body of bodies) {
    const reply = await request(app, "POST", "/v1/responses", { body });
    const [id] = /resp_\w+/.exec(reply.body) ?? [];
    assert.ok(id !== undefined, reply.body);
    responseIds.push(id);
  }
}

const emptySession: Session = {
  id: "s",
  turns: 0,
  digests: [],
  messages: [],
  images: [],
  videos: [],
  files: [],
  approvesAll: false,
};

type Stores = TestStores & { readonly skills: SkillRig };

async function storesOf(test: TestContext): Promise<Stores> {
  const [stores, skills] = await Promise.all([openStores(), SkillRig.open()]);
  test.after(() => {
    stores.dispose();
    skills.dispose();
  });
  return { ...stores, skills };
}

/** Adds a file of the session "s", an empty session, and a skill with two versions. Returns the ids of the file and the skill. */
async function stockAgents({ files, sessions, skills }: Stores, count: number): Promise<[file: string, skill: string]> {
  writeFileSync(join(files.stagingFolder, `fuzz-${count}`), "text");
  const { id } = await files.add({
    id: null,
    name: "a.txt",
    format: null,
    purpose: "agent_output",
    source: { tool: "python", round: 0, turn: 0 },
    session: "s",
    client: "c",
    staged: `fuzz-${count}`,
    failure: null,
  });
  await sessions.put({ client: "c", session: emptySession });
  const skillFiles = { "SKILL.md": skillText("a") };
  for (const skill of await skills.store.list()) await skills.store.delete(skill.id);
  const skill = await skills.upload(skillFiles);
  await skills.upload(skillFiles, skill.id);
  return [id, skill.id];
}

async function answer(app: ReturnType<typeof createApp>, sent: RandomRequest): Promise<SocketlessReply> {
  const { method, path, query, headers, body } = sent;
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_LIMIT_MS} ms`)), ANSWER_LIMIT_MS);
  });
  return Promise.race([request(app, method, path, { query, headers, body }), tooLate]).finally(() =>
    clearTimeout(timer),
  );
}

function image({ method, path, query, headers, body }: RandomRequest): string {
  return `${method} ${path.slice(0, 200)}?${query.slice(0, 200)} ${JSON.stringify(headers)} ${Buffer.from(body).toString().slice(0, 2000)}`;
}

describe("the server, given random requests", () => {
  for (const [index, { method, path }] of routes.entries()) {
    it(`responds to ${method} ${path} as the API document declares`, async (test) => {
      const stores = ofAgents.test(path) ? await storesOf(test) : null;
      const world = setUp(index, stores);
      const fileIds: string[] = [];
      const skillIds: string[] = [];
      const cursors: string[] = [];
      const operation: Documented = document.paths[path][method.toLowerCase()];
      const counts = { bySchema: 0, taken: 0 };
      const known = {
        model: ["tiny"],
        response_id: world.responseIds,
        asset: ["start.js", "favicon-32x32.png"],
        file: ["index.html"],
        file_id: fileIds,
        session_id: ["s"],
        container_id: ["cntr_s"],
        skill_id: skillIds,
        version: ["1", "2", "latest"],
        after: path === "/v1/responses" ? world.responseIds : path === "/v1/sessions" ? ["s"] : cursors,
        page: cursors,
        approval_id: ["appr_1"],
      };
      const changes = method === "DELETE" || path.endsWith("/cancel");
      const count = REQUESTS_PER_ROUTE * (stores !== null && method === "DELETE" ? DELETION_SHARE : 1);
      for (let i = 0; i < count; i++) {
        world.failWith(null);
        const isTime = i % (changes ? 8 : 100) === 0;
        if (isTime && path.startsWith("/v1/responses")) await stock(world, path.endsWith("/cancel"));
        if (stores !== null && (isTime || method === "DELETE")) {
          [fileIds[0], skillIds[0]] = await stockAgents(stores, i);
          cursors[0] = path.endsWith("/versions") ? `${skillIds[0]}_v2` : skillIds[0];
        }
        if (path === "/v1/unload_lora_adapter") await world.lora.load(anAdapter);
        world.failWith(world.values.chance(0.1) ? world.values.pick(failures) : null);
        const sent = randomRequest(world.values, method, path, operation, known);
        try {
          const reply = await answer(world.app, sent);
          if (sent.isBySchema) counts.bySchema++;
          if (sent.isBySchema && (reply.status === 200 || reply.status === 308)) counts.taken++;
          check(path, sent, reply, world.failsWith);
        } catch (error) {
          assert.fail(`request ${i}: ${image(sent)}\n${error instanceof Error ? error.message : error}`);
        }
      }
      world.app.endBackground();
      await world.app.settled();
      const faults = world.log.lines.filter(({ level }) => level === "error");
      assert.deepEqual(faults.slice(0, 3), []);
      // No request is in progress that could be cancelled. Other tests cover cancellation.
      if (path === "/v1/system/requests/{request_id}/cancel") return;
      // Random requests have no multipart bodies. Other tests cover uploads.
      if (method === "POST" && operation.requestBody?.content["multipart/form-data"] !== undefined) return;
      assert.ok(
        counts.taken > 0.15 * counts.bySchema,
        `only ${counts.taken} of ${counts.bySchema} proper requests taken`,
      );
    });
  }

  it("responds with 404 to any path that it does not serve", async () => {
    const { app, values } = setUp(routes.length);
    const segments = ["v1", "docs", "chat", "..", "%2e", "%", "{model}", "__proto__", "", "models", "z".repeat(5000)];
    for (let i = 0; i < REQUESTS_PER_ROUTE; i++) {
      const path = `/${Array.from({ length: 3 + values.below(3) }, () => values.pick(segments)).join("/")}/-`;
      const reply = await request(app, values.pick(["GET", "POST", "DELETE", "BREW"]), path);
      assert.equal(reply.status, 404, path);
      const checked = commonErrors.schema.safeParse(JSON.parse(reply.body));
      assert.ok(checked.success, reply.body);
    }
  });
});

function check(path: string, sent: RandomRequest, reply: SocketlessReply, failWith: ErrorCode | null): void {
  if (sent.method === "OPTIONS") {
    assert.deepEqual([reply.status, reply.body], [204, ""]);
    return;
  }
  const isFault = reply.status >= 500 && reply.status !== 503;
  assert.ok(!isFault || failWith !== null, `${reply.status} ${reply.body.slice(0, 500)}`);
  declared.check(path, sent.method === "HEAD" ? "GET" : sent.method, reply);
}
