import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, it } from "node:test";
import { linkSnapshot } from "../../../../engines/files/hub/api/hub-cache.ts";
import type { FetchProgress } from "../../../../engines/files/hub/download/fetch-options.ts";
import { commit, modelBytes, repo, useHub } from "./hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const file = "tiny-Q8_0.gguf";
const bytes = modelBytes();
const etag = createHash("sha256").update(bytes).digest("hex");
const folder = join(rig.cache, "models--acme--tiny-GGUF");
const offline = { environment: { ...rig.environment, HF_HUB_OFFLINE: "1" } };

describe("a model of the hub", () => {
  it("is fetched into the layout that Python uses", async () => {
    rig.put({ [file]: bytes, "README.md": Buffer.from("# tiny") });
    const path = await rig.resolve(repo);
    assert.equal(path, join(folder, "snapshots", commit, file));
    assert.equal(readlinkSync(path), join("..", "..", "blobs", etag));
    assert.equal(readFileSync(join(folder, "refs", "main"), "utf8"), commit);
    assert.ok(readFileSync(path).equals(bytes));
    assert.deepEqual(rig.blobs(), [etag]);
  });

  it("fetches all files of a checkpoint if the repository has no GGUF file", async () => {
    const files = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    const others = [
      "model.safetensors.index.json",
      "tokenizer.json",
      "preprocessor_config.json",
      "1_Pooling/config.json",
    ];
    const unused = ["README.md", "onnx/model.onnx", "consolidated.safetensors"];
    rig.put(Object.fromEntries([...files, ...others, ...unused].map((name) => [name, Buffer.from(name)])));
    const path = await rig.resolve(repo);
    const folder = dirname(path);
    assert.equal(basename(path), "config.json");
    for (const name of [...files, ...others]) assert.equal(readFileSync(join(folder, name), "utf8"), name);
    for (const name of unused) assert.ok(!existsSync(join(folder, name)), name);
    assert.equal(await rig.resolve(repo, offline), path);
  });

  it("is fetched with the generation_config.json of its folder", async () => {
    rig.put({
      [file]: bytes,
      "generation_config.json": Buffer.from('{"top_k": 7}'),
      "sub/generation_config.json": bytes,
    });
    const path = await rig.resolve(repo);
    assert.deepEqual([basename(path), readdirSync(dirname(path)).sort()], [file, ["generation_config.json", file]]);
    assert.equal(readFileSync(join(dirname(path), "generation_config.json"), "utf8"), '{"top_k": 7}');
    assert.equal(await rig.resolve(repo, offline), path);
  });

  it("is fetched in parts that together are the file", async () => {
    rig.put({ [file]: bytes });
    await rig.assertFetched(bytes);
    assert.deepEqual(hub.ranges().sort(), [
      "bytes=0-999",
      "bytes=1000-1999",
      "bytes=2000-2999",
      "bytes=3000-3999",
      "bytes=4000-4499",
    ]);
  });

  it("reports its progress up to the total size", async () => {
    rig.put({ [file]: bytes });
    const seen: FetchProgress[] = [];
    await rig.resolve(repo, { onProgress: (progress) => seen.push(progress) });
    const downloads = seen.filter(({ phase }) => phase === "download").map(({ doneBytes }) => doneBytes);
    assert.deepEqual(
      downloads,
      [...downloads].sort((a, b) => a - b),
    );
    assert.equal(downloads.at(-1), bytes.length);
    assert.ok(seen.every(({ totalBytes }) => totalBytes === bytes.length));
    assert.equal(seen.at(-1)?.phase, "verify");
  });

  it("is not fetched again until the hub has a new one", async () => {
    rig.put({ [file]: bytes });
    const first = await rig.resolve();
    const fetched = hub.ranges().length;
    assert.equal(await rig.resolve(), first);
    assert.equal(hub.ranges().length, fetched);
    const changed = modelBytes(2);
    hub.commit = "d".repeat(40);
    rig.put({ [file]: changed });
    await rig.assertFetched(changed);
    assert.ok(readFileSync(first).equals(bytes));
  });

  it("is not fetched again when only its commit is new", async () => {
    rig.put({ [file]: bytes });
    await rig.resolve();
    const fetched = hub.ranges().length;
    hub.commit = "d".repeat(40);
    const second = await rig.resolve();
    assert.deepEqual([hub.ranges().length, dirname(second).endsWith(hub.commit)], [fetched, true]);
    assert.ok(readFileSync(second).equals(bytes));
  });

  it("needs no network if a commit is specified and the file is in the cache", async () => {
    rig.put({ [file]: bytes });
    const pinned = `${repo}@${commit}:${file}`;
    const path = await rig.resolve(pinned);
    hub.requests.length = 0;
    assert.equal(await rig.resolve(pinned), path);
    assert.deepEqual(hub.requests, []);
  });

  it("of a specified commit is completed if the fetch of its other files failed", async () => {
    const config = "generation_config.json";
    rig.put({ [file]: bytes, [config]: Buffer.from("{}") });
    const pinned = `${repo}@${commit}:${file}`;
    hub.fault = ({ host, path }) => (host === "cdn" && path.includes(config) ? { status: 503 } : null);
    await rig.assertRefused(pinned, "model_source_unreachable", /answered 503/);
    hub.fault = () => null;
    const path = await rig.resolve(pinned);
    assert.equal(readFileSync(join(dirname(path), config), "utf8"), "{}");
  });

  it("is taken from the revision that is named", async () => {
    hub.branches.push("v1.0", "refs/pr/1");
    rig.put({ [file]: bytes });
    await rig.resolve(`${repo}@v1.0:Q8_0`);
    await rig.resolve(`${repo}@refs/pr/1`);
    assert.equal(readFileSync(join(folder, "refs", "v1.0"), "utf8"), commit);
    assert.equal(readFileSync(join(folder, "refs", "refs", "pr", "1"), "utf8"), commit);
  });

  it("may be specified by the setting for its file, which must not contradict the source", async () => {
    rig.put({ "a-Q4_0.gguf": modelBytes(2), [file]: bytes });
    await rig.assertFetched(bytes, repo, { quantizedFile: file });
    await rig.assertRefused(`${repo}:Q4_0`, "config_invalid", /names "Q4_0" and quantized_file names "tiny/, {
      quantizedFile: file,
    });
  });

  it("never gives way to a local path of the same name, which is a model itself", async () => {
    const previous = process.cwd();
    mkdirSync(join(rig.cache, repo), { recursive: true });
    writeFileSync(join(rig.cache, repo, "local.gguf"), "GGUF");
    process.chdir(rig.cache);
    try {
      assert.match(await rig.resolve(repo), /tiny-GGUF.local\.gguf$/);
    } finally {
      process.chdir(previous);
    }
    assert.deepEqual(hub.requests, []);
  });

  it("in shards is fetched whole, whichever shard is named, and is its first", async () => {
    const shards = [1, 2, 3].map((index) => `big-Q8_0-0000${index}-of-00003.gguf`);
    rig.put(Object.fromEntries(shards.map((name, index) => [name, modelBytes(index)])));
    const totals = new Set<number | null>();
    const path = await rig.resolve(`${repo}:${shards[1]}`, {
      onProgress: ({ phase, totalBytes }) => phase === "download" && totals.add(totalBytes),
    });
    assert.equal(path, join(folder, "snapshots", commit, shards[0]!));
    for (const [index, name] of shards.entries()) {
      assert.ok(readFileSync(join(dirname(path), name)).equals(modelBytes(index)));
    }
    assert.deepEqual([...totals], [3 * bytes.length]);
    assert.equal(await rig.resolve(`${repo}:Q8_0`), path);
    hub.repos.get(repo)?.delete(shards[2]!);
    hub.commit = "d".repeat(40);
    await rig.assertRefused(repo, "model_file_invalid", /one of 3 shards; missing: "big-Q8_0-00003-of-00003\.gguf"$/);
  });

  it("is one file in a folder of the repository", async () => {
    rig.put({ "UD-Q4/deep #1-Q8_0.gguf": bytes });
    const path = await rig.resolve();
    assert.equal(path, join(folder, "snapshots", commit, "UD-Q4", "deep #1-Q8_0.gguf"));
    assert.equal(readlinkSync(path), join("..", "..", "..", "blobs", etag));
  });

  it("cannot write outside the cache through the file names that it lists", async () => {
    rig.put({ "../../../evil.gguf": bytes, "/evil.gguf": bytes, "a\\b.gguf": bytes, "a//b.gguf": bytes });
    await rig.assertRefused(repo, "model_file_invalid", /^there is no GGUF model in "acme\/tiny-GGUF"/);
  });

  it("is copied or moved where the file system has no links", async () => {
    const link = () => Promise.reject(Object.assign(new Error("no links here"), { code: "EPERM" }));
    const blob = join(folder, "blobs", "abc");
    mkdirSync(dirname(blob), { recursive: true });
    writeFileSync(blob, "weights");
    for (const [name, isShared] of Object.entries({ first: true, second: false })) {
      const pointer = join(folder, "snapshots", name, "m.gguf");
      await linkSnapshot(blob, pointer, { isShared, link });
      assert.deepEqual([readFileSync(pointer, "utf8"), lstatSync(pointer).isFile()], ["weights", true]);
      assert.equal(existsSync(blob), isShared);
    }
  });
});

