import assert from "node:assert/strict";
import { it } from "node:test";
import { quantizeCommand } from "../../../../cli/commands/quantize.ts";
import { uqffCommand } from "../../../../cli/commands/uqff/uqff.ts";

it("the commands for model files ignore the variables of a server", async (t) => {
  process.env.TROUPE_DEFAULT_MODEL_ID = "chat";
  t.after(() => {
    delete process.env.TROUPE_DEFAULT_MODEL_ID;
    for (const signal of ["SIGINT", "SIGTERM"]) process.removeAllListeners(signal);
  });
  const missing = /^no file at "\/no\/model\.gguf"/;
  await assert.rejects(quantizeCommand(["-m", "/no/model.gguf", "--isq", "4", "-o", "x.gguf"]), { message: missing });
  await assert.rejects(uqffCommand(["report", "-m", "/no/model.gguf"]), { message: missing });
});
