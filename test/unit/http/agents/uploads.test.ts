import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { connect } from "node:net";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { deflateSync } from "node:zlib";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { loadableEdges, startServer, type TestServer } from "../../../fixtures/http-server.ts";
import { openStores, type TestStores } from "./stores.ts";

const boundary = "----cut";
const uploader = fileURLToPath(new URL("../../../fixtures/overload/many-uploads.js", import.meta.url));

interface Part {
  readonly head: string;
  readonly body: string | Uint8Array;
}

function form(parts: readonly Part[], end = `--${boundary}--\r\n`): Uint8Array<ArrayBuffer> {
  const pieces = parts.flatMap(({ head, body }) => [`--${boundary}\r\n${head}\r\n\r\n`, body, "\r\n"]);
  return new Uint8Array(Buffer.concat([...pieces, end].map((piece) => Buffer.from(piece))));
}

const purpose: Part = { head: 'content-disposition: form-data; name="purpose"', body: "user_data" };
const filePart = (name: string, body: string | Uint8Array = "x"): Part => ({
  head: `content-disposition: form-data; name="file"; filename="${name}"\r\ncontent-type: text/plain`,
  body,
});

for (const edge of loadableEdges()) {
  describe(`uploads on the ${edge} edge`, () => {
    let stores: TestStores;
    let server: TestServer;
    before(async () => {
      stores = await openStores();
      server = await startServer(edge, { parts: stores });
    });
    after(async () => {
      await server.stop();
      stores.dispose();
    });

    const upload = (body: Uint8Array<ArrayBuffer> | FormData, headers: Record<string, string> = {}) =>
      fetch(`${server.url}/v1/files`, {
        method: "POST",
        headers:
          body instanceof FormData
            ? headers
            : { "content-type": `multipart/form-data; boundary=${boundary}`, ...headers },
        body,
      });

    it("work with OpenAI's client: upload, list, metadata, content, deletion", async () => {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
      const sent = await client.files.create({
        file: await toFile(Buffer.from("a,b\n1,2\n"), "täble.csv"),
        purpose: "user_data",
      });
      assert.match(sent.id, /^file-/);
      assert.deepEqual([sent.filename, sent.bytes, sent.purpose, sent.object], ["täble.csv", 8, "user_data", "file"]);
      assert.deepEqual(
        (await client.files.list()).data.map(({ id }) => id),
        [sent.id],
      );
      assert.equal((await client.files.retrieve(sent.id)).filename, "täble.csv");
      const content = await client.files.content(sent.id);
      assert.equal(await content.text(), "a,b\n1,2\n");
      assert.equal(content.headers.get("content-type"), "text/csv; charset=utf-8");
      assert.match(
        content.headers.get("content-disposition") ?? "",
        /^inline; filename="t_ble.csv"; filename\*=UTF-8''t%C3%A4ble\.csv$/,
      );
      assert.deepEqual(await client.files.delete(sent.id), { id: sent.id, object: "file", deleted: true });
      await assert.rejects(client.files.retrieve(sent.id), { status: 404, code: "file_not_found" });
      assert.deepEqual(stores.onDisk(), []);
    });

    it("work with Anthropic's client", async () => {
      const client = new Anthropic({ baseURL: server.url, apiKey: "none" });
      const sent = await client.beta.files.upload({ file: await toFile(Buffer.from("hello"), "a.txt") });
      assert.deepEqual([sent.type, sent.filename, sent.size_bytes], ["file", "a.txt", 5]);
      assert.equal((await client.beta.files.retrieveMetadata(sent.id)).mime_type, "text/plain");
      assert.equal((await client.beta.files.delete(sent.id)).type, "file_deleted");
    });

    it("send a page or a picture with code as an attachment that no browser runs", async () => {
      for (const [name, body] of [
        ["a.html", "<script>alert(1)</script>"],
        ["a.svg", "<svg onload='alert(1)'/>"],
      ] as const) {
        const { id } = (await (await upload(form([purpose, filePart(name, body)]))).json()) as { id: string };
        const { headers } = await fetch(`${server.url}/v1/files/${id}/content`);
        assert.match(headers.get("content-disposition") ?? "", /^attachment;/);
        assert.equal(headers.get("x-content-type-options"), "nosniff");
        assert.match(headers.get("content-security-policy") ?? "", /sandbox/);
        await fetch(`${server.url}/v1/files/${id}`, { method: "DELETE" });
      }
    });

    const names = [
      "../../etc/passwd",
      "/etc/passwd",
      "..",
      ".",
      "",
      "a/b",
      "a\\b",
      "CON",
      "nul.txt",
      "COM1",
      "a\u202egpj.exe",
      "a\u200bb",
      "a\u0000b",
      "trailing.",
      "trailing ",
      "a:b",
      "x".repeat(256),
      "x".repeat(60_000),
    ];
    for (const name of names) {
      it(`are refused for the name ${JSON.stringify(name.slice(0, 30))}`, async () => {
        const reply = await upload(form([purpose, filePart(name)]));
        assert.equal(reply.status, 400, await reply.clone().text());
        assert.equal(((await reply.json()) as { error: { code: string } }).error.code, "invalid_value");
      });
    }

    const many = Array.from(
      { length: 100_000 },
      (_, i): Part => ({ head: `content-disposition: form-data; name="f${i}"`, body: "" }),
    );
    const bad: readonly (readonly [string, () => Uint8Array<ArrayBuffer>, number, Record<string, string>?])[] = [
      ["without a file", () => form([purpose]), 400],
      ["without a purpose", () => form([filePart("a.txt")]), 400],
      ["with an unknown purpose", () => form([{ ...purpose, body: "evil" }, filePart("a.txt")]), 400],
      ["with two files", () => form([purpose, filePart("a.txt"), filePart("b.txt")]), 400],
      ["with a field twice", () => form([purpose, purpose, filePart("a.txt")]), 400],
      [
        "with the file in another field",
        () =>
          form([
            purpose,
            { ...filePart("a.txt"), head: 'content-disposition: form-data; name="data"; filename="a.txt"' },
          ]),
        400,
      ],
      ["with 100,000 parts", () => form(many), 400],
      ["with a field of 64 KiB", () => form([{ ...purpose, body: "x".repeat(65_536) }, filePart("a.txt")]), 400],
      [
        "with part headers of 1 MiB",
        () => form([{ head: `x-a: ${"y".repeat(2 ** 20)}`, body: "" }, filePart("a.txt")]),
        400,
      ],
      ["that ends within the file", () => form([purpose, filePart("a.txt")], ""), 400],
      ["that is not a form", () => new Uint8Array(Buffer.from("hello")), 400],
      [
        "with a form in the form",
        () =>
          form([
            purpose,
            {
              head: 'content-disposition: form-data; name="file"\r\ncontent-type: multipart/mixed; boundary=in',
              body: "--in\r\n\r\nx\r\n--in--",
            },
          ]),
        400,
      ],
      ["of another type", () => form([purpose, filePart("a.txt")]), 415, { "content-type": "application/json" }],
      ["without a boundary", () => form([purpose, filePart("a.txt")]), 415, { "content-type": "multipart/form-data" }],
      [
        "with compressed bytes",
        () => new Uint8Array(deflateSync(form([purpose, filePart("a.txt", "x".repeat(10_000))]))),
        400,
        { "content-encoding": "deflate" },
      ],
      ["above 50 MiB", () => new Uint8Array(50 * 2 ** 20 + 1), 413],
    ];
    for (const [what, body, status, headers] of bad) {
      it(`are refused ${what}`, async () => {
        const reply = await upload(body(), headers).catch(() => null);
        // A server that rejects a body early may close the connection before the client has sent everything.
        if (reply !== null) {
          assert.equal(reply.status, status, await reply.clone().text());
          const { error } = (await reply.json()) as { error: { message: string; param: string | null } };
          assert.match(error.message, /expected/);
        } else assert.equal(status, 413);
      });
    }

    /** Waits, because the server removes the files of a failed upload only after its response. */
    const assertNothingOnDisk = async () => {
      for (const limit = Date.now() + 5000; stores.onDisk().length > 0 && Date.now() < limit; ) await sleep(50);
      assert.deepEqual(stores.onDisk(), []);
    };

    it("leave no file behind when they were refused", async () => {
      await assertNothingOnDisk();
    });

    it("leave no file behind when the client leaves, or lies about the length", async () => {
      const { port } = new URL(server.url);
      for (const length of [1000, 3]) {
        const socket = connect(Number(port), "127.0.0.1");
        socket.on("error", () => {});
        socket.write(
          `POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=${boundary}\r\ncontent-length: ${length}\r\n\r\n--${boundary}\r\n`,
        );
        await sleep(50);
        socket.destroy();
      }
      await assertNothingOnDisk();
    });

    it("need little memory, however many arrive at once", async (t) => {
      global.gc?.();
      const idle = process.memoryUsage().rss;
      let peak = 0;
      const timer = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage().rss);
      }, 10);
      // The client runs in a separate process, so that its buffers do not count as server memory.
      const { stdout } = await promisify(execFile)(process.execPath, [uploader, server.url, "8", `${40 * 2 ** 20}`]);
      clearInterval(timer);
      const replies = JSON.parse(stdout) as readonly { readonly status: number; readonly id: string }[];
      assert.deepEqual(
        replies.map(({ status }) => status),
        Array(8).fill(200),
      );
      const used = Math.round((peak - idle) / 1e6);
      t.diagnostic(`${used} MB above idle`);
      assert.ok(used <= 100, `${used} MB above idle`);
      for (const { id } of replies) await fetch(`${server.url}/v1/files/${id}`, { method: "DELETE" });
    });

    it("answer 404 for files that do not exist", async () => {
      for (const path of [
        "/v1/files/none",
        "/v1/files/none/content",
        "/v1/files/..%2f..%2fetc",
        "/v1/containers/cntr_a/files/none",
      ]) {
        const reply = await fetch(`${server.url}${path}`);
        assert.equal(reply.status, 404, path);
        assert.equal(((await reply.json()) as { error: { code: string } }).error.code, "file_not_found", path);
      }
    });
  });
}
