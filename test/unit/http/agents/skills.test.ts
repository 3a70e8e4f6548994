import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { deflateRawSync } from "node:zlib";
import Anthropic, { toFile as anthropicFile } from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { loadableEdges, startServer, type TestServer } from "../../../fixtures/http-server.ts";
import { skillText, type ZipEntry, zip } from "../../../fixtures/skills/zip-builder.ts";
import { SkillRig } from "../../actors/state/skill-rig.ts";
import { openStores, type TestStores } from "./stores.ts";

const uploader = fileURLToPath(new URL("../../../fixtures/overload/many-skill-uploads.js", import.meta.url));
const archive = (name: string, description?: string) =>
  zip([
    { name: `${name}/SKILL.md`, content: skillText(name, description) },
    { name: `${name}/run.py`, content: "print(1)" },
  ]);

type Body = Record<string, unknown> & { error: { code: string; message: string; param: string | null; type: string } };

for (const edge of loadableEdges()) {
  describe(`skills on the ${edge} edge`, () => {
    let stores: TestStores;
    let rig: SkillRig;
    let server: TestServer;
    before(async () => {
      stores = await openStores();
      rig = await SkillRig.open(true);
      server = await startServer(edge, { parts: { files: stores.files, skills: rig.store } });
    });
    after(async () => {
      await server.stop();
      rig.dispose();
      stores.dispose();
    });

    const get = async (path: string, headers: Record<string, string> = {}): Promise<readonly [number, Body]> => {
      const reply = await fetch(`${server.url}${path}`, { headers });
      return [reply.status, (await reply.json()) as Body];
    };
    const upload = async (
      parts: readonly (readonly [field: string, content: string | Uint8Array<ArrayBuffer>, name?: string])[],
      path = "/v1/skills",
      headers: Record<string, string> = {},
    ): Promise<readonly [number, Body]> => {
      const form = new FormData();
      for (const [field, content, name] of parts) {
        if (name === undefined) form.append(field, content as string);
        else form.append(field, new Blob([content]), name);
      }
      const reply = await fetch(`${server.url}${path}`, { method: "POST", body: form, headers });
      return [reply.status, (await reply.json()) as Body];
    };

    it("work with OpenAI's client", async () => {
      const { skills } = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
      const made = await skills.create({ files: await toFile(Buffer.from(archive("one", "First.")), "one.zip") });
      assert.match(made.id, /^skill_[0-9a-f]+$/);
      assert.deepEqual([made.object, made.name, made.description, made.latest_version], ["skill", "one", "First.", 1]);
      const second = await skills.versions.create(made.id, {
        files: [
          await toFile(Buffer.from(skillText("one", "Second.")), "top/SKILL.md"),
          await toFile(Buffer.from("x"), "top/data.txt"),
        ],
      });
      assert.deepEqual(
        [second.id, second.object, second.skill_id, second.version, second.description],
        [`${made.id}_v2`, "skill.version", made.id, 2, "Second."],
      );
      assert.equal((await skills.retrieve(made.id)).latest_version, 2);
      const listed: unknown[] = [];
      for await (const version of skills.versions.list(made.id, { limit: 1 })) listed.push(version.version);
      assert.deepEqual(listed, [2, 1]);
      assert.equal((await skills.versions.retrieve("1", { skill_id: made.id })).description, "First.");
      assert.equal((await skills.versions.retrieve("latest", { skill_id: made.id })).version, 2);
      const content = await skills.content.retrieve(made.id);
      assert.equal(content.headers.get("content-type"), "application/zip");
      assert.equal(content.headers.get("content-disposition"), 'attachment; filename="one.zip"');
      const again = await skills.create({ files: await toFile(await content.arrayBuffer(), "again.zip") });
      assert.equal(again.description, "Second.");
      const old = await skills.versions.content.retrieve("1", { skill_id: made.id });
      assert.equal(
        Buffer.from(await old.arrayBuffer())
          .subarray(0, 4)
          .toString("latin1"),
        "PK\x03\x04",
      );
      assert.deepEqual(await skills.versions.delete("1", { skill_id: made.id }), {
        id: `${made.id}_v1`,
        object: "skill.version.deleted",
        deleted: true,
        version: 1,
      });
      const ids: string[] = [];
      for await (const skill of skills.list({ limit: 1, order: "asc" })) ids.push(skill.id);
      assert.deepEqual(ids, [made.id, again.id]);
      for (const id of ids) assert.deepEqual(await skills.delete(id), { id, object: "skill.deleted", deleted: true });
      await assert.rejects(skills.retrieve(made.id), { status: 404, code: "skill_not_found" });
      assert.deepEqual(rig.onDisk(), { content: [], staging: [] });
    });

    it("work with Anthropic's client", async () => {
      const { skills } = new Anthropic({ baseURL: server.url, apiKey: "none" }).beta;
      const made = await skills.create({
        display_name: "My skill",
        files: [
          await anthropicFile(Buffer.from(skillText("one", "First.")), "one/SKILL.md"),
          await anthropicFile(Buffer.from("print(1)"), "one/scripts/run.py"),
        ],
      });
      assert.deepEqual([made.type, made.display_name, made.latest_version_id], ["skill", "My skill", `${made.id}_v1`]);
      const version = await skills.versions.create(made.id, {
        files: [await anthropicFile(Buffer.from(archive("one", "Second.")), "one.zip")],
      });
      assert.deepEqual([version.type, version.id, version.name], ["skill_version", `${made.id}_v2`, "one"]);
      const ids: string[] = [];
      for await (const one of skills.versions.list(made.id, { limit: 1 })) ids.push(one.id);
      assert.deepEqual(ids, [`${made.id}_v2`, `${made.id}_v1`]);
      const found = await skills.versions.retrieve(`${made.id}_v1`, { skill_id: made.id });
      assert.equal(found.description, "First.");
      const bytes = await (await skills.versions.download(found.id, { skill_id: made.id })).arrayBuffer();
      assert.ok(Buffer.from(bytes).includes("one/scripts/run.py"), "the paths of the upload are kept");
      assert.deepEqual(await skills.versions.delete(found.id, { skill_id: made.id }), {
        id: found.id,
        type: "skill_version_deleted",
      });
      await assert.rejects(skills.versions.delete(version.id, { skill_id: made.id }), { status: 409 });
      for await (const one of skills.list({ source: "custom" })) assert.equal(one.id, made.id);
      assert.deepEqual((await skills.list({ source: "anthropic" })).data, []);
      assert.deepEqual(await skills.delete(made.id), { id: made.id, type: "skill_deleted" });
      await assert.rejects(skills.retrieve(made.id), { status: 404 });
      await assert.rejects(skills.create({ files: [await anthropicFile(Buffer.from("x"), "a.zip")] }), { status: 422 });
    });

    it("have the shape of the contract, chosen by header or parameter", async () => {
      const [, { id }] = await upload([["file", archive("one"), "one.zip"]]);
      const [status, list] = await get("/v1/skills");
      assert.deepEqual([status, Object.keys(list)], [200, ["object", "data", "first_id", "last_id", "has_more"]]);
      const keys = ["id", "object", "created_at", "name", "description", "latest_version", "default_version"];
      assert.deepEqual(Object.keys((list.data as object[])[0] ?? {}), keys);
      for (const [path, headers] of [
        ["/v1/skills?source=custom", {}],
        ["/v1/skills", { "alt-version": "1" }],
        ["/v1/skills", { "alt-beta": "skills" }],
        ["/v1/skills", { "anthropic-beta": "skills" }],
      ] as const) {
        const [, { data, ...rest }] = await get(path, headers);
        assert.deepEqual(rest, { has_more: false, next_page: null });
        const [skill] = data as Record<string, unknown>[];
        assert.deepEqual([skill?.id, skill?.type, skill?.latest_version], [id, "skill", "1"]);
        assert.deepEqual([skill?.source, skill?.display_title], ["custom", null]);
        assert.match(String(skill?.created_at), /^\d{4}-\d\d-\d\dT.*Z$/);
      }
      await fetch(`${server.url}/v1/skills/${id}`, { method: "DELETE" });
    });

    const text = skillText("one");
    const bad: readonly (readonly [what: string, parts: Parameters<typeof upload>[0], param: string])[] = [
      ["without a file", [["display_title", "x"]], "files"],
      ["without SKILL.md", [["files", "x", "top/README.md"]], "files"],
      [
        "with a path out of the folder",
        [
          ["files", text, "top/SKILL.md"],
          ["files", "x", "../../evil"],
        ],
        "files",
      ],
      [
        "with an absolute path",
        [
          ["files", text, "top/SKILL.md"],
          ["files", "x", "/etc/passwd"],
        ],
        "files",
      ],
      [
        "with a path twice",
        [
          ["files", text, "top/SKILL.md"],
          ["files", "x", "top/SKILL.md"],
        ],
        "files",
      ],
      [
        "with a device name",
        [
          ["files", text, "top/SKILL.md"],
          ["files", "x", "top/aux.txt"],
        ],
        "files",
      ],
      [
        "with two folders",
        [
          ["files", text, "top/SKILL.md"],
          ["files", "x", "other/a"],
        ],
        "files",
      ],
      [
        "with an archive among files",
        [
          ["files", archive("one"), "a.zip"],
          ["files", "x", "b/c"],
        ],
        "files",
      ],
      ["with a bad name", [["files", skillText("../x"), "top/SKILL.md"]], "files"],
      ["with bad YAML", [["files", "---\nname: a\ndescription: b: c\n---\n", "SKILL.md"]], "files"],
      ["with a file in another field", [["data", text, "SKILL.md"]], "data"],
      [
        "with an unknown field",
        [
          ["files", text, "SKILL.md"],
          ["extra", "x"],
        ],
        "extra",
      ],
      [
        "with a title of two lines",
        [
          ["files", text, "SKILL.md"],
          ["display_title", "a\nb"],
        ],
        "display_title",
      ],
      ["that is no archive", [["files", "hello", "a.zip"]], "files"],
      ["of 501 files", Array.from({ length: 501 }, (_, i) => ["files", "x", `top/${i}`] as const), "files"],
    ];
    for (const [what, parts, param] of bad) {
      it(`are refused ${what}`, async () => {
        const [status, { error }] = await upload(parts);
        assert.deepEqual([status, error.code, error.param], [422, "invalid_value", param], error.message);
        assert.equal(error.type, "invalid_request_error");
        assert.deepEqual(rig.onDisk(), { content: [], staging: [] });
      });
    }

    it("answer 404 for unknown skills and versions, and 422 for a bad version", async () => {
      const [, { id }] = await upload([["files[]", archive("one"), "one.zip"]]);
      for (const path of [
        "/v1/skills/none",
        "/v1/skills/none/versions",
        "/v1/skills/none/content",
        "/v1/skills/..%2f..",
      ]) {
        const [status, { error }] = await get(path);
        assert.deepEqual([status, error.code], [404, "skill_not_found"], path);
      }
      for (const version of ["2", "0", "-1", "1e0", "0x1", "skill_0_v1", "..%2f1"]) {
        const [status] = await get(`/v1/skills/${id}/versions/${version}`);
        assert.equal(status, 404, version);
      }
      assert.equal((await upload([["files", archive("one"), "a.zip"]], "/v1/skills/none/versions"))[0], 404);
      const [status, { error }] = await upload([["files", "x", "a.zip"]], `/v1/skills/${id}/versions`);
      assert.deepEqual([status, error.code], [422, "invalid_value"]);
      const [refused] = await upload(
        [
          ["files", archive("one"), "a.zip"],
          ["default", "false"],
        ],
        `/v1/skills/${id}/versions`,
      );
      assert.equal(refused, 422);
      assert.equal((await get("/v1/skills?limit=0"))[0], 400);
      assert.equal((await get("/v1/skills?after=none"))[0], 400);
      await fetch(`${server.url}/v1/skills/${id}`, { method: "DELETE" });
    });

    it("of a folder are served, and not changed", async () => {
      rig.write("own/SKILL.md", skillText("own"));
      const [, list] = await get("/v1/skills");
      const [skill] = list.data as { id: string; name: string }[];
      assert.equal(skill?.name, "own");
      const path = `${server.url}/v1/skills/${skill.id}`;
      assert.equal((await fetch(`${path}/content`)).status, 200);
      assert.equal((await fetch(path, { method: "DELETE" })).status, 400);
      rmSync(join(rig.root, "own", "own"), { recursive: true });
      assert.equal((await fetch(path)).status, 404);
    });

    it("need little memory: bombs, and large archives, many at once", async (t) => {
      const folder = mkdtempSync(join(tmpdir(), "troupe-bombs-"));
      const main: ZipEntry = { name: "a/SKILL.md", content: skillText("a") };
      const noise = Buffer.alloc(20e6, 1).map(() => Math.random() * 256);
      const zeros = (count: number, bytes: number, size: number): Uint8Array => {
        const packed = deflateRawSync(new Uint8Array(bytes));
        return zip([main, ...Array.from({ length: count }, (_, i) => ({ name: `a/${i}`, packed, size }))]);
      };
      const archives: Readonly<Record<string, readonly [status: number, Uint8Array]>> = {
        large: [200, zip([main, { name: "a/b", content: noise, method: 0 }, { name: "a/c", content: noise }])],
        ratio: [422, zeros(1, 90e6, 90e6)],
        lie: [422, zeros(16, 90e6, 1000)],
        many: [422, zeros(400, 10e6, 10e6)],
        shared: [422, zip([main, ...Array.from({ length: 400 }, (_, i) => ({ name: `a/${i}`, offset: 0 }))])],
      };
      const paths = Object.entries(archives).map(([name, [, bytes]]) => {
        const path = join(folder, `${name}.zip`);
        writeFileSync(path, bytes);
        return path;
      });
      global.gc?.();
      const idle = process.memoryUsage().rss;
      let peak = 0;
      const timer = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage().rss);
      }, 10);
      // The client runs in a separate process, so that its buffers do not count as server memory.
      const { stdout } = await promisify(execFile)(process.execPath, [uploader, server.url, "2", ...paths]);
      clearInterval(timer);
      const expected = Object.values(archives).flatMap(([status]) => [status, status]);
      assert.deepEqual(JSON.parse(stdout), expected);
      const used = Math.round((peak - idle) / 1e6);
      t.diagnostic(`${used} MB above idle`);
      assert.ok(used <= 100, `${used} MB above idle`);
      rmSync(folder, { recursive: true });
      for (const { id } of await rig.store.list()) await rig.store.delete(id);
      await sleep(50);
      assert.deepEqual(rig.onDisk(), { content: [], staging: [] });
      assert.deepEqual(stores.onDisk(), []);
    });
  });
}
