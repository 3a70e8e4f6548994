// Agent runs on a server that is killed (SIGKILL). No command may keep running. The next server must have every result, file
// and response that the killed server announced in an event, so that the clients can continue. It must also stop bubblewrap
// processes that had not started their command yet. The environment variable KILLS sets the number of kills.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { seeded } from "../../fixtures/schemas/random-text.ts";
import { checked, eventsOf, post, type ServerEvent } from "./clients.ts";
import { endlessPdf } from "./pdf.ts";

const kills = Number(process.env.KILLS ?? 5);
const program = fileURLToPath(new URL("./killed-server.js", import.meta.url));

const bubblewrap = /^\S+\s+\S*bwrap /;

describe("a server that is killed during agent runs", () => {
  it(`leaves no process and loses nothing announced, ${kills} times`, {
    timeout: 60_000 + kills * 10_000,
  }, async (t) => {
    const base = mkdtempSync(join(tmpdir(), "troupe-killed-"));
    const [stateFolder, workFolder] = [join(base, "state"), join(base, "work")];
    for (const folder of [stateFolder, workFolder]) mkdirSync(folder);
    const random = seeded(11);
    const clients = ["a", "b", "c"].map((session) => new Client(session));
    const found = { results: 0, files: 0 };
    let server: ChildProcess | null = null;
    try {
      let killed = "";
      for (let i = 0; i <= kills; i++) {
        const started = await startServer(stateFolder, workFolder);
        const { url } = started;
        server = started.process;
        if (killed !== "") await assertNoneLeft((line) => line.includes(killed), `start ${i}`);
        assert.equal(readdirSync(workFolder).length, 1, "only the folder of the running server is there");
        for (const client of clients) {
          const kept = await client.assertAllKept(url);
          found.results += kept.results;
          found.files += kept.files;
        }
        const runs = clients.map((client) => client.run(url));
        await Promise.race(clients.map((client) => client.hasResult()));
        await sleep(random() * 600);
        server.kill("SIGKILL");
        await once(server, "exit");
        await Promise.all(runs);
        // While a bubblewrap process has not started its command, the command is part of its own arguments, so such processes
        // are excluded.
        const { pid } = server;
        const isCommand = (line: string) => line.includes(`sleep 4242.${pid}`) && !bubblewrap.test(line);
        await assertNoneLeft(isCommand, `kill ${i}`);
        killed = `@${pid}.`;
      }
      assert.ok(found.results > kills && found.files > kills, JSON.stringify(found));
      assert.ok(clients.some(({ answers }) => answers > 0));
      const answers = clients.reduce((sum, client) => sum + client.answers, 0);
      t.diagnostic(`looked up after a restart: ${found.results} results, ${found.files} files, ${answers} answers`);
    } finally {
      server?.kill("SIGKILL");
      rmSync(base, { recursive: true, force: true });
    }
  });
});

describe("a server that is killed while it reads a document", () => {
  it("leaves a reader that ends, also if the document keeps it busy", { timeout: 120_000 }, async () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-killed-"));
    const { process: server, url } = await startServer(join(base, "state"), base);
    try {
      const isReader = (line: string) => line.includes("read-document") && line.includes(base);
      const upload = new FormData();
      upload.set("purpose", "user_data");
      upload.set("file", new Blob([new Uint8Array(endlessPdf())]), "busy.pdf");
      const reply = fetch(`${url}/v1/files`, { method: "POST", body: upload });
      reply.catch(() => {});
      while (!commandLines().some(isReader)) await sleep(20);
      server.kill("SIGKILL");
      await assert.rejects(reply);
      assert.ok(commandLines().some(isReader), "the reader is busy when the server is killed");
      await assertNoneLeft(isReader, "reader", 60_000);
    } finally {
      server.kill("SIGKILL");
      rmSync(base, { recursive: true, force: true });
    }
  });
});

