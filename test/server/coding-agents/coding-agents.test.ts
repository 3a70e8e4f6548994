// Coding agents against the server: the real programs without a terminal, with a scripted model behind the real HTTP server. Each
// agent does a whole task with its own tools, and again with a server tool added.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import type { ToolSource } from "../../../actors/api/agent/server-tools.ts";
import { type AgentRig, type RigOptions, startAgents } from "../agents/rig.ts";
import { type Call, type CodingAgent, claudeCode, codingAgents } from "./coding-agent.ts";
import { installedAgents } from "./install.ts";
import { type AgentRun, createFolders, type Folders, runAgent } from "./run-agent.ts";
import { answer, correctProgram, modelRounds, numbers, scriptedModel, task } from "./task.ts";

const isInstallable = process.platform === "linux" && process.arch === "x64";
const skip = isInstallable ? false : "the packages of the coding agents are those of linux-x64";
/** Messages with which the agents report that they could not handle a response of the server. */
const complaints = /API error|AI_\w*Error|stream (error|disconnected)|unexpected status|reconnecting|retrying/i;

const ruleText = "Programs print numbers in decimal.";
const ruleCall: Call = ["find_rule", { topic: "numbers" }];
const rules: ToolSource = {
  tools: () => [
    {
      spec: { name: "find_rule", description: "Finds a rule of the project.", parameters: null, strict: false },
      about: { source: "user", kind: "custom", label: "find_rule" },
      run: async () => ({ status: "success", content: ruleText, images: [] }),
    },
  ],
};

describe("coding agents", { skip }, () => {
  let installed = "";
  before(async () => {
    installed = await installedAgents();
  });

  for (const agent of codingAgents) {
    it(`${agent.name} does a task with its own tools`, async () => {
      await withServer(
        ({ work }) => ({ write: scriptedModel(agent, work, []) }),
        (rig, folders) => doTask(agent, rig, folders),
      );
    });

    it(`${agent.name} does a task with its own tools and one of the server`, async () => {
      await withServer(
        ({ work }) => ({ write: scriptedModel(agent, work, [ruleCall]), sources: [rules] }),
        async (rig, folders) => {
          await doTask(agent, rig, folders);
          const results = rig.seen().flatMap((chat) => chat.filter(({ role }) => role === "tool"));
          assert.ok(
            results.some(({ content }) => content.includes(ruleText)),
            "the model has the result of the server's tool",
          );
        },
      );
    });
  }

  it("Claude Code loads a tool that it has deferred", async () => {
    const write: RigOptions["write"] = (chat, tools) => {
      if (tools.some(({ name }) => name === "WebFetch")) return "The tool is there.";
      if (chat.at(-1)?.role === "tool") return "The tool is missing.";
      return { calls: [["ToolSearch", { query: "select:WebFetch" }]] };
    };
    await withServer(
      () => ({ write }),
      async (rig, folders) => {
        const run = await runAgent(claudeCode, { installed, url: rig.url, task: "Load WebFetch.", folders });
        assert.match(run.stdout, /The tool is there/, said(run));
        assert.equal(rig.seen().length, 2);
      },
    );
  });

  async function doTask(agent: CodingAgent, rig: AgentRig, folders: Folders): Promise<void> {
    writeFileSync(join(folders.work, "numbers.txt"), numbers);
    const run = await runAgent(agent, { installed, url: rig.url, task, folders });
    assert.ok(run.stdout.includes(answer), said(run));
    assert.equal(readFileSync(join(folders.work, "total.py"), "utf8"), correctProgram, said(run));
    requireNoProblem(agent, run, rig);
  }
});

async function withServer(
  options: (folders: Folders) => RigOptions,
  use: (rig: AgentRig, folders: Folders) => Promise<void>,
): Promise<void> {
  const folders = createFolders();
  const rig = await startAgents(options(folders));
  try {
    await use(rig, folders);
  } finally {
    await rig.stop();
    folders.remove();
  }
}

/** Asserts that the agent succeeded, and that neither the agent nor the server rejected a message from the other side. */
function requireNoProblem(agent: CodingAgent, run: AgentRun, rig: AgentRig): void {
  const requests = requestsOf(rig);
  assert.equal(run.code, 0, said(run));
  assert.doesNotMatch(said(run), complaints);
  assert.deepEqual(run.otherHosts, [], "it needs no other host");
  assert.deepEqual(
    requests.filter(({ status }) => status >= 400),
    [],
  );
  const sent = requests.filter(({ path }) => path === agent.endpoint).length;
  assert.equal(sent, modelRounds + agent.otherRequests, "it repeats no request");
}

function said({ stdout, stderr }: AgentRun): string {
  return `${stdout}\n${stderr}`;
}

/** Returns the requests to which the server has responded. */
function requestsOf(rig: AgentRig) {
  const lines = rig.server.log.lines.filter(({ message }) => message === "request");
  return lines.map(({ fields }) => ({ path: String(fields.path), status: Number(fields.status) }));
}
