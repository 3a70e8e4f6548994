// Probes of stored responses: repeated reads of large responses, a full disk, deletions, crashed owner processes.
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { childrenOf } from "../../proc.ts";
import { namedReplies, type Outcome, type Probe, type ServerProbe } from "../probe.ts";
import { get, isNamed, otherKey, post, type Reply, summary } from "../rig/client.ts";
import { tinyModel } from "../rig/models.ts";
import type { Rig } from "../rig/rig.ts";

const itemCount = 40_000;
const largeBytes = 45_000_000;
/** Size of a conversation: about half of the limit, which is 16 MiB as JSON. */
const conversationBytes = 8_000_000;
const readers = 10;
const diskMiB = 24;
const fullMs = 20_000;
const deletions = 60;
/** Time after which a short response has ended. */
const endedMs = 500;
const tinyResponses = 1000;

export const storedProbes: readonly Probe[] = [
  {
    name: "storing a response of 45 MB",
    finding: 6,
    concerns: [],
    settings: onTinyModel,
    run: async (rig) => namedReplies([await storeLarge(rig, largeBytes)]),
  },
  readingProbe("100 readings of input_items of 45 MB", 100, largeBytes, (rig, id) =>
    rig.get(`/v1/responses/${id}/input_items?limit=20`),
  ),
  readingProbe("100 readings of a response with 45 MB of input", 100, largeBytes, (rig, id) =>
    rig.get(`/v1/responses/${id}`),
  ),
  readingProbe("10 references to an item among 45 MB", 10, largeBytes, async (rig, id) => {
    const input = [{ type: "item_reference", id: `msg_${id.slice("resp_".length)}_in0` }];
    return rig.post("/v1/responses", { input, max_output_tokens: 1, store: false });
  }),
  readingProbe("10 continuations of 8 MB", 10, conversationBytes, (rig, id) =>
    rig.post("/v1/responses", {
      ...{ input: "Go on.", previous_response_id: id },
      ...{ max_output_tokens: 1, store: false, truncation: "auto" },
    }),
  ),
  {
    name: "full disk, then room",
    finding: 14,
    concerns: [],
    obstacle: () => (process.getuid?.() === 0 ? null : "only root can mount a small disk"),
    async settings(rig) {
      const disk = diskOf(rig);
      mkdirSync(disk);
      execFileSync("mount", ["-t", "tmpfs", "-o", `size=${diskMiB}m`, "tmpfs", disk]);
      rig.atEnd(() => {
        execFileSync("umount", ["-l", disk]);
      });
      return { ...(await onTinyModel(rig)), flags: ["--state-dir", join(disk, "state")] };
    },
    run: fillDisk,
  },
  { name: "deleted while it ends", finding: 15, concerns: [], limitMs: 120_000, runAlone: deleteAtTheEnd },
  { name: "owner killed, not yet reaped", finding: 15, concerns: [], runAlone: leaveZombie },
  {
    name: "1,000 tiny responses of one client",
    finding: 16,
    concerns: [],
    limitMs: 120_000,
    settings: onTinyModel,
    async run(rig) {
      const kept = await rig.post("/v1/responses", { input: "Keep this.", max_output_tokens: 1 }, { key: otherKey });
      const replies: Reply[] = [];
      await inTurns(tinyResponses, async () => {
        replies.push(await rig.post("/v1/responses", { input: "hi", max_output_tokens: 1 }));
      });
      const found = await rig.get(`/v1/responses/${idIn(kept)}`, { key: otherKey });
      return {
        attacker: `${summary(replies)}; the other client's: ${found.status}`,
        isHeld: found.status === 200 && replies.every(isNamed),
      };
    },
  },
];

async function onTinyModel({ folder }: Rig) {
  return { models: [await tinyModel(folder, "tiny")] };
}

/** Reads part of a large stored response `times` times, several reads at once. */
function readingProbe(
  name: string,
  times: number,
  bytes: number,
  read: (rig: Rig, id: string) => Promise<Reply>,
): ServerProbe {
  let id = "";
  return {
    name,
    finding: 6,
    concerns: [],
    limitMs: 120_000,
    settings: onTinyModel,
    async prepare(rig) {
      id = idIn(await storeLarge(rig, bytes));
    },
    async run(rig) {
      const replies: Reply[] = [];
      await inTurns(times, async () => {
        replies.push(await read(rig, id));
      });
      return namedReplies(replies);
    },
  };
}

