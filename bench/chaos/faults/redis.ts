// Faults of Redis and of the network to it: killed, paused, flushed, failed over, cut, partitioned.
import { setTimeout as sleep } from "node:timers/promises";
import type { ChaosRig } from "../rig/rig.ts";
import { portOf, redisCommand, replicate } from "../rig/rig.ts";
import type { Fault } from "./fault.ts";

const shared = ({ kind }: ChaosRig): boolean => kind === "redis";
const lost = ["storage_unavailable", "peer_gone", "timeout"] as const;

export const redisFaults: readonly Fault[] = [
  {
    name: "Redis killed and restarted",
    weight: 3,
    effects: { codes: lost, cutsStore: true },
    fits: shared,
    run: ({ rig, dice, alone }) => {
      const ms = dice.int(0, 1500);
      return alone(rig, async () => {
        const redis = primaryOf(rig);
        await redis.kill();
        await sleep(ms);
        await redis.start();
      });
    },
  },
  {
    name: "Redis paused",
    weight: 2,
    effects: { codes: lost, cutsStore: true },
    fits: shared,
    run: ({ rig, dice, alone }) => {
      const ms = dice.chance(0.2) ? 4500 : dice.int(50, 1500);
      return alone(rig, async () => {
        const { process: child } = primaryOf(rig);
        child.kill("SIGSTOP");
        await sleep(ms);
        child.kill("SIGCONT");
      });
    },
  },
  {
    name: "Redis flushed",
    weight: 1,
    effects: { codes: ["not_found", "peer_gone", "session_not_found", "storage_unavailable"], loses: true },
    fits: shared,
    run: ({ rig, alone }) => alone(rig, () => primaryOf(rig).flush()),
  },
  {
    name: "Redis failed over (planned)",
    weight: 2,
    effects: { codes: lost, cutsStore: true },
    fits: shared,
    run: ({ rig, alone }) =>
      alone(rig, async () => {
        const [old, next] = [primaryOf(rig), otherOf(rig)];
        // The replica may still be reconnecting after a restart of the primary. The failover needs a connected replica.
        for (let i = 0; !/state=online/.test(await redisCommand(old, "INFO replication")) && i < 500; i++)
          await sleep(20);
        const reply = await redisCommand(old, `FAILOVER TO 127.0.0.1 ${portOf(next)} TIMEOUT 5000`);
        if (!reply.startsWith("+OK")) throw new Error(`Redis refused the failover: ${reply}`);
        for (let i = 0; !/role:master/.test(await redisCommand(next, "INFO replication")); i++) {
          if (i > 500) throw new Error("the failover of Redis did not end");
          await sleep(20);
        }
        promoted(rig);
      }),
  },
  {
    name: "Redis failed over (the primary killed)",
    weight: 1,
    // Replication is asynchronous: the last writes may be lost.
    effects: { codes: [...lost, "not_found", "session_not_found"], loses: true },
    fits: shared,
    run: ({ rig, alone }) =>
      alone(rig, async () => {
        const [old, next] = [primaryOf(rig), otherOf(rig)];
        await old.kill();
        await redisCommand(next, "REPLICAOF NO ONE");
        promoted(rig);
        await old.start();
        await replicate(old, next);
      }),
  },
  {
    name: "connections to Redis cut",
    weight: 2,
    effects: { codes: lost, cutsStore: true },
    fits: shared,
    run: async ({ rig, dice }) => dice.pick(rig.links).cut(),
  },
  {
    name: "replica partitioned from Redis",
    weight: 2,
    effects: { codes: lost, cutsStore: true },
    fits: shared,
    run: ({ rig, dice, alone }) => {
      const [link, ms] = [dice.pick(rig.links), dice.chance(0.3) ? 6000 : dice.int(100, 3500)];
      return alone(link, async () => {
        link.partition(true);
        await sleep(ms);
        link.partition(false);
      });
    },
  },
];

function primaryOf(rig: ChaosRig) {
  return rig.redis[rig.primary] as (typeof rig.redis)[number];
}

function otherOf(rig: ChaosRig) {
  return rig.redis[1 - rig.primary] as (typeof rig.redis)[number];
}

/** Makes the other Redis server the primary and redirects all proxies between servers and Redis to it. */
function promoted(rig: ChaosRig): void {
  const next = otherOf(rig);
  rig.primary = 1 - rig.primary;
  for (const link of rig.links) link.cut(portOf(next));
}
