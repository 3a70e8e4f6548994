// Interpreter with a scripted driver: what it keeps in memory, and what happens when its process ends.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Interpreter } from "../../../../actors/tools/python/interpreter.ts";
import { marks } from "../../../../actors/tools/python/marks.ts";
import type { ConfinedExit, ConfinedProcess } from "../../../../runtime/sandbox/sandbox.ts";

const megabyte = 2 ** 20;
const image = `iVBORw0KGgo${"A".repeat(megabyte)}`;

/** Starts an interpreter whose driver answers each cell with an image. The cell "end" ends the process instead. */
function startInterpreter() {
  const [stdin, stdout, stderr, toCommand, fromCommand] = Array.from({ length: 5 }, () => new PassThrough());
  let end = (_exit: ConfinedExit): void => {};
  const exited = new Promise<ConfinedExit>((resolve) => {
    end = resolve;
  });
  const exit = (): void => {
    for (const stream of [stdout, stderr]) stream?.end();
    end({ code: 3, signal: null, limit: null });
  };
  toCommand?.on("data", (line: Buffer) => {
    const { id, code } = JSON.parse(line.toString()) as { id: number; code: string };
    if (code === "end") return exit();
    stdout?.write(`text${marks.stdout}`);
    stderr?.write(marks.stderr);
    const reply = {
      id,
      result: null,
      result_type: null,
      exception: null,
      images: [image],
      frames: [],
      left_out: 0,
      ms: 1,
    };
    fromCommand?.write(`${JSON.stringify(reply)}\n`);
  });
  return new Interpreter({
    ...{ workFolder: "/work", stdin, stdout, stderr, channel: { toCommand, fromCommand }, exited, isWatched: true },
    ...{ interrupt: () => {}, kill: async () => exit() },
  } as unknown as ConfinedProcess);
}

describe("an interpreter", () => {
  it("does not keep the replies of earlier cells in memory", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const interpreter = startInterpreter();
    const used = async (cells: number): Promise<number> => {
      for (let i = 0; i < cells; i++) assert.equal((await interpreter.run("1", 10_000)).images.length, 1);
      await new Promise((resolve) => setImmediate(resolve));
      collect();
      return process.memoryUsage().heapUsed;
    };
    const before = await used(3);
    const grown = ((await used(40)) - before) / megabyte;
    assert.ok(grown < 10, `40 cells with an image of 1 MiB each have left ${grown.toFixed(1)} MiB`);
  });

  it("says that its process has ended, in the cell that runs and in the next one", async () => {
    const interpreter = startInterpreter();
    for (const code of ["end", "1"]) assert.match((await interpreter.run(code, 10_000)).exception ?? "", /exit code 3/);
    assert.equal(interpreter.hasEnded, true);
  });
});
