import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import {
  hubCacheDirectory,
  hubEndpoint,
  isOffline,
  tokenPath,
} from "../../../../engines/files/hub/api/hub-locations.ts";
import { readToken, writeToken } from "../../../../engines/files/hub/api/hub-token.ts";

const base = mkdtempSync(join(tmpdir(), "hub-token-"));
const kept = { HF_HOME: base };
after(() => rmSync(base, { recursive: true, force: true }));

describe("the source of a token", () => {
  writeFileSync(join(base, "mine"), " hf_file\n");
  writeFileSync(join(base, "empty"), "\n");

  it("is the one that is configured", async () => {
    assert.equal(await readToken("literal:hf_a:b", {}), "hf_a:b");
    assert.equal(await readToken("env:MINE", { MINE: "hf_env" }), "hf_env");
    assert.equal(await readToken(`path:${join(base, "mine")}`, {}), "hf_file");
    assert.equal(await readToken("none", { HF_TOKEN: "hf_x" }), null);
  });

  it("is by default the environment, then the file that login wrote", async () => {
    assert.equal(await readToken("cache", { HF_TOKEN: "hf_1", HF_HUB_TOKEN: "hf_2", ...kept }), "hf_1");
    assert.equal(await readToken("cache", { HF_HUB_TOKEN: "hf_2", ...kept }), "hf_2");
    assert.equal(await readToken("cache", kept), null);
    await writeToken("hf_kept", kept);
    assert.equal(await readToken("cache", { HF_TOKEN: " ", ...kept }), "hf_kept");
    assert.equal(await readToken("cache", { HF_TOKEN_PATH: join(base, "mine") }), "hf_file");
  });

  it("is rejected if it is empty, missing or invalid, and its content is never shown", async () => {
    const wrong: [string, RegExp][] = [
      ["literal:", /^the token of token_source is empty or not set/],
      ["literal:hf_secret x", /^the token of token_source is not a token: it contains spaces/],
      ["literal:hf_secret\u00e9", /is not a token/],
      ["env:", /^token_source expects "literal:TOKEN".*without a variable$/],
      ["env:NONE", /^the variable NONE that token_source names is empty or not set/],
      ["path:", /without a file$/],
      [`path:${join(base, "absent")}`, /absent" that token_source names cannot be read \(ENOENT\)$/],
      [`path:${join(base, "empty")}`, /empty" that token_source names is empty or not set/],
      ["hf_secret", /^token_source expects .*; got something else$/],
      ["", /got something else$/],
    ];
    for (const [source, message] of wrong) {
      await assert.rejects(readToken(source, {}), (error: Error & { code: string }) => {
        assert.match(error.message, message);
        assert.deepEqual([error.code, error.message.includes("hf_secret")], ["config_invalid", false]);
        return true;
      });
    }
  });

  it("is written readable only by its owner, even over a file that was readable by all", async () => {
    const path = tokenPath(kept);
    writeFileSync(path, "old", { mode: 0o644 });
    assert.equal(await writeToken("hf_new", kept), path);
    assert.deepEqual([readFileSync(path, "utf8"), statSync(path).mode & 0o777], ["hf_new", 0o600]);
    mkdirSync(join(base, "folder", "token"), { recursive: true });
    await assert.rejects(writeToken("hf_x", { HF_HOME: join(base, "folder") }), {
      code: "config_invalid",
      message: /cannot be written to .*; set HF_HOME/,
    });
  });
});

describe("the location of the hub's files", () => {
  it("is that of its Python library", () => {
    assert.equal(hubCacheDirectory({}), join(homedir(), ".cache", "huggingface", "hub"));
    assert.equal(hubCacheDirectory({ XDG_CACHE_HOME: "/x" }), join("/x", "huggingface", "hub"));
    assert.equal(hubCacheDirectory({ HF_HOME: "~/h", XDG_CACHE_HOME: "/x" }), join(homedir(), "h", "hub"));
    assert.equal(hubCacheDirectory({ HF_HUB_CACHE: "/c", HF_HOME: "/h" }), "/c");
    assert.equal(hubCacheDirectory({ HF_HUB_CACHE: "/c" }, "/chosen"), "/chosen");
    assert.equal(tokenPath({ XDG_CACHE_HOME: "/x" }), join("/x", "huggingface", "token"));
  });

  it("is not contacted offline, however offline mode is set", () => {
    for (const value of ["1", "ON", "yes", "True"]) assert.ok(isOffline({ HF_HUB_OFFLINE: value }), value);
    for (const value of ["0", "", "no", undefined]) assert.ok(!isOffline({ HF_HUB_OFFLINE: value }), value);
  });

  it("must be a URL without a password", () => {
    assert.equal(hubEndpoint({ HF_ENDPOINT: "http://mirror.test/hf/" }), "http://mirror.test/hf");
    for (const value of ["mirror.test", "ftp://x", "https://me:hunter2@x"]) {
      assert.throws(
        () => hubEndpoint({ HF_ENDPOINT: value }),
        ({ message }: Error) => !message.includes("hunter2"),
      );
    }
  });
});