describe("the cache that Python filled", () => {
  /** Creates the files that huggingface_hub writes to the cache, with its lock and its marker of a missing file. */
  function fillAsPython(name: string, content: Buffer): string {
    const blob = createHash("sha256").update(content).digest("hex");
    for (const path of [`snapshots/${commit}`, "blobs", "refs", `.no_exist/${commit}`]) {
      mkdirSync(join(folder, path), { recursive: true });
    }
    writeFileSync(join(folder, "refs", "main"), commit);
    writeFileSync(join(folder, "blobs", blob), content);
    writeFileSync(join(folder, ".no_exist", commit, "config.json"), "");
    symlinkSync(`../../blobs/${blob}`, join(folder, "snapshots", commit, name));
    return join(folder, "snapshots", commit, name);
  }

  it("is used without the hub in offline mode", async () => {
    const path = fillAsPython(file, bytes);
    for (const source of [repo, `${repo}:q8_0`, `${repo}:${file}`, `${repo}@${commit}`]) {
      assert.equal(await rig.resolve(source, offline), path, source);
    }
    assert.deepEqual(hub.requests, []);
  });

  it("is completed, not fetched again, when the hub can be asked", async () => {
    const path = fillAsPython(file, bytes);
    rig.put({ [file]: bytes, "tiny-Q4_0.gguf": modelBytes(2) });
    assert.equal(await rig.resolve(), path);
    assert.deepEqual(hub.ranges(), []);
    await rig.assertFetched(modelBytes(2), `${repo}:Q4_0`);
  });

  it("is where the environment variables say, in order of precedence", async () => {
    const path = fillAsPython(file, bytes);
    const places = [
      { HF_HUB_CACHE: rig.cache, HF_HOME: "/nowhere" },
      { HF_HOME: dirname(rig.cache), XDG_CACHE_HOME: "/nowhere" },
    ];
    for (const place of places) {
      assert.equal(await rig.resolve(repo, { environment: { HF_HUB_OFFLINE: "true", ...place } }), path);
    }
    const elsewhere = { HF_HUB_OFFLINE: "yes", HF_HUB_CACHE: "/nowhere" };
    assert.equal(await rig.resolve(repo, { environment: elsewhere, hfCache: rig.cache }), path);
  });

  it("reports what it lacks in offline mode", async () => {
    fillAsPython(file, bytes);
    await rig.assertRefused(
      `${repo}:Q4_0`,
      "model_source_unreachable",
      /HF_HUB_OFFLINE\), and in the cache .*no model "Q4_0".*"tiny-Q8_0\.gguf"$/,
      offline,
    );
    await rig.assertRefused(
      "acme/other",
      "model_source_unreachable",
      /has no "acme\/other" at revision "main"$/,
      offline,
    );
    rmSync(join(folder, "blobs"), { recursive: true });
    await rig.assertRefused(repo, "model_source_unreachable", /there is no GGUF model/, offline);
  });

  it("is used, with a notice, when the hub fails", async () => {
    const path = fillAsPython(file, bytes);
    hub.fault = () => ({ status: 503 });
    assert.equal(await rig.resolve(), path);
    assert.equal(hub.requests.length, 1);
    assert.match(rig.notices.join(), /^"acme\/tiny-GGUF" is used as the cache has it: the hub .* answered 503/);
  });

  it("is used, with a notice, when a newer copy cannot be fetched", async () => {
    rig.put({ [file]: bytes });
    const path = await rig.resolve();
    rig.put({ [file]: modelBytes(2) });
    hub.commit = "d".repeat(40);
    hub.fault = ({ host }) => (host === "cdn" ? { status: 403 } : null);
    assert.equal(await rig.resolve(), path);
    assert.match(rig.notices.join(), /^"acme\/tiny-GGUF" is used as the cache has it: the hub .* answered 403/);
    hub.fault = () => null;
    await rig.assertFetched(modelBytes(2));
  });
});
