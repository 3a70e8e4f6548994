// Owns a place in a child process, from outside: starting, killing, the private folder of its socket. Used by place.ts; the
// inside is entry-process.ts. The child gets one socket (fd 3), stderr, and no secrets of the environment.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { goneError } from "../endpoint/endpoint.ts";
import { SocketEndpoint } from "../endpoint/socket-endpoint.ts";
import { fromErrorRecord } from "../errors.ts";
import { type DialAnswer, type DialPath, dialChannel } from "./control.ts";
import type { DialTicket } from "./dial.ts";
import type { Host, HostExit, HostOptions } from "./place-kind.ts";

const entry = fileURLToPath(new URL("./entry-process.js", import.meta.url));

/** sun_path holds 108 bytes on Linux and 104 on macOS, the closing zero included. */
const maxSocketPathBytes = 103;

const folderPrefix = "troupe-";
const socketName = "place";

/** Flags of our own process that make sense in a child; not the inspector's, the test runner's, or -e's. */
const inheritedFlag = /^--(enable-source-maps|no-warnings|max-|stack-trace-limit|trace-)/;

const secretName = /(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE)_KEY)$/i;

export function startProcess(options: HostOptions): Host {
  const child = spawn(
    process.execPath,
    [...process.execArgv.filter((flag) => inheritedFlag.test(flag)), entry, options.name],
    {
      // A child that inherits our stderr makes it blocking. So its output comes to us through a pipe, and we may drop lines.
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      env: { ...withoutSecrets(process.env), ...options.environment },
      // A session of its own: ctrl-c in the terminal reaches the spawner, which decides when its places stop.
      detached: true,
    },
  );
  const gone = untilGone(child); // first of all: an error event without a listener would end this process
  for (const stream of [child.stdout, child.stderr]) {
    if (stream !== null) createInterface({ input: stream }).on("line", options.onOutput);
  }
  const link = new SocketEndpoint(child.stdio[3] as Socket, { peer: options.name, explain: options.explain });
  let path: Promise<string> | null = null;
  return {
    link,
    pid: child.pid ?? null,
    gone,
    kill: () => void child.kill("SIGKILL"),
    dial: async (): Promise<DialTicket> => {
      path ??= startListening(link, gone);
      return { place: options.name, carrier: "process", path: await path };
    },
  };
}

/** Has the child listen at a socket in a folder only this user may enter; the folder goes when the child does. */
async function startListening(link: SocketEndpoint, gone: Promise<HostExit>): Promise<string> {
  const folder = await mkdtemp(join(socketRoot(), folderPrefix));
  const remove = () => rm(folder, { recursive: true, force: true });
  gone.then(remove).catch(() => {}); // a stale one is harmless
  const path = join(folder, socketName);
  const answer = new Promise<DialAnswer>((resolve) => link.receive(dialChannel, resolve));
  link.send(dialChannel, { path } satisfies DialPath);
  const first = await Promise.race([answer, link.exit]);
  if ("reason" in first) throw goneError(link.peer, first);
  if (first.error !== null) throw fromErrorRecord(first.error);
  return path;
}

/** The temporary folder, or /tmp where that one's name is too long for a socket's address. */
function socketRoot(): string {
  const longest = join(tmpdir(), `${folderPrefix}XXXXXX`, socketName);
  return Buffer.byteLength(longest) <= maxSocketPathBytes ? tmpdir() : "/tmp";
}

function withoutSecrets(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !secretName.test(name)));
}

function untilGone(child: ChildProcess): Promise<HostExit> {
  return new Promise((resolve) => {
    child.on("error", (error) => {
      // Also emitted for a kill that failed; only a child that never started has no pid.
      if (child.pid === undefined) resolve({ code: null, signal: null, fault: error.message });
    });
    child.on("exit", (code, signal) => resolve({ code, signal, fault: null }));
  });
}