/** Client with one session. It sends one request after another, and records the results and files that the server announces. */
class Client {
  readonly #session: string;
  readonly #messages: object[] = [];
  /** Outputs of the calls of all earlier requests. Those of the last request are in `#newOutputs`. */
  readonly #outputs: string[] = [];
  readonly #newOutputs: string[] = [];
  readonly #files = new Map<string, string>();
  #onResult: () => void = () => {};
  /** Number of complete responses. */
  answers = 0;

  constructor(session: string) {
    this.#session = session;
    this.#ask();
  }

  /** Sends requests until the server exits. A request that was cut off is sent again to the next server. */
  async run(url: string): Promise<void> {
    for (;;) {
      this.#outputs.push(...this.#newOutputs.splice(0));
      const body = {
        messages: this.#messages,
        session_id: this.#session,
        stream: true,
        enable_code_execution: true,
        enable_shell: true,
      };
      try {
        const response = await post(`${url}/v1/chat/completions`, body);
        assert.equal(response.status, 200);
        for await (const event of eventsOf(response)) this.#take(event);
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        return;
      }
    }
  }

  async hasResult(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#onResult = resolve;
    });
  }

  /** Asserts that the server has everything that earlier servers announced. Returns the counts of new results and files. */
  async assertAllKept(url: string): Promise<{ readonly results: number; readonly files: number }> {
    const expected = [...this.#outputs, ...this.#newOutputs];
    if (expected.length > 0) {
      const { messages } = await checked(await fetch(`${url}/v1/sessions/${this.#session}`));
      const contents = (messages as readonly { readonly content: string }[]).map(({ content }) => content);
      for (const output of expected) {
        assert.ok(
          contents.some((content) => content.includes(output)),
          `session ${this.#session} has lost "${output}"`,
        );
      }
      // The server may have stored one more response, whose last event did not reach the client.
      const stored = contents.filter((content) => content === "done").length;
      assert.ok(stored >= this.answers, `session ${this.#session} has ${stored} of ${this.answers} answers`);
    }
    for (const [id, text] of this.#files) {
      const content = await fetch(`${url}/v1/files/${id}/content`);
      assert.deepEqual([content.status, await content.text()], [200, text], id);
    }
    const count = { results: this.#newOutputs.length, files: this.#files.size };
    this.#files.clear();
    return count;
  }

  #take({ name, data }: ServerEvent): void {
    if (name === "file_produced") this.#files.set(String(data.id), String(data.text));
    if (name === "agentic_tool_call_progress" && data.phase === "complete") {
      const { stdout } = data.data as { readonly stdout: string };
      this.#newOutputs.push(stdout.trim());
      this.#onResult();
    }
    const [choice] = (data.choices ?? []) as readonly { readonly finish_reason: string | null }[];
    if (choice?.finish_reason !== "stop") return;
    this.#outputs.push(...this.#newOutputs.splice(0));
    this.answers++;
    this.#messages.push({ role: "assistant", content: "done" });
    this.#ask();
  }

  #ask(): void {
    this.#messages.push({ role: "user", content: `question ${this.answers} of ${this.#session}` });
  }
}

async function startServer(
  stateFolder: string,
  workFolder: string,
): Promise<{ readonly process: ChildProcess; readonly url: string }> {
  const server = spawn(process.execPath, [program, stateFolder, workFolder], { stdio: ["ignore", "pipe", "inherit"] });
  const [url] = (await once(server.stdout, "data")) as [Buffer];
  return { process: server, url: url.toString() };
}

/** Waits until no process matches. `isMeant` gets a line with the state and the command of each process. */
async function assertNoneLeft(isMeant: (line: string) => boolean, what: string, limitMs = 5000): Promise<void> {
  const until = performance.now() + limitMs;
  let left = commandLines().filter(isMeant);
  while (left.length > 0 && performance.now() < until) {
    await sleep(50);
    left = commandLines().filter(isMeant);
  }
  assert.deepEqual(left, [], what);
}

/** Returns a line with the state and the command of each process. */
function commandLines(): readonly string[] {
  return spawnSync("ps", ["-eo", "stat,args", "-ww"], { encoding: "utf8" }).stdout.split("\n");
}
