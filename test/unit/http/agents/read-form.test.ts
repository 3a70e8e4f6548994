// Form reader: forms that are rejected while a file is still being read.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { HttpRequest } from "../../../../http/server/edge.ts";
import { readForm } from "../../../../http/shared/forms/read-form.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-form-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const staging = join(folder, "staging");
mkdirSync(staging);
const rules = { fileFields: ["file"], maxFiles: 2, maxFileBytes: 1000, allowsFolders: false } as const;

/** Returns a request with a form of one part. */
function request(head: string, content: string): HttpRequest {
  const bodyFile = join(folder, "body");
  writeFileSync(bodyFile, `--b\r\ncontent-disposition: form-data; name="file"${head}\r\n\r\n${content}\r\n--b--\r\n`);
  const headers = new Map([["content-type", "multipart/form-data; boundary=b"]]);
  return { bodyFile, headers } as unknown as HttpRequest;
}

describe("a form", () => {
  it("is refused at once, and leaves no file, when a file that is still being read is too large", async () => {
    const asked = request('; filename="a.txt"', "x".repeat(3_000_000));
    const limit = AbortSignal.timeout(5000);
    const late = new Promise((_, reject) => limit.addEventListener("abort", () => reject(new Error("it hangs"))));
    await assert.rejects(Promise.race([readForm(asked, staging, rules), late]), { code: "body_too_large" });
    assert.deepEqual(readdirSync(staging), []);
  });

  it("gets an error that can be retried if its body or its file cannot be opened", async () => {
    const asked = request('; filename="a.txt"', "x");
    const failing = { code: "storage_unavailable", message: /^the upload cannot be stored now \(ENOENT\)/ };
    await assert.rejects(readForm(asked, join(folder, "missing"), rules), failing);
    rmSync(asked.bodyFile as string);
    await assert.rejects(readForm(asked, staging, rules), failing);
  });

  it("is rejected if it ends too early", async () => {
    const asked = request('; filename="a.txt"', "x");
    writeFileSync(
      asked.bodyFile as string,
      '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nx',
    );
    await assert.rejects(readForm(asked, staging, rules), {
      code: "invalid_value",
      message: /expected a complete form/,
    });
    assert.deepEqual(readdirSync(staging), []);
  });

  it("is rejected with an error that names a field which is too long", async () => {
    const asked = request("", "x");
    const head = '--b\r\ncontent-disposition: form-data; name="prompt"';
    writeFileSync(asked.bodyFile as string, `${head}\r\n\r\n${"x".repeat(2000)}\r\n--b--\r\n`);
    await assert.rejects(readForm(asked, staging, rules), { code: "invalid_value", param: "prompt" });
  });

  it("is rejected with a specific error if a file has no name", async () => {
    const asked = request("\r\ncontent-type: application/octet-stream", "x");
    await assert.rejects(readForm(asked, staging, rules), { code: "invalid_value", message: /expected a file name/ });
  });
});
