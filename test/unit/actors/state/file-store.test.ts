import assert from "node:assert/strict";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import { type FileToStore, fileLimits, type StoredFile } from "../../../../actors/api/agent/files.ts";
import { FileContents } from "../../../../actors/state/file-contents.ts";
import { FileStore } from "../../../../actors/state/file-store.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

const start = 1_700_000_000_000;
const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

class Rig {
  now = start;
  readonly contents: FileContents;
  readonly files: FileStore;
  #count = 0;

  private constructor(maxFiles: number, maxContentBytes: number) {
    const folder = mkdtempSync(join(tmpdir(), "troupe-files-test-"));
    folders.push(folder);
    this.contents = new FileContents(folder);
    const limits = { maxEntries: maxFiles, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 20, maxAgeMs: fileLimits.lifetimeMs };
    const store = new TableStore<StoredFile>(new MemoryTables(), limits, () => this.now);
    const extractText = async (_path: string, type: string) => (type === "application/pdf" ? "text of a PDF" : null);
    this.files = new FileStore({ store, contents: this.contents, maxContentBytes, extractText, now: () => this.now });
  }

  static async open({ maxFiles = 4096, maxContentBytes = 2 ** 30 } = {}): Promise<Rig> {
    const rig = new Rig(maxFiles, maxContentBytes);
    await rig.contents.open();
    return rig;
  }

  stage(content: string | Uint8Array): string {
    const staged = `staged-${this.#count++}`;
    writeFileSync(join(this.files.stagingFolder, staged), content);
    return staged;
  }

  async add(content: string | Uint8Array, given: Partial<FileToStore> = {}): Promise<StoredFile> {
    const source = { tool: "user_upload", round: 0, turn: 0 };
    return await this.files.add({
      id: null,
      name: "a.txt",
      format: null,
      purpose: "user_data",
      source,
      session: null,
      client: "c",
      staged: this.stage(content),
      failure: null,
      ...given,
    });
  }

  async read(id: string): Promise<string> {
    const found = await this.files.content(id);
    assert.equal(found?.kind, "content");
    return readFileSync((found as { readonly path: string }).path, "utf8");
  }

  /** Names of the files on disk. */
  get onDisk(): readonly string[] {
    const folder = join(this.files.stagingFolder, "..");
    return ["content", "staging"].flatMap((name) => readdirSync(join(folder, name)));
  }
}

