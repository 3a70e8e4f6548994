// Place in a child process, as seen by its spawner: start, kill, and the private folder of its socket. Used by
// place.ts; the code inside the process is entry-process.ts. The child gets one socket (fd 3), pipes for its output,
// and no secrets from the environment.
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
import { type Host, type HostExit, type HostOptions, semiSpaceMiB } from "./place-kind.ts";

const entry = fileURLToPath(new URL("./entry-process.js", import.meta.url));

/** Maximum socket path length. sun_path has 108 bytes on Linux and 104 on macOS, including the terminating zero. */
const maxSocketPathBytes = 103;

const folderPrefix = "troupe-";
const socketName = "place";

/** Flags that a child inherits. Flags of the inspector and of the test runner are not inherited, and neither is -e. */
const inheritedFlag = /^--(enable-source-maps|no-warnings|max-|stack-trace-limit|trace-)/;

const secretName = /(^|_)(TOKEN(_SOURCE)?|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE)_KEY)$/i;

export function startProcess(options: HostOptions): Host {
  const child = spawn(
    process.execPath,
    [
      `--max-semi-space-size=${semiSpaceMiB}`,
      ...process.execArgv.filter((flag) => inheritedFlag.test(flag)),
      entry,
      options.name,
    ],
    {
      // If a child inherited this process's stderr, it would switch the descriptor to blocking mode. So the child's output
      // comes through a pipe, and lines may be dropped.
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      env: { ...withoutSecrets(process.env), ...options.environment },
      // Start a new session, so that ctrl-c in the terminal reaches only the spawner, which stops its children.
      detached: true,
    },
  );
  const gone = untilGone(child); // This is first, because an error event without a listener ends this process.
  for (const stream of [child.stdout, child.stderr]) {
    if (stream !== null) createInterface({ input: stream }).on("line", options.onOutput);
  }
  const endpoint = new SocketEndpoint(child.stdio[3] as Socket, { peer: options.name, explain: options.explain });
  let path: Promise<string> | null = null;
  return {
    endpoint,
    pid: child.pid ?? null,
    gone,
    kill: () => void child.kill("SIGKILL"),
    dial: async (): Promise<DialTicket> => {
      path ??= startListening(endpoint, gone);
      return { place: options.name, kind: "process", path: await path };
    },
  };
}

/** Makes the child listen on a socket in a folder that only this user may enter. The folder is removed when the child ends. */
async function startListening(endpoint: SocketEndpoint, gone: Promise<HostExit>): Promise<string> {
  const folder = await mkdtemp(join(socketRoot(), folderPrefix));
  const remove = () => rm(folder, { recursive: true, force: true });
  gone.then(remove).catch(() => {}); // A folder that remains is harmless.
  const path = join(folder, socketName);
  const answer = new Promise<DialAnswer>((resolve) => endpoint.receive(dialChannel, resolve));
  endpoint.send(dialChannel, { path } satisfies DialPath);
  const first = await Promise.race([answer, endpoint.exit]);
  if ("reason" in first) throw goneError(endpoint.peer, first);
  if (first.error !== null) throw fromErrorRecord(first.error);
  return path;
}

/** Returns the temporary folder, or /tmp if its path is too long for a socket address. */
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
      // The error event is also emitted if a kill fails. Only a child that never started has no pid.
      if (child.pid === undefined) resolve({ code: null, signal: null, fault: error.message });
    });
    child.on("exit", (code, signal) => resolve({ code, signal, fault: null }));
  });
}
