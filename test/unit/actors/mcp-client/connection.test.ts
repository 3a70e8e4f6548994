// MCP client connections to servers whose processes are scripted, on a clock that the test advances.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, it } from "node:test";
import type { McpReport } from "../../../../actors/api/agent/mcp.ts";
import { Connection } from "../../../../actors/mcp-client/connection.ts";
import { connectTimeoutMs, McpSession } from "../../../../actors/mcp-client/mcp-session.ts";
import { Questions } from "../../../../actors/mcp-client/questions.ts";
import type { ServerProcess } from "../../../../actors/mcp-client/transports/server-process.ts";
import { FakeClock, settled } from "../../../fixtures/fakes/fake-clock.ts";

const settings = {
  id: "s",
  name: "s",
  source: { type: "process", command: "s", args: [], environment: {}, workFolder: null },
  toolPrefix: null,
  resources: null,
  callTimeoutMs: 30_000,
  secrets: [],
} as const;

function connectionTo(launch: () => ServerProcess) {
  const clock = new FakeClock();
  const reports: McpReport[] = [];
  const report = (told: McpReport): void => void reports.push(told);
  const connection = new Connection({
    settings,
    maxConcurrentCalls: 2,
    clock,
    questions: new Questions(report),
    report,
    createSession: (events) =>
      new McpSession({
        ...events,
        source: settings.source,
        version: "1",
        clock,
        launch: async () => launch(),
        onStderr: () => {},
        onLog: () => {},
      }),
    onChange: () => {},
  });
  const downs = () => reports.flatMap((told) => (told.type === "log" && "retryInMs" in told.fields ? [told] : []));
  return { clock, connection, downs };
}

/** Returns a process that never writes. If `ends` is true, the process has already exited. */
function silentProcess(ends: boolean): ServerProcess {
  let exit = (_reason: string): void => {};
  const exited = new Promise<string>((resolve) => {
    exit = resolve;
  });
  const stdout = new PassThrough();
  const kill = (): void => {
    stdout.end();
    exit("its process was killed");
  };
  if (ends) {
    stdout.destroy();
    exit("its process exited with code 1");
  }
  return { stdin: new PassThrough(), stdout, stderr: new PassThrough(), exited, kill };
}

async function eventually(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !holds(); i++) await settled();
  assert.ok(holds());
}

describe("the connection to an MCP server", () => {
  it("is tried again 20 times when the server exits at once, with pauses that double up to 30 s", async () => {
    let starts = 0;
    const { clock, connection, downs } = connectionTo(() => {
      starts++;
      return silentProcess(true);
    });
    connection.start();
    for (let count = 1; count <= 20; count++) {
      await eventually(() => downs().length === count);
      assert.equal(starts, count);
      await clock.advance(Number(downs().at(-1)?.fields.retryInMs));
    }
    const pauses = downs().map(({ fields }) => fields.retryInMs);
    assert.deepEqual(pauses.slice(0, 8), [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    assert.ok(pauses.slice(6).every((pause) => pause === 30_000));
    assert.deepEqual(new Set(downs().map(({ level }) => level)), new Set(["warn", "debug"]));
    assert.equal(downs().filter(({ level }) => level === "warn").length, 1, "the same reason is reported once");
    await connection.stop();
  });

  it("fails when the server does not answer initialize in time", async () => {
    const { clock, connection, downs } = connectionTo(() => silentProcess(false));
    connection.start();
    await settled();
    await clock.advance(connectTimeoutMs - 1);
    assert.equal(downs().length, 0);
    await clock.advance(1);
    await eventually(() => downs().length === 1);
    assert.equal(downs()[0]?.fields.reason, 'it did not answer "initialize" within 60 s');
    await connection.stop();
  });

  it("rejects calls while there is none, with the reason", async () => {
    const { connection, downs } = connectionTo(() => silentProcess(true));
    connection.start();
    await eventually(() => downs().length === 1);
    const call = {
      id: "c",
      server: "s",
      action: "call",
      tool: "t",
      arguments: "",
      session: "",
      client: "",
      canAsk: false,
    } as const;
    await assert.rejects(connection.call(call), {
      code: "peer_gone",
      message: 'MCP server "s" cannot be reached: its process exited with code 1',
    });
    await connection.stop();
  });
});
