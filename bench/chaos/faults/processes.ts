// Faults of processes and threads: killed, paused, blocked, out of memory or file descriptors, stopped on request.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { family } from "../../proc.ts";
import type { ChaosServer } from "../rig/server.ts";
import { type Fault, type FaultTarget, partEnded } from "./fault.ts";

const always = (): boolean => true;
/** Threads of a server, except the state thread: its end is a fault of its own, because it makes the store unreachable. */
const threads = ["generation", "text"];

async function restarted({ server, dice, alone }: FaultTarget, signal: NodeJS.Signals): Promise<void> {
  const pauseMs = dice.int(0, 300);
  await alone(server, async () => {
    if (!server.isUp) return;
    await server.end(signal);
    await sleep(pauseMs);
    await startedAgain(server);
  });
}

/** Starts a server as a supervisor does: again if it has ended because Redis did not reply. */
async function startedAgain(server: ChaosServer): Promise<void> {
  for (let tries = 3; ; tries--) {
    try {
      return await server.start();
    } catch (error) {
      if (tries === 0 || !/state_url|the shared state at/.test(server.log)) throw error;
      await sleep(1000);
    }
  }
}

async function paused(pids: readonly number[], ms: number): Promise<void> {
  const sent = pids.filter((pid) => signalled(pid, "SIGSTOP"));
  await sleep(ms);
  for (const pid of sent) signalled(pid, "SIGCONT");
}

function signalled(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return pid > 0 && process.kill(pid, signal);
  } catch {
    return false;
  }
}

export const processFaults: readonly Fault[] = [
  {
    name: "server killed",
    weight: 3,
    effects: { codes: partEnded },
    fits: always,
    run: (target) => restarted(target, "SIGKILL"),
  },
  {
    name: "server stopped",
    weight: 1,
    effects: { codes: partEnded },
    fits: always,
    run: (target) => restarted(target, "SIGTERM"),
  },
  {
    name: "server paused",
    weight: 2,
    effects: { codes: ["peer_gone", "timeout", "storage_unavailable"] },
    fits: always,
    async run({ server, dice, alone }) {
      // Some pauses are longer than a replica's lease, so that the other replicas consider it dead.
      const ms = dice.chance(0.15) ? 5500 : dice.int(50, 1200);
      await alone(server, () => paused([server.pid], ms));
    },
  },
  {
    name: "model process killed",
    weight: 3,
    effects: { codes: ["model_failed", "model_loading", "peer_gone"] },
    fits: always,
    async run({ server, dice }) {
      const { places } = server;
      if (places.length > 0) signalled(dice.pick(places), "SIGKILL");
    },
  },
  {
    name: "model process paused",
    weight: 2,
    effects: { codes: ["timeout", "reader_stalled"] },
    fits: always,
    async run({ server, dice }) {
      const { places } = server;
      const [which, ms] = [dice.int(0, 100), dice.int(50, 1500)];
      const pid = places[which % Math.max(1, places.length)];
      if (pid !== undefined) await paused([pid], ms);
    },
  },
  {
    name: "thread ended",
    weight: 4,
    effects: { codes: [...partEnded, "mailbox_full"] },
    fits: always,
    run: ({ server, dice }) => server.order({ thread: dice.pick(threads), blockMs: null }),
  },
  {
    name: "state thread ended",
    weight: 2,
    effects: { codes: partEnded, cutsStore: true },
    fits: always,
    run: ({ server }) => server.order({ thread: "state", blockMs: null }),
  },
  {
    name: "thread blocked",
    weight: 2,
    effects: { codes: ["timeout"] },
    fits: always,
    async run({ server, dice }) {
      const [thread, ms] = [dice.pick([...threads, "state"]), dice.int(50, 1500)];
      await server.order({ thread, blockMs: ms });
      await sleep(ms);
    },
  },
  {
    name: "state thread blocked, then the server killed",
    weight: 1,
    effects: { codes: partEnded },
    fits: always,
    async run(target) {
      const { server, dice } = target;
      const ms = dice.int(20, 400);
      await server.order({ thread: "state", blockMs: 2000 });
      await sleep(ms);
      await restarted(target, "SIGKILL");
    },
  },
  {
    name: "file descriptors exhausted",
    weight: 2,
    effects: { codes: [...partEnded, "queue_full", "adapter_storage_unavailable"], cuts: true },
    fits: always,
    async run({ server, dice, alone }) {
      const [room, ms] = [dice.int(0, 6), dice.int(100, 900)];
      await alone(server, async () => {
        if (!server.isUp) return;
        const { pid } = server;
        const open = readdirSync(`/proc/${pid}/fd`).length;
        limited(pid, "nofile", open + room);
        await sleep(ms);
        lifted(pid, "nofile", 20_000);
      });
    },
  },
  {
    name: "memory exhausted",
    weight: 1,
    effects: { codes: [...partEnded, "queue_full"] },
    fits: always,
    async run({ server, dice, alone }) {
      const [atModel, which, ms] = [dice.chance(0.6), dice.int(0, 100), dice.int(100, 900)];
      await alone(server, async () => {
        if (!server.isUp) return;
        const { places } = server;
        const pid = atModel ? (places[which % Math.max(1, places.length)] ?? server.pid) : server.pid;
        limited(pid, "as", addressSpace(pid) + 8 * 2 ** 20);
        await sleep(ms);
        lifted(pid, "as", "unlimited");
        // The process may abort because it ran out of memory. Writing its stack takes a while.
        await sleep(200);
        for (let waits = 0; server.isUp && /FATAL ERROR|# Fatal/.test(server.log) && waits < 50; waits++)
          await sleep(100);
        if (!server.isUp) await startedAgain(server);
      });
    },
  },
];

function limited(pid: number, what: "as" | "nofile", soft: number | string): void {
  try {
    execFileSync("prlimit", ["--pid", String(pid), `--${what}=${soft}:`], { stdio: "ignore" });
  } catch {
    // `prlimit` fails if the process has already ended.
  }
}

/** Lifts the limit of a process and of its descendants: those that were started meanwhile have inherited it. */
function lifted(pid: number, what: "as" | "nofile", soft: number | string): void {
  limited(pid, what, soft);
  for (const one of family([pid])) limited(one, what, soft);
}

function addressSpace(pid: number): number {
  try {
    return Number(/^VmSize:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
  } catch {
    return 2 ** 40;
  }
}
