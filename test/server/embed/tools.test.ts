// Embedded tools over HTTP: tools that an embedding program registers, with a scripted model and requests in each
// protocol that name no tool. Also runs the program in examples/ with the real default model.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { z } from "zod";
import { tool } from "../../../cli/embed/main.ts";
import { customTools } from "../../../cli/embed/tools/custom-tools.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { type AgentRig, startAgents } from "../agents/rig.ts";

const program = fileURLToPath(new URL("../../../examples/typescript/own-tools.js", import.meta.url));
const programLimitMs = 180_000;

const stock = tool({
  name: "count_stock",
  description: "Counts",
  schema: z.object({ fruit: z.string() }),
  run: ({ fruit }) => ({ fruit, count: 12 }),
});

describe("tools of an embedding program", () => {
  let rig: AgentRig;
  before(async () => {
    rig = await startAgents({ sources: [customTools([stock], recordingLog())] });
  });
  after(() => rig.stop());

  const question = [{ role: "user", content: "How many apples?" }];
  const requests = {
    "/v1/chat/completions": { messages: question },
    "/v1/responses": { input: question },
    "/v1/messages": { messages: question, max_tokens: 100 },
  };
  for (const [path, body] of Object.entries(requests)) {
    it(`run within one request to ${path}`, async () => {
      rig.script(
        {
          calls: [
            ["count_stock", { fruit: "apples" }],
            ["count_stock", {}],
          ],
        },
        "There are 12.",
      );
      const reply = await fetch(`${rig.url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      const answer = await reply.text();
      assert.equal(reply.status, 200, answer);
      assert.match(answer, /There are 12\./);
      const results = rig
        .seen()
        .at(-1)!
        .filter(({ role }) => role === "tool");
      assert.equal(results[0]?.content, '{"fruit":"apples","count":12}');
      assert.match(results[1]?.content ?? "", /"status":"error".*expected string/);
    });
  }

  it("are called by the default model in the example's program", async () => {
    const { path, isReal } = await realModel();
    assert.ok(isReal, "the example is to be answered by the default model, which cannot be fetched here");
    const env = { PATH: process.env.PATH, TROUPE_MODEL: path };
    const { stdout } = await promisify(execFile)(process.execPath, [program], { env, timeout: programLimitMs });
    assert.match(stdout, /^> count_stock\((apples|pears)\) = \d+\n[\s\S]+/);
  });
});
