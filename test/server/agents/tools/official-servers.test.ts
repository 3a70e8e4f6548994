// Official MCP servers over every protocol: a run calls each of their tools, the client gets the progress, and the MCP
// server gets the cancellation.
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, request as forward, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { everythingCalls, fileCalls, memoryCalls, type OfficialCall } from "../../../threads/mcp/official-calls.ts";
import {
  freePort,
  McpRig,
  nodeProcess,
  officialServers,
  serverSettings,
  startHttp,
  until,
} from "../../../threads/mcp/rig.ts";
import { type McpRuns, protocols, startMcpRuns } from "./mcp-runs.ts";

const base = mkdtempSync(join(tmpdir(), "troupe-mcp-"));
const folder = join(base, "files");
/** File in which the stdio MCP server records the messages that it receives. */
const received = join(base, "received.jsonl");
const cancelled = /"notifications\/cancelled"/g;

let recorder: Recorder;
let everything: { readonly port: number; readonly child: ChildProcess };
let mcp: McpRig;
let runs: McpRuns;

before(async () => {
  mkdirSync(folder);
  everything = await startHttp(await freePort(), "streamableHttp");
  recorder = await Recorder.start(everything.port);
  const url = `http://127.0.0.1:${recorder.port}/mcp`;
  mcp = new McpRig([
    serverSettings(
      "stdio",
      {
        type: "process",
        command: "sh",
        args: ["-c", `tee ${received} | "$0" "$@"`, process.execPath, officialServers.everything, "stdio"],
        environment: {},
        workFolder: null,
      },
      { toolPrefix: "stdio" },
    ),
    serverSettings("http", { type: "http", url, headers: {} }, { toolPrefix: "http" }),
    serverSettings("files", nodeProcess(officialServers.filesystem, [folder]), { toolPrefix: "files" }),
    serverSettings(
      "memory",
      nodeProcess(officialServers.memory, [], { MEMORY_FILE_PATH: join(base, "memory.jsonl") }),
      { toolPrefix: "memory" },
    ),
  ]);
  await mcp.start(4);
  for (const prefix of ["stdio", "http"]) {
    await until(() => mcp.names().includes(`${prefix}_trigger-elicitation-request`), "the late tools are listed");
  }
  runs = await startMcpRuns(mcp);
});

after(async () => {
  await runs.stop();
  await mcp.stop();
  recorder.stop();
  everything.child.kill("SIGKILL");
  rmSync(base, { recursive: true, force: true });
});

for (const { name: protocol, path, body } of protocols) {
  describe(`the official MCP servers over ${protocol}`, () => {
    const files = join(folder, protocol);
    const tables: readonly (readonly [prefix: string, calls: readonly OfficialCall[]])[] = [
      ["stdio", everythingCalls],
      ["http", everythingCalls],
      ["files", fileCalls(files)],
      ["memory", memoryCalls],
    ];

    for (const [prefix, calls] of tables) {
      it(`have tools that a run can each call (${prefix})`, async () => {
        mkdirSync(files, { recursive: true });
        const own = mcp.names().filter((name) => name.startsWith(`${prefix}_`));
        assert.deepEqual([...own].sort(), calls.map(([name]) => `${prefix}_${name}`).sort());
        runs.calls = calls.map(([name, args]) => [`${prefix}_${name}`, args]);
        const { status, text } = await runs.post(path, body);
        assert.equal(status, 200, text);
        assert.match(text, /the end/);
        const results = runs.results();
        assert.equal(results.length, calls.length);
        for (const [i, [name, , expected]] of calls.entries()) assert.match(results[i] as string, expected, name);
      });
    }

    for (const prefix of ["stdio", "http"]) {
      it(`send progress in the stream (${prefix})`, async () => {
        runs.calls = [[`${prefix}_trigger-long-running-operation`, { duration: 0.6, steps: 2 }]];
        const { text: stream } = await runs.post(path, { ...body, stream: true });
        assert.match(stream, /"progress":1,"total":2/);
        assert.match(stream, /the end/);
        assert.match(runs.results().at(-1) as string, /Long running operation completed/);
      });

      it(`are told that a call is cancelled when the client leaves (${prefix})`, async () => {
        const told = (): number => {
          const text = prefix === "stdio" ? readFileSync(received, "utf8") : recorder.received;
          return text.match(cancelled)?.length ?? 0;
        };
        const [count, leaving] = [told(), new AbortController()];
        runs.calls = [[`${prefix}_trigger-long-running-operation`, { duration: 60, steps: 300 }]];
        const response = await runs.open(path, { ...body, stream: true }, leaving.signal);
        await assert.rejects(
          async () => {
            let stream = "";
            for await (const piece of response.body ?? []) {
              stream += Buffer.from(piece).toString("utf8");
              if (stream.includes('"progress":1,')) leaving.abort();
            }
            assert.fail(stream);
          },
          { name: "AbortError" },
        );
        await until(() => told() === count + 1, "the server is told");
        runs.calls = [[`${prefix}_echo`, { message: "still here" }]];
        await runs.post(path, body);
        assert.equal(runs.results().at(-1), "Echo: still here");
      });
    }
  });
}

/** Proxy in front of an HTTP MCP server. Records the bodies of all requests. */
class Recorder {
  received = "";
  readonly #server: Server;

  private constructor(target: number) {
    this.#server = createServer((request, response) => {
      const { method, headers, url: path } = request;
      const onward = forward({ host: "127.0.0.1", port: target, method, headers, path }, (reply) => {
        response.writeHead(reply.statusCode ?? 502, reply.headers);
        response.flushHeaders();
        reply.pipe(response);
      });
      onward.on("error", () => response.destroy());
      response.on("close", () => onward.destroy());
      request.on("data", (piece: Buffer) => {
        this.received += piece.toString("utf8");
      });
      request.pipe(onward);
    });
  }

  static async start(target: number): Promise<Recorder> {
    const recorder = new Recorder(target);
    await new Promise<void>((resolve) => recorder.#server.listen(0, "127.0.0.1", resolve));
    return recorder;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
