// Files in an S3-compatible bucket: the bucket client, the file store that uses it, and two replicas.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileLimits, type StoredFile } from "../../../actors/api/agent/files.ts";
import { FileContents } from "../../../actors/state/file-contents.ts";
import { FileStore } from "../../../actors/state/file-store.ts";
import { Bucket } from "../../../runtime/store/bucket/bucket.ts";
import { MemoryTables } from "../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../runtime/store/table-store.ts";
import { type RedisServer, startRedis } from "../../fixtures/store/redis.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { post, type Replica, startReplica } from "./rig.ts";
import { bucketKeys, type S3Server, s3Keys, startS3 } from "./s3.ts";

const MEGABYTE = 2 ** 20;

describe("files in a bucket", { timeout: 180_000 }, () => {
  let s3: S3Server;
  let folder: string;
  before(async () => {
    s3 = await startS3();
    folder = mkdtempSync(join(tmpdir(), "troupe-bucket-"));
  });
  after(async () => {
    await s3.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const names = async (bucket: Bucket): Promise<string[]> => {
    const all: string[] = [];
    for await (const { name } of bucket.list()) all.push(name);
    return all;
  };

  it("are stored, read and removed, also if requests fail for a while", async () => {
    const bucket = await Bucket.open(s3.url, bucketKeys);
    const [from, to] = [join(folder, "from"), join(folder, "to")];
    const bytes = randomBytes(3 * MEGABYTE);
    writeFileSync(from, bytes);
    s3.faults.push(503, 500);
    await bucket.put("file-one", from, bytes.length);
    s3.faults.push(503, "cut");
    assert.equal(await bucket.get("file-one", to, bytes.length), true);
    assert.ok(readFileSync(to).equals(bytes));
    assert.deepEqual(await names(bucket), ["file-one"]);
    assert.equal(await bucket.get("file-none", join(folder, "none"), 1), false);
    // An object of the wrong size is not the stored file.
    assert.equal(await bucket.get("file-one", join(folder, "none"), bytes.length + 1), false);
    await assert.rejects(bucket.get("file-one", join(folder, "none"), 1000), { code: "storage_unavailable" });
    assert.equal(existsSync(join(folder, "none")), false);
    s3.faults.push(503, 503, 503, 503);
    await assert.rejects(bucket.put("file-two", from, bytes.length), (error: Error) => {
      assert.match(error.message, /the bucket at .* cannot be read or written now: it answers 503/);
      assert.doesNotMatch(error.message, /a-secret-key/);
      return true;
    });
    const count = s3.requests();
    s3.faults.push(403);
    await assert.rejects(bucket.put("file-two", from, bytes.length), { code: "storage_unavailable", message: /403/ });
    assert.equal(s3.requests(), count + 1, "a refusal is not repeated");
    await bucket.remove("file-one");
    assert.deepEqual(await names(bucket), []);
    const other = s3.url.replace("s3://files/", "s3://no-such-bucket/");
    await assert.rejects(Bucket.open(other, bucketKeys), { code: "config_invalid", param: "files_url" });
  });

  it("are removed with their metadata, and swept if they have none; the oldest go when files_disk is full", async () => {
    let now = Date.now();
    const bucket = await Bucket.open(s3.url, bucketKeys);
    const contents = new FileContents(join(folder, "contents"));
    await contents.open();
    const limits = { maxEntries: 100, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 20, maxAgeMs: fileLimits.lifetimeMs };
    const store = new TableStore<StoredFile>(new MemoryTables(), limits, () => now);
    const common = { store, contents, maxContentBytes: 2.5 * MEGABYTE, extractText: async () => null, now: () => now };
    const files = new FileStore({ ...common, sharesContents: true, bucket });
    const add = async (id: string): Promise<StoredFile> => {
      writeFileSync(join(contents.stagingFolder, id), randomBytes(MEGABYTE));
      const source = { tool: "user_upload", round: 0, turn: 0 };
      const about = { name: "a.bin", format: null, purpose: "user_data", session: null, client: "c" } as const;
      now += 1000;
      return await files.add({ ...about, id, source, staged: id, failure: null });
    };
    for (const id of ["file-1", "file-2"]) await add(id);
    assert.deepEqual(await names(bucket), ["file-1", "file-2"]);
    await contents.remove("file-2");
    assert.equal((await files.content("file-2"))?.kind, "content", "it is copied from the bucket");
    await add("file-3");
    assert.deepEqual(await names(bucket), ["file-2", "file-3"]);
    assert.equal(await files.find("file-1"), null);
    assert.equal(await files.delete("file-2"), true);
    assert.deepEqual(await names(bucket), ["file-3"]);
    // Object of a server that crashed before it stored the metadata, and object of another program.
    const path = contents.pathOf("file-3");
    await bucket.put("file-orphan", path, MEGABYTE);
    await bucket.put("notes", path, MEGABYTE);
    await files.sweep();
    assert.deepEqual(await names(bucket), ["file-3", "file-orphan", "notes"]);
    now += 15 * 60_000;
    await files.sweep();
    assert.deepEqual(await names(bucket), ["file-3", "notes"]);
    now += fileLimits.lifetimeMs;
    await files.sweep();
    assert.deepEqual(await names(bucket), ["notes"]);
    await bucket.remove("notes");
  });

  it("are shared by replicas, and report an error while the bucket fails", { skip: lacksRedis }, async () => {
    const redis: RedisServer = await startRedis();
    const start = (index: number): Promise<Replica> =>
      startReplica(redis.url, 10_000, join(folder, `replica-${index}`), false, { FILES_URL: s3.url, ...s3Keys });
    const [one, other] = (await Promise.all([start(0), start(1)])) as [Replica, Replica];
    try {
      const bytes = randomBytes(5 * MEGABYTE);
      const upload = (): Promise<Response> => {
        const form = new FormData();
        form.set("purpose", "user_data");
        form.set("file", new Blob([bytes]), "large.bin");
        return fetch(`${one.url}/v1/files`, { method: "POST", body: form });
      };
      const { id } = (await (await upload()).json()) as { id: string };
      const read = await fetch(`${other.url}/v1/files/${id}/content`);
      assert.ok(Buffer.from(await read.arrayBuffer()).equals(bytes));
      const bucket = await Bucket.open(s3.url, bucketKeys);
      assert.deepEqual(await names(bucket), [id]);
      s3.faults.push(503, 503, 503, 503);
      const refused = await upload();
      assert.equal(refused.status, 503);
      assert.equal(((await refused.json()) as { error: { code: string } }).error.code, "storage_unavailable");
      const chat = { messages: [{ role: "user", content: "words 1 wait 0" }] };
      assert.equal((await post(`${one.url}/v1/chat/completions`, chat)).status, 200);
      assert.equal((await fetch(`${other.url}/v1/files/${id}`, { method: "DELETE" })).status, 200);
      assert.deepEqual(await names(bucket), []);
      assert.equal((await fetch(`${one.url}/v1/files/${id}/content`)).status, 404);
    } finally {
      for (const { process: child } of [one, other]) child.kill("SIGKILL");
      await redis.stop();
    }
  });
});
