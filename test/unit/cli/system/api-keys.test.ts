import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parseToml } from "../../../../cli/config/toml.ts";
import { openApiKeys } from "../../../../cli/system/api-keys.ts";
import type { ApiKeys } from "../../../../http/server/access/api-keys.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { resolve } from "../config/resolve.ts";

describe("the API keys of a server", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-keys-"));
  const path = join(folder, "keys");
  const stop = new AbortController();
  after(() => {
    stop.abort();
    rmSync(folder, { recursive: true });
  });
  const lines: string[] = [];
  const log = createLogger({ level: "info", format: "json" }, { write: (line) => lines.push(line) });
  const isTaken = (keys: ApiKeys | null, key: string) =>
    keys?.refusal({ headers: new Map([["authorization", `Bearer ${key}`]]) }) === null;
  const write = (text: string) => {
    writeFileSync(path, text, { mode: 0o600 });
  };

  it("are none by default", async () => {
    assert.equal(await openApiKeys({ apiKey: null, apiKeysFile: null }, log, stop.signal), null);
  });

  it("come from the flag and from a file, which is read again when it changes", async () => {
    write("# clients\nalpha-key\n\n  beta-key\r\n");
    const keys = await openApiKeys({ apiKey: ["own-key"], apiKeysFile: path }, log, stop.signal, 20);
    for (const key of ["own-key", "alpha-key", "beta-key"]) assert.ok(isTaken(keys, key), key);
    for (const key of ["", "# clients", "gamma-key", "alpha"]) assert.ok(!isTaken(keys, key), key);
    assert.equal(lines.length, 0);

    write("gamma-key\n");
    while (!isTaken(keys, "gamma-key")) await sleep(10);
    assert.ok(!isTaken(keys, "alpha-key") && isTaken(keys, "own-key"));

    write("not a key\n");
    while (!lines.some((line) => line.includes("former API keys stay valid"))) await sleep(10);
    assert.ok(isTaken(keys, "gamma-key"));
    assert.ok(!lines.join("").includes("not a key"));
  });

  it("are refused if the file is missing, empty or has something else, and warned of if all can read it", async () => {
    const open = (apiKeysFile: string) => openApiKeys({ apiKey: null, apiKeysFile }, log, stop.signal);
    await assert.rejects(open(join(folder, "missing")), { code: "config_invalid", message: /ENOENT/ });
    write("# none yet\n");
    await assert.rejects(open(path), { code: "config_invalid", message: /at least one key/ });
    write("fine\nsecret with spaces\n");
    await assert.rejects(open(path), ({ message }: Error) => {
      return message.includes("line 2") && !message.includes("secret with spaces");
    });
    if (process.platform === "win32") return;
    write("fine\n");
    chmodSync(path, 0o644);
    await open(path);
    assert.match(lines.at(-1) ?? "", /chmod 600/);
  });

  it("are never quoted by messages about settings", () => {
    const secret = "my secret key";
    for (const run of [
      () => resolve({ flags: { "--api-key": [secret] } }),
      () => parseToml(`command = "serve"\n[server]\napi_key = ["${secret}"`, "a.toml"),
    ]) {
      assert.throws(run, ({ message }: Error) => !message.includes(secret));
    }
  });
});
