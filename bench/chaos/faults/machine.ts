// Faults of the machine: a full disk, a clock that jumps.
import { rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "./fault.ts";

const chunkBytes = 256 * 1024;

export const machineFaults: readonly Fault[] = [
  {
    name: "disk full",
    weight: 3,
    effects: { codes: ["storage_unavailable"], cutsStore: true },
    fits: ({ hasDisk, kind }) => hasDisk && kind === "lmdb",
    async run({ rig, dice, alone }) {
      const ms = dice.int(100, 1500);
      const ballast = join(rig.stateDir, "ballast");
      await alone(rig, async () => {
        try {
          fill(ballast);
          await sleep(ms);
        } finally {
          rmSync(ballast, { force: true });
        }
      });
    },
  },
  {
    name: "clock jumps",
    weight: 2,
    // Files and sessions expire if the clock jumps forward.
    effects: { codes: ["timeout"], loses: true },
    fits: ({ hasClock }) => hasClock,
    async run({ rig, dice, alone }) {
      const [offset, ms] = [dice.pick([-86_400, -3600, -5, 5, 600, 3600]), dice.int(100, 1500)];
      await alone(rig, async () => {
        rig.setClock(`${offset < 0 ? "" : "+"}${offset}`);
        await sleep(ms);
        rig.setClock("+0");
      });
    },
  },
];

/** Fills the file system of `path` until no block is free. */
function fill(path: string): void {
  const { bavail, bsize } = statfsSync(join(path, ".."));
  try {
    for (let left = bavail * bsize; left > 0; left -= chunkBytes) {
      writeFileSync(path, Buffer.alloc(Math.min(left, chunkBytes)), { flag: "a" });
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}