function storeLarge(rig: Rig, bytes: number): Promise<Reply> {
  const content = "word ".repeat(bytes / itemCount / 5);
  const input = Array.from({ length: itemCount }, () => ({ role: "user", content }));
  return rig.post("/v1/responses", { input, max_output_tokens: 1, truncation: "auto" });
}

/** Calls `once` `times` times in total, with several calls in progress at once. */
async function inTurns(times: number, once: () => Promise<void>): Promise<void> {
  let left = times;
  const turns = Array.from({ length: readers }, async () => {
    while (left-- > 0) await once();
  });
  await Promise.all(turns);
}

async function fillDisk(rig: Rig): Promise<Outcome> {
  const disk = diskOf(rig);
  const store = () =>
    rig.post("/v1/responses", { input: "x".repeat(200_000), truncation: "auto", max_output_tokens: 1 });
  const before = await store();
  const filler = join(disk, "filler");
  fill(filler);
  const full: Reply[] = [];
  const found: Reply[] = [];
  for (const end = performance.now() + fullMs; performance.now() < end; await sleep(250)) {
    full.push(await store());
    found.push(await rig.get(`/v1/responses/${idIn(before)}`));
  }
  rmSync(filler);
  await sleep(1000);
  const next = await store();
  const after = await Promise.all([before, next].map((reply) => rig.get(`/v1/responses/${idIn(reply)}`)));
  const areWhole = [...found, next, ...after].every(({ status }) => status === 200);
  return {
    attacker: `full: storing ${summary(full)}; reading ${summary(found)}; with room: storing ${summary([next])}; reading ${summary(after)}`,
    isHeld: before.status === 200 && full.every(isNamed) && areWhole,
  };
}

function fill(file: string): void {
  try {
    writeFileSync(file, Buffer.alloc(diskMiB * 2 ** 20));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}

function diskOf({ folder }: Rig): string {
  return join(folder, "disk");
}

/** One server generates a response; another server on the same folder deletes it at about the moment the response ends. */
async function deleteAtTheEnd(rig: Rig): Promise<Outcome> {
  const changes = await onTinyModel(rig);
  const [one, other] = [await rig.start(changes), await rig.start(changes)];
  let deleted = 0;
  let isBack = 0;
  for (let i = 0; i < deletions; i++) {
    const begun = await post(one.url, "/v1/responses", {
      input: "hi",
      max_output_tokens: 1 + (i % 20),
      background: true,
    });
    const id = idIn(begun);
    await sleep(i % 30);
    const gone = await get(other.url, `/v1/responses/${id}`, { method: "DELETE" });
    if (gone.status !== 200) continue;
    deleted++;
    await sleep(endedMs);
    const found = await Promise.all([one, other].map(({ url }) => get(url, `/v1/responses/${id}`)));
    if (found.some(({ status }) => status !== 404)) isBack++;
  }
  return { attacker: `${isBack} of ${deleted} deleted came back`, isHeld: isBack === 0 && deleted > 0 };
}

/** Kills a server whose parent never waits for it, so that its process id stays in use (a zombie). */
async function leaveZombie(rig: Rig): Promise<Outcome> {
  const changes = await onTinyModel(rig);
  const parent = await rig.start({ ...changes, wrapper: ["sh", "-c", '"$@" & exec sleep 600', "sh"] });
  const body = { input: "hi", max_output_tokens: 4000, ignore_eos: true, background: true };
  const begun = await post(parent.url, "/v1/responses", body);
  await sleep(500);
  const [pid = 0] = childrenOf(parent.pid);
  process.kill(pid, "SIGKILL");
  await sleep(500);
  const next = await rig.start(changes);
  const found = await get(next.url, `/v1/responses/${idIn(begun)}`);
  const status = /"status":"(\w+)"/.exec(found.text)?.[1];
  return { attacker: `found as ${found.status} ${status}`, isHeld: found.status === 200 && status === "incomplete" };
}

function idIn({ text }: Pick<Reply, "text">): string {
  return /"id":"(resp_[0-9a-f]+)"/.exec(text)?.[1] ?? "none";
}
