// Replica program for tests: a real server with real state in Redis and a scripted model. Prints its URL.
//
// Arguments: URL of Redis (empty: the state is in the folder), lease in milliseconds, folder, port (0: any), and `restarts` to enable
// restart_background. The variable FILES_URL names a bucket for files.
//
// The user's message controls the output: `words N wait MS` sets the number of words and the pause between them, `start MS` the time before
// the first word. `who` outputs the process id instead of words. `tool` makes the model call a tool that needs an approval if the request
// demands it.
import { AgentLoop } from "../../../actors/agent-loop/agent-loop.ts";
import { approvalTimeoutMs } from "../../../actors/agent-loop/approvals.ts";
import type { ServerTool } from "../../../actors/api/agent/server-tools.ts";
import { StateClient } from "../../../actors/front/state-client.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import type { GenerateRequest } from "../../../engines/generation.ts";
import { realClock } from "../../../runtime/clock.ts";
import { toolsInit } from "../../fixtures/actors/agent-places.ts";
import { begin, done, finish, type Step, text, toolCall } from "../../fixtures/fakes/fake-inference.ts";
import { startServer } from "../../fixtures/http-server.ts";
import { chatOf } from "../agents/rig.ts";

const [url = "", leaseMs = "1000", folder = "", port = "0", restarts = ""] = process.argv.slice(2);
const restartsBackground = restarts === "restarts";
const limits = { maxEntries: 100_000, maxBytes: 2 ** 30, maxEntryBytes: 64 * 2 ** 20, maxAgeMs: 1e9 };
const say = (...words: readonly unknown[]): void => console.error(...words);
const log = { trace() {}, debug() {}, info() {}, warn: say, error: say, fatal: say } as never;
const replica = `replica_${process.pid}_${Date.now()}`;
const {
  FILES_URL: filesUrl,
  AWS_ACCESS_KEY_ID: accessKeyId = "",
  AWS_SECRET_ACCESS_KEY: secretAccessKey = "",
} = process.env;
const bucket = filesUrl === undefined ? null : { url: filesUrl, accessKeyId, secretAccessKey };
const shared = url === "" ? null : { url, replica, leaseMs: Number(leaseMs), files: bucket };
const state = new StateClient({
  init: {
    folder,
    mailboxLimit: 4096,
    responses: limits,
    maxFileContentBytes: 2 ** 30,
    skillsFolder: null,
    shared,
    restartsBackground,
  },
  log,
});
await state.start();

const lookup: ServerTool = {
  spec: { name: "lookup", description: "Looks up", parameters: { type: "object" }, strict: false },
  about: { source: "mcp", kind: "external", label: "lookup" },
  server: "library",
  run: async () => ({ status: "success", content: "found", images: [] }),
};

/** Yields the output that the last user message describes. */
function* script(request: GenerateRequest): Iterable<Step> {
  const { messages } = chatOf(request);
  const asked = String(messages.findLast(({ role }) => role === "user")?.content ?? "");
  const hasResult = messages.at(-1)?.role === "tool";
  const [, count = "3", waitMs = "1"] = /words (\d+) wait (\d+)/.exec(asked) ?? [];
  const [, startMs = "0"] = /start (\d+)/.exec(asked) ?? [];
  if (startMs !== "0") yield { waitMs: Number(startMs) };
  yield [begin()];
  if (/\btool\b/.test(asked) && !hasResult) {
    yield [...toolCall("lookup", ['{"q":1}']), finish("tool_calls"), done];
    return;
  }
  for (let i = 0; i < Number(count); i++) {
    if (Number(waitMs) > 0) yield { waitMs: Number(waitMs) };
    yield [text(/\bwho\b/.test(asked) ? `${process.pid} ` : `w${i} `)];
  }
  yield [finish(), done];
}

const { files, sessions, skills } = state;
const server = await startServer("node", {
  script,
  port: Number(port),
  config: { maxBackgroundResponses: 4096, restartsBackground },
  parts: { files, sessions, skills, replicas: state.replicas, storedResponses: state.responses },
  makeAgents: (inference) =>
    new AgentLoop({
      settings: {
        groups: [],
        permission: "auto",
        approvalLimitMs: approvalTimeoutMs,
        maxRounds: 8,
        dispatch: null,
        hasClientTools: true,
        // Only requests that name the server's tools get them. A run with tools needs its session, so it would fail when Redis
        // is down.
        registersServerTools: false,
      },
      inference,
      tools: new ToolsClient({ init: toolsInit({ workFolder: folder, stagingFolder: folder }), log }),
      web: null,
      sources: [{ tools: () => [lookup] }],
      files,
      sessions,
      skills,
      fetchFile: () => Promise.reject(new Error("no URL is fetched in this test")),
      clock: realClock,
    }),
});
process.stdout.write(`${server.url}\n`);
process.on("SIGTERM", async () => {
  server.app.drain();
  server.app.endBackground();
  await server.app.settled();
  await server.stop();
  await state.stop(2000);
  process.exit(0);
});