describe("the file store", () => {
  it("keeps the content, and describes a text with its beginning", async () => {
    const rig = await Rig.open();
    const text = `é${"x".repeat(5000)}`;
    const file = await rig.add(text, { name: "notes.md" });
    assert.match(file.id, /^file-[0-9a-f]{32}$/);
    assert.deepEqual(
      { ...file, id: "", preview: file.preview?.length },
      {
        id: "",
        name: "notes.md",
        format: "md",
        mimeType: "text/markdown",
        bytes: 5002,
        createdAt: start / 1000,
        purpose: "user_data",
        source: { tool: "user_upload", round: 0, turn: 0 },
        session: null,
        isText: true,
        preview: 4096,
        failure: null,
      },
    );
    assert.equal(await rig.read(file.id), text);
    assert.deepEqual(rig.onDisk, [file.id]);
  });

  it("knows binary files by their bytes, whatever their name says", async () => {
    const rig = await Rig.open();
    const png = Buffer.from("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489", "hex");
    const file = await rig.add(png, { name: "a.txt" });
    assert.deepEqual([file.mimeType, file.isText, file.preview], ["image/png", false, null]);
    assert.equal((await rig.add(Uint8Array.of(1, 0xfe, 0), { name: "x.bin" })).mimeType, "application/octet-stream");
    assert.equal((await rig.add("a\0b", { name: "x.txt" })).isText, false);
  });

  it("takes the preview of a document from its text", async () => {
    const rig = await Rig.open();
    const file = await rig.add(Buffer.from("%PDF-1.7\n\xff\xfe", "latin1"), { name: "a.pdf" });
    assert.deepEqual([file.mimeType, file.preview, file.isText], ["application/pdf", "text of a PDF", false]);
  });

  it("hides a file exactly 30 minutes after its creation", async () => {
    const rig = await Rig.open();
    rig.now = start + 999;
    const { id } = await rig.add("x");
    rig.now = start + 999 + fileLimits.lifetimeMs - 1;
    assert.notEqual(await rig.files.find(id), null);
    rig.now++;
    assert.equal(await rig.files.find(id), null);
    assert.equal(await rig.files.content(id), null);
    assert.deepEqual((await rig.files.list({ session: null, after: null, limit: 10 })).files, []);
  });

  it("keeps the newest files when there are too many", async () => {
    const rig = await Rig.open({ maxFiles: 3 });
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      rig.now++;
      ids.push((await rig.add(`${i}`, { client: i < 3 ? "one" : "other" })).id);
    }
    const { files } = await rig.files.list({ session: null, after: null, limit: 10 });
    assert.deepEqual(
      files.map(({ id }) => id),
      ids.slice(2).reverse(),
    );
  });

  it("drops the oldest contents beyond the size limit, and says that they are gone", async () => {
    const rig = await Rig.open({ maxContentBytes: 250 });
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) {
      rig.now++;
      ids.push((await rig.add("x".repeat(100))).id);
    }
    const kinds = await Promise.all(ids.map(async (id) => (await rig.files.content(id))?.kind));
    assert.deepEqual(kinds, ["elided", "content", "content"]);
  });

  it("keeps the reason of a file that could not be produced", async () => {
    const rig = await Rig.open();
    const failure = { code: "not_produced", message: "no such file" };
    const file = await rig.add("", {
      id: "file_a_r0_0",
      staged: null,
      failure,
      purpose: "agent_output",
      name: "out/a.csv",
    });
    assert.deepEqual([file.failure, file.name, file.format], [failure, "out/a.csv", "csv"]);
    assert.equal((await rig.files.content("file_a_r0_0"))?.kind, "failed");
  });

  it("deletes the content with the file", async () => {
    const rig = await Rig.open();
    const { id } = await rig.add("x");
    assert.deepEqual([await rig.files.delete(id), await rig.files.delete(id), rig.onDisk], [true, false, []]);
  });

  it("lists the files of a session page by page, the newest first", async () => {
    const rig = await Rig.open();
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      rig.now++;
      ids.unshift((await rig.add(`${i}`, { session: "s" })).id);
      await rig.add("other", { session: "t" });
    }
    const first = await rig.files.list({ session: "s", after: null, limit: 3 });
    const second = await rig.files.list({ session: "s", after: first.files[2]!.id, limit: 3 });
    assert.deepEqual(
      [...first.files, ...second.files].map(({ id }) => id),
      ids,
    );
    assert.deepEqual([first.hasMore, second.hasMore], [true, false]);
  });

  it("refuses names that could lead elsewhere, and leaves nothing behind", async () => {
    const rig = await Rig.open();
    for (const name of ["../a", "a/b", "", "a\u202eb", "CON", "x\0"]) {
      await assert.rejects(rig.add("x", { name }), { code: "invalid_value" }, name);
    }
    await assert.rejects(rig.add("x", { id: "../x" }), { code: "invalid_value" });
    assert.deepEqual(rig.onDisk, []);
  });

  it("refuses a staged file that is a link, and one that is too large", async () => {
    const rig = await Rig.open();
    symlinkSync("/etc/hostname", join(rig.files.stagingFolder, "link"));
    await assert.rejects(rig.add("", { staged: "link" }), { code: "storage_unavailable" });
    const tooLarge = Buffer.alloc(fileLimits.maxFileBytes + 1);
    await assert.rejects(rig.add(tooLarge), { code: "invalid_value" });
    assert.equal(rig.onDisk.length, 1, "the refused file is gone; the sweep removes the first one's staged name");
  });

  it("sweeps contents without metadata and staged files that nobody stores", async () => {
    const rig = await Rig.open();
    const { id } = await rig.add("x");
    writeFileSync(join(rig.files.stagingFolder, "..", "content", "file-orphan"), "y");
    rig.stage("z");
    rig.now = Date.now();
    await rig.files.sweep();
    assert.equal(existsSync(rig.contents.pathOf("file-orphan")), true, "it may be about to be stored");
    rig.now = Date.now() + 2 * 3_600_000;
    utimesSync(rig.contents.pathOf("file-orphan"), 1, 1);
    await rig.files.sweep();
    assert.equal(rig.onDisk.includes("file-orphan"), false);
    assert.equal(
      rig.onDisk.some((name) => name.startsWith("staged-")),
      false,
    );
    assert.equal(rig.onDisk.includes(id), false, "its file has expired meanwhile");
  });
});
