// Rig for tests of `troupe agent`: a work folder, a scripted model, and the command in a separate process, with or
// without a terminal. Only the model is scripted.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { type IPty, spawn as spawnOnTerminal } from "@lydell/node-pty";
import type { ScriptedTurn } from "./scripted-cli.ts";

const program = fileURLToPath(new URL("scripted-cli.js", import.meta.url));
const limitMs = 30_000;

interface SeenChat {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly tools: readonly string[];
}

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Simulated user with a work folder `work`, a home folder and a state folder. */
export class User {
  readonly base = mkdtempSync(join(tmpdir(), "troupe-agent-cli-"));
  readonly folder = join(this.base, "work");
  readonly home = join(this.base, "home");
  readonly #seen = join(this.base, "seen.jsonl");
  readonly #script = join(this.base, "script.json");

  constructor() {
    for (const folder of [this.folder, this.home]) mkdirSync(folder);
  }

  /** Sets the model's output for each round of the next command, and clears the recorded chats. */
  script(...turns: readonly ScriptedTurn[]): void {
    writeFileSync(this.#script, JSON.stringify(turns));
    rmSync(this.#seen, { force: true });
  }

  /** Returns the chat of each round since the last call of `script`. */
  seen(): readonly SeenChat[] {
    if (!existsSync(this.#seen)) return [];
    const lines = readFileSync(this.#seen, "utf8").trimEnd().split("\n");
    return lines.map((line) => JSON.parse(line) as SeenChat);
  }

  /** Returns the last message that the model has received. */
  lastSeen(): string {
    return this.seen().at(-1)?.messages.at(-1)?.content ?? "";
  }

  read(name: string): string {
    return readFileSync(join(this.folder, name), "utf8");
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), text);
  }

  environment(changes: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
    const { base, home } = this;
    const own = { SCRIPT: this.#script, SEEN: this.#seen, XDG_STATE_HOME: join(base, "state"), HOME: home };
    const { NO_COLOR: _, VISUAL: __, EDITOR: ___, ...others } = process.env;
    return { ...others, TERM: "xterm", ...own, ...changes };
  }

  /** Starts the command without a terminal. */
  start(args: readonly string[]): ChildProcess {
    const options = { cwd: this.folder, env: this.environment() };
    return spawn(process.execPath, [program, ...args], { ...options, stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Runs the command without a terminal to its end. */
  async run(...args: readonly string[]): Promise<Ended> {
    const child = this.start(args);
    const said = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name]?.on("data", (data) => {
        said[name] += data;
      });
    }
    const [code] = (await once(child, "close", { signal: AbortSignal.timeout(limitMs) })) as [number | null];
    return { code, ...said };
  }

  terminal(args: readonly string[], options: TerminalOptions = {}): Terminal {
    return new Terminal(this, args, options);
  }

  leave(): void {
    rmSync(this.base, { recursive: true, force: true });
  }
}

export interface TerminalOptions {
  readonly environment?: NodeJS.ProcessEnv;
  readonly columns?: number;
}

/** The command on a pseudo-terminal. */
export class Terminal {
  readonly ended: Promise<number>;
  readonly #pty: IPty;
  /** All output so far, including control sequences. */
  raw = "";
  #readTo = 0;

  constructor(user: User, args: readonly string[], { environment = {}, columns = 200 }: TerminalOptions) {
    const env = user.environment(environment) as Record<string, string>;
    this.#pty = spawnOnTerminal(process.execPath, [program, ...args], {
      cwd: user.folder,
      env,
      cols: columns,
      rows: 50,
    });
    this.#pty.onData((data) => {
      this.raw += data;
    });
    this.ended = new Promise((resolve) => this.#pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  get pid(): number {
    return this.#pty.pid;
  }

  type(keys: string): void {
    this.#pty.write(keys);
  }

  /**
   * Waits until the output since the previous match matches the pattern. Returns this output without control
   * sequences. Throws after a time limit.
   */
  async sees(pattern: RegExp): Promise<string> {
    const deadline = Date.now() + limitMs;
    while (Date.now() < deadline) {
      const shown = stripVTControlCharacters(this.raw.slice(this.#readTo));
      if (pattern.test(shown)) {
        this.#readTo = this.raw.length;
        return shown;
      }
      await sleep(10);
    }
    this.#pty.kill("SIGKILL");
    throw new Error(`${pattern} was not seen in ${JSON.stringify(this.raw.slice(-2000))}`);
  }
}

export function shell(...commands: readonly string[]): readonly [string, unknown] {
  return ["service_shell", { commands }];
}

export function python(code: string): readonly [string, unknown] {
  return ["service_execute_python", { code }];
}

/** Returns whether a process with this text in its command line is running. */
export function runs(text: string): boolean {
  return spawnSync("pgrep", ["-f", "--", text]).status === 0;
}
