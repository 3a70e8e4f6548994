// `bench agents`: cost of tools. Compares the speed of many simultaneous agent runs, with three Python rounds each, to
// the same runs with tools that return immediately. Also reports the prompt tokens computed per round and the times of
// Python cells.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import arg from "arg";
import { AgentLoop } from "../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../actors/agent-loop/files/fetch-file.ts";
import { noEarlierCalls } from "../../actors/api/agent/agents.ts";
import { messageDigest } from "../../actors/api/agent/message-digest.ts";
import type { ToolOutcome, ToolRun, Tools } from "../../actors/api/agent/tools.ts";
import { defaultWebOptions } from "../../actors/api/agent/web.ts";
import type { Inference } from "../../actors/api/inference.ts";
import type { StateClient } from "../../actors/front/state-client.ts";
import { toolsOf } from "../../actors/tools/schemas.ts";
import { resolveConfig } from "../../cli/config/config.ts";
import { parseToml } from "../../cli/config/toml.ts";
import { createProgress } from "../../cli/progress.ts";
import { Service } from "../../cli/service.ts";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import { greedySampling, requestDefaults } from "../../engines/generation.ts";
import { realClock } from "../../runtime/clock.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { markdownTable } from "../../runtime/markdown-table.ts";
import { startAgentPlaces } from "../../test/fixtures/actors/agent-places.ts";
import { watchLoopDelay } from "../loop-delay.ts";
import { report } from "../results.ts";

const rounds = 3;
const tokensEach = 24;
/** KV cache for each run, in tokens: enough for the descriptions of the tools and all rounds. */
const tokensOfRun = 1536;
/**
 * Maximum length of a run, in tokens. It is longer than `tokensOfRun`, because the text that a model writes may become
 * many tokens in the next prompt.
 */
const contextLength = 4 * tokensOfRun;
const python = "service_execute_python";

export const usage = `npm run bench -- agents -m MODEL [FLAGS]: speed of agent runs with real tools, compared with instant tools

  -m MODEL        model
  --runs 64       number of simultaneous agent runs
  --pairs 3       pairs of measurements, with instant and with real tools
  --save          write bench/results/agents.md`;

const log = createLogger({ level: "error", format: "text" });

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ "-m": String, "--runs": Number, "--pairs": Number, "--save": Boolean }, { argv: [...argv] });
  const { "-m": model = "", "--runs": runs = 64, "--pairs": pairs = 3, "--save": save = false } = flags;
  const text = `command = "serve"\nmax_seqs = ${runs}\n[paged_attn]\nmode = "on"\nkv_cache = "${runs * tokensOfRun}tokens"\n[troupe]\nengine = "wasm"\nstate_dir = "none"\n[[models]]\nmodel_id = ${JSON.stringify(model)}\nmax_model_len = ${contextLength}\n`;
  const config = resolveConfig({
    command: "serve",
    flags: {},
    environment: {},
    file: parseToml(text, "bench agents"),
    defaultModel: model,
  });
  const service = await Service.open(config, log, createProgress());
  await service.start();
  const base = mkdtempSync(join(tmpdir(), "troupe-bench-agents-"));
  const { state, tools, stop } = await startAgentPlaces(base, null, { codeTimeoutMs: 30_000 });
  const rows: string[][] = [];
  const reuse: number[] = [];
  await measure(service.inference, model, 1, tools, state, []);
  for (let pair = 0; pair < pairs; pair++) {
    // The order alternates between pairs, because the speed of a shared machine changes over time.
    const run = (of: Tools): Promise<Measured> => measure(service.inference, model, runs, of, state, reuse);
    const withToolsFirst = pair % 2 === 1 ? await run(tools) : null;
    const without = await run(instantTools);
    const withTools = withToolsFirst ?? (await run(tools));
    process.stderr.write(
      `pair ${pair + 1}: ${without.tokensPerSecond.toFixed(0)} and ${withTools.tokensPerSecond.toFixed(0)} tokens/s\n`,
    );
    rows.push([
      `${pair + 1}`,
      without.tokensPerSecond.toFixed(0),
      withTools.tokensPerSecond.toFixed(0),
      (withTools.tokensPerSecond / without.tokensPerSecond).toFixed(2),
      withTools.delay.p99.toFixed(1),
      withTools.delay.max.toFixed(1),
    ]);
  }
  const times = await timesOf(tools);
  await stop();
  const left = readdirSync(base).length;
  const zombies = spawnSync("ps", ["--ppid", String(process.pid), "-o", "stat="], { encoding: "utf8" })
    .stdout.split("\n")
    .filter((one) => one.startsWith("Z")).length;
  await service.stop([]);
  rmSync(base, { recursive: true, force: true });
  const body = [
    markdownTable(["pair", "tok/s without tools", "tok/s with tools", "ratio", "loop delay p99 ms", "max ms"], rows),
    "",
    `prompt tokens computed in rounds 1 to ${rounds} over new tokens: ${mean(reuse).toFixed(3)} (largest ${Math.max(...reuse).toFixed(3)})`,
    `first Python cell of a session: ${times.first.toFixed(1)} ms; cell of a warm session: ${times.warm.toFixed(1)} ms`,
    `left after the end: ${left} folders, ${zombies} zombies`,
  ].join("\n");
  const method = `${runs} runs at once of ${rounds} rounds with one Python cell each and a last round, ${tokensEach} tokens a round, all sessions new. "Without tools" the same runs get their results at once. The model generates freely; the calls are added to its output.`;
  report({ name: "agents", title: "Agent runs", method, body }, save);
}

