import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { openState } from "../../../../cli/assembly/state.ts";
import { resolveConfig } from "../../../../cli/config/config.ts";
import type { ServerError } from "../../../../runtime/errors.ts";
import { createLogger } from "../../../../runtime/log/log.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-state-"));
const usual = { state: process.env.XDG_STATE_HOME, home: process.env.HOME };
after(() => {
  if (usual.state !== undefined) process.env.XDG_STATE_HOME = usual.state;
  process.env.HOME = usual.home;
  rmSync(folder, { recursive: true });
});
/** Path at which no user can create a folder. */
const unusable = `${process.execPath}/state`;

async function open(flags: Record<string, string> = {}) {
  const lines: { readonly level: number; readonly msg: string; readonly reason?: string }[] = [];
  const log = createLogger({ level: "info", format: "json" }, { write: (line) => void lines.push(JSON.parse(line)) });
  const config = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: "m" });
  return { state: await openState(config, log), lines };
}

describe("the server's state", () => {
  it("is kept in memory, with one warning, if the usual folder cannot be used", async () => {
    process.env.XDG_STATE_HOME = unusable;
    const { state, lines } = await open();
    assert.equal(await state.responses.find(`resp_${"0".repeat(32)}`), null);
    assert.deepEqual(
      lines.map(({ level }) => level),
      [40],
    );
    assert.match(lines[0]!.msg, /in memory only; state_dir/);
    assert.match(lines[0]!.reason!, /ENOTDIR/);
    await state.stop(100);
  });

  it("is kept in memory if the user has no home folder", async () => {
    process.env.XDG_STATE_HOME = "";
    process.env.HOME = "";
    const { state, lines } = await open();
    assert.match(lines[0]!.reason!, /no home folder/);
    await state.stop(100);
  });

  it("causes an error if a configured folder cannot be used", async () => {
    await assert.rejects(open({ "--state-dir": unusable }), (error: ServerError) => {
      return error.code === "config_invalid" && error.message.includes(unusable);
    });
  });

  it("needs no folder if configured so, and uses the configured one", async () => {
    for (const stateDir of ["none", join(folder, "given")]) {
      const { state, lines } = await open({ "--state-dir": stateDir });
      assert.equal(await state.responses.find(`resp_${"0".repeat(32)}`), null);
      assert.deepEqual(lines, []);
      await state.stop(1000);
    }
  });
});
