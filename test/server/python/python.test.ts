// Python clients, against the real command with the real default model: one process per file of cases, one test
// per case. Also tests the Python programs in examples/.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { pythonEnvironment, pythonFolder } from "./environment.ts";

const clients = [
  "openai_chat",
  "openai_responses",
  "anthropic_messages",
  "litellm_client",
  "langchain_client",
  "instructor_client",
  "llama_index_client",
  "pydantic_ai_client",
  "mcp_client",
  "agents",
];
const examplesFolder = fileURLToPath(new URL("../../../../examples/python/", import.meta.url));
const clientLimitMs = 4 * 60_000;

interface Report {
  readonly name: string;
  readonly error: string | null;
}

interface Run {
  readonly stdout: string;
  readonly code: number | null;
  readonly stderr: string;
}

describe("Python clients", { concurrency: 2 }, () => {
  const running: { server?: RunningServer; python?: string; mcpUrl?: string } = {};
  // Home folder of the clients, because some clients write settings and caches there.
  const home = mkdtempSync(join(tmpdir(), "troupe-test-python-"));

  before(async () => {
    const [python, { path, isReal }] = await Promise.all([pythonEnvironment(), realModel()]);
    assert.ok(isReal, "these clients are to be answered by the default model, which cannot be fetched here");
    running.python = python;
    running.server = await startServer([
      // Greedy, as an answer drawn at random sometimes begins a tool call that the token limit then cuts off.
      ...["-m", path, "--temperature", "0", "--max-model-len", "2048", "--max-seqs", "4", "--mcp-port", "0"],
      ...["--agent", "--sandbox", "on", "--sandbox-network", "none"],
    ]);
    running.mcpUrl = /mcp\s+(http:\/\/\S+)/.exec(running.server.output())?.[1] ?? "";
  });
  after(async () => {
    await running.server?.stop();
    rmSync(home, { recursive: true, force: true });
  });

  for (const client of clients) {
    it(client, async (test) => {
      const { stdout, code, stderr } = await runPython(join(pythonFolder, `${client}.py`));
      const reports = reportsIn(stdout);
      assert.equal(code, 0, `${client}.py ended with ${code}:\n${stderr}`);
      assert.ok(reports.length > 0, `${client}.py ran no case:\n${stderr}`);
      for (const { name, error } of reports) await test.test(name, () => assert.ok(error === null, error ?? ""));
    });
  }

  for (const example of ["openai_chat.py", "anthropic_chat.py"]) {
    it(`examples/python/${example} prints an answer`, async () => {
      const { stdout, code, stderr } = await runPython(join(examplesFolder, example), ["Name a colour."]);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /\S/);
    });
  }

  function runPython(file: string, args: readonly string[] = []): Promise<Run> {
    const { server, python, mcpUrl } = running;
    assert.ok(server && python && mcpUrl, "the server has not been started");
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      TROUPE_URL: server.url,
      TROUPE_MCP_URL: mcpUrl,
      // With these settings, LiteLLM downloads nothing at its start and LangChain sends no traces.
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
      LANGSMITH_TRACING: "false",
      PYTHONPYCACHEPREFIX: join(dirname(dirname(python)), "bytecode"),
    };
    return new Promise((resolve) => {
      const child = execFile(python, [file, ...args], { env, timeout: clientLimitMs }, (_error, stdout, stderr) =>
        resolve({ stdout, code: child.exitCode, stderr }),
      );
    });
  }
});

/** Returns the reports that a file of cases printed, one per line. */
function reportsIn(stdout: string): readonly Report[] {
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Report);
}