interface Measured {
  readonly tokensPerSecond: number;
  readonly delay: ReturnType<ReturnType<typeof watchLoopDelay>>;
}

async function measure(
  inference: Pick<Inference, "generate">,
  model: string,
  runs: number,
  tools: Tools,
  state: StateClient,
  reuse: number[],
): Promise<Measured> {
  const { files, sessions, skills } = state;
  const settings = {
    groups: ["code_execution"],
    permission: "auto",
    maxRounds: 256,
    approvalLimitMs: null,
    dispatch: null,
    hasClientTools: true,
    registersServerTools: false,
  } as const;
  let tokens = 0;
  const delay = watchLoopDelay();
  const startedAt = performance.now();
  await Promise.all(
    Array.from({ length: runs }, async (_, i) => {
      const usages: Usage[] = [];
      const calling = { generate: withCalls(inference, usages) };
      const loop = new AgentLoop({
        settings,
        inference: calling,
        tools,
        web: null,
        sources: [],
        files,
        sessions,
        skills,
        fetchFile,
        clock: realClock,
      });
      const messages = [
        { role: "user", content: `Task ${i} of ${Math.random()}: count the words of this sentence and explain.` },
      ];
      const agent = {
        groups: settings.groups,
        serverTools: [],
        maxUses: {},
        web: defaultWebOptions,
        skills: [],
        isPlain: false,
        permission: null,
        maxRounds: null,
        maxCalls: null,
        sessionId: null,
        earlierCalls: noEarlierCalls,
        continuesAnswer: false,
        digests: messages.map(messageDigest),
        requestedFiles: [],
        inputFiles: [],
        isStreamed: true,
      };
      const events = loop.run(requestOf(model, messages, i), agent, new AbortController().signal);
      for await (const batch of events) {
        const failed = batch.find(({ type }) => type === "error");
        if (failed !== undefined) throw new Error(`run ${i} failed: ${JSON.stringify(failed)}`);
      }
      tokens += usages.reduce((sum, { completionTokens }) => sum + completionTokens, 0);
      reuse.push(reuseOf(usages));
    }),
  );
  return { tokensPerSecond: tokens / ((performance.now() - startedAt) / 1000), delay: delay() };
}

function requestOf(
  model: string,
  messages: readonly { readonly role: string; readonly content: string }[],
  seed: number,
): GenerateRequest {
  return {
    ...requestDefaults,
    model,
    client: `client-${seed % 8}`,
    prompt: { kind: "chat", messages, templateArguments: {} },
    sampling: greedySampling,
    tools: {
      specs: toolsOf(["code_execution"]).map(({ spec }) => ({ ...spec, strict: false })),
      required: false,
      parallel: true,
    },
    maxTokens: tokensEach,
    ignoreEos: true,
  };
}

/** Adds a Python call to the end of the generation in each of the first `rounds` rounds. */
function withCalls(inference: Pick<Inference, "generate">, usages: Usage[]): Inference["generate"] {
  let round = 0;
  return async function* (request, signal, onPrepared) {
    const number = round++;
    for await (const batch of inference.generate(request, signal, onPrepared)) {
      yield batch.flatMap((event): GenerateEvent[] => {
        if (event.type === "done") usages.push(event.usage);
        if (event.type !== "finish" || number >= rounds)
          return event.type === "finish" ? [{ ...event, reason: "stop" }] : [event];
        const at = { choice: event.choice, call: 0 };
        return [
          { type: "tool_call", ...at, id: `call_${number}`, name: python },
          { type: "tool_arguments", ...at, text: JSON.stringify({ code: `sum(range(${number} + 1000))` }) },
          { type: "tool_call_end", ...at },
          { ...event, reason: "tool_calls" },
        ];
      });
    }
  };
}

/** Returns the computed prompt tokens divided by the new prompt tokens, over all rounds after the first one. */
function reuseOf(usages: readonly Usage[]): number {
  let computed = 0;
  let fresh = 0;
  for (const [i, { promptTokens, cachedTokens }] of usages.entries()) {
    const before = usages[i - 1];
    if (before === undefined) continue;
    computed += promptTokens - cachedTokens;
    fresh += promptTokens - before.promptTokens - before.completionTokens;
  }
  return computed / fresh;
}

const instantTools: Tools = {
  run: async (): Promise<ToolOutcome> => {
    const result = {
      status: "success",
      working_directory: "/work",
      stdout: "",
      stderr: "",
      result: "499500",
      result_type: "int",
      exception: null,
      execution_time_ms: 0.1,
    };
    return { status: "success", content: JSON.stringify(result), data: result, images: [], videoFrames: [], files: [] };
  },
  cancel() {},
  async mount() {},
  mountSkills: async () => ({ folder: "/skills" }),
  async closeSession() {},
};

async function timesOf(tools: Tools): Promise<{ readonly first: number; readonly warm: number }> {
  const first: number[] = [];
  const warm: number[] = [];
  for (let i = 0; i < 10; i++) {
    const session = `times-${i}`;
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (let k = 0; k < 4; k++) {
      const startedAt = performance.now();
      await tools.run(callOf(session, k));
      (k === 0 ? first : warm).push(performance.now() - startedAt);
    }
  }
  return { first: median(first), warm: median(warm) };
}

function callOf(session: string, k: number): ToolRun {
  const common = { client: "bench", run: "bench", round: 0, turn: 0, expected: [] };
  return { ...common, id: `${session}-${k}`, session, tool: "execute_python", arguments: '{"code": "1 + 1"}' };
}

function median(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
