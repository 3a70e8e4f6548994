import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { accessFailure } from "../../../engines/files/access-failure.ts";
import { readHead } from "../../../engines/files/gguf/reader.ts";
import type { ServerError } from "../../../runtime/errors.ts";

describe("a model's file that cannot be opened", () => {
  it("is tried again only if the reason may pass", () => {
    const isRetried = (code: string) =>
      accessFailure(Object.assign(new Error(code), { code }), "problem", "advice").retryable;
    for (const code of ["EMFILE", "ENFILE", "EIO", "ESTALE"]) assert.equal(isRetried(code), true, code);
    for (const code of ["ENOENT", "EACCES", "ENOTDIR", "ELOOP"]) assert.equal(isRetried(code), false, code);
  });

  it("is an invalid file if its path is wrong", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-open-"));
    try {
      await assert.rejects(
        readHead(join(folder, "none.gguf"), () => true),
        (error: ServerError) => {
          assert.deepEqual([error.code, error.retryable], ["model_file_invalid", false]);
          return true;
        },
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
