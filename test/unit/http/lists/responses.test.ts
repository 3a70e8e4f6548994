import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { z } from "zod";
import { responseListSchema } from "../../../../http/responses/stored/list-route.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, failure, finish, reasoning, type Script, text } from "../../../fixtures/fakes/fake-inference.ts";
import { altered, memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { loadableEdges, startServer } from "../../../fixtures/http-server.ts";
import { errorOf, ResponsesRig } from "../responses/responses-rig.ts";

type Page = z.output<typeof responseListSchema>;

const slow: Script = () => [[reasoning("Hm."), text("Hel")], { waitMs: 60_000 }];

const ask = (rig: ResponsesRig, query = "") => request(rig.app, "GET", "/v1/responses", { query });

async function list(rig: ResponsesRig, query = ""): Promise<Page> {
  const reply = await ask(rig, query);
  assert.equal(reply.status, 200, reply.body);
  return responseListSchema.parse(JSON.parse(reply.body));
}

/** Creates responses, which are stored one after another. */
async function filled(rig: ResponsesRig, count: number): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    ids.push((await rig.create({ input: `question ${i}` })).id);
    await list(rig);
    await sleep(2);
  }
  return ids.reverse();
}

describe("the list of responses", () => {
  it("has the facts of each response and the beginnings of its texts", async () => {
    const rig = new ResponsesRig(() => [
      [reasoning("Hm."), text("The "), text("answer")],
      [finish(), done],
    ]);
    const created = await rig.create({
      instructions: "Be terse.",
      input: [
        { role: "user", content: "first" },
        { role: "assistant", content: "said" },
        {
          role: "user",
          content: [
            { type: "input_text", text: "sec" },
            { type: "input_text", text: "ond" },
          ],
        },
        { type: "function_call", call_id: "c", name: "f", arguments: "{}" },
        { type: "function_call_output", call_id: "c", output: "4" },
      ],
    });
    assert.deepEqual(await list(rig), {
      object: "list",
      data: [
        {
          id: created.id,
          object: "response.summary",
          created_at: created.created_at,
          status: "completed",
          model: "tiny",
          background: false,
          input: "second",
          output: "The answer",
        },
      ],
      first_id: created.id,
      last_id: created.id,
      has_more: false,
    });
  });

  it("has at most 200 characters of a text, without half characters, and null without a text", async () => {
    const long = `${"x".repeat(199)}😀${"y".repeat(1000)}`;
    const rig = new ResponsesRig(() => [
      [text("a".repeat(150)), text("b".repeat(150))],
      [finish(), done],
    ]);
    await rig.create({ input: long });
    const [first] = (await list(rig)).data;
    assert.deepEqual([first?.input, first?.output], ["x".repeat(199), "a".repeat(150) + "b".repeat(50)]);
    rig.inference.script = () => [[failure("model_failed")]];
    const { id } = await rig.create({ input: [{ role: "developer", content: "Hm" }], background: true });
    await rig.ended(id);
    const failed = (await list(rig)).data.find((entry) => entry.id === id);
    assert.deepEqual([failed?.status, failed?.input, failed?.output, failed?.background], ["failed", null, null, true]);
  });

  it("is empty before the first response, and without responses that are not stored or were deleted", async () => {
    const rig = new ResponsesRig();
    const empty = { object: "list", data: [], first_id: null, last_id: null, has_more: false };
    assert.deepEqual(await list(rig), empty);
    await rig.create({ input: "hi", store: false });
    assert.deepEqual(await list(rig), empty);
    const { id } = await rig.create({ input: "hi" });
    assert.equal((await list(rig)).data.length, 1);
    await rig.delete(id);
    assert.deepEqual(await list(rig), empty);
  });

  it("shows the state and the text of a running response, and how it ended", async () => {
    const rig = new ResponsesRig(slow);
    const { id } = await rig.create({ input: "hi", background: true });
    const shown = async () => {
      const { status, input, output } = (await list(rig)).data[0]!;
      return [status, input, output];
    };
    for (let i = 0; i < 500 && (await shown())[2] === null; i++) await sleep(2);
    assert.deepEqual(await shown(), ["in_progress", "hi", "Hel"]);
    await rig.cancel(id);
    assert.deepEqual(await shown(), ["cancelled", "hi", "Hel"]);
  });

  it("has pages, the newest response first", async () => {
    const rig = new ResponsesRig();
    const ids = await filled(rig, 5);
    const idsOf = ({ data, first_id, last_id, has_more }: Page) => {
      assert.deepEqual([first_id, last_id], [data[0]?.id ?? null, data.at(-1)?.id ?? null]);
      return [data.map(({ id }) => id), has_more];
    };
    assert.deepEqual(idsOf(await list(rig)), [ids, false]);
    assert.deepEqual(idsOf(await list(rig, "limit=5")), [ids, false]);
    assert.deepEqual(idsOf(await list(rig, "limit=2")), [ids.slice(0, 2), true]);
    assert.deepEqual(idsOf(await list(rig, `limit=2&after=${ids[1]}`)), [ids.slice(2, 4), true]);
    assert.deepEqual(idsOf(await list(rig, `limit=2&after=${ids[3]}`)), [ids.slice(4), false]);
    assert.deepEqual(idsOf(await list(rig, `after=${ids[4]}`)), [[], false]);
    // A response that is created between two pages does not shift the next page.
    await rig.create({ input: "new" });
    assert.deepEqual(idsOf(await list(rig, `limit=2&after=${ids[1]}`)), [ids.slice(2, 4), true]);
  });

  it("has 20 responses per page unless the request names a limit", async () => {
    const rig = new ResponsesRig();
    await filled(rig, 21);
    const { data, has_more } = await list(rig);
    assert.deepEqual([data.length, has_more], [20, true]);
    assert.equal((await list(rig, "limit=100")).data.length, 21);
  });

  it("refuses a limit out of range and an id that is not in the list", async () => {
    const rig = new ResponsesRig();
    for (const limit of ["0", "101", "-1", "1.5", "x", ""]) {
      assert.deepEqual(errorOf(await ask(rig, `limit=${limit}`)), [400, "invalid_value", "limit"], limit);
    }
    for (const after of ["", "resp_none", "%00"]) {
      assert.deepEqual(errorOf(await ask(rig, `after=${after}`)), [400, "invalid_value", "after"], after);
    }
    const { id } = await rig.create({ input: "hi" });
    await rig.delete(id);
    const reply = await ask(rig, `after=${id}`);
    assert.match(JSON.parse(reply.body).error.message, new RegExp(`${id}.*begin without after`));
  });

  it("is refused while the disk cannot be read", async () => {
    const store = memoryResponses();
    const rig = new ResponsesRig(undefined, {
      store: altered(store, { list: async () => Promise.reject(new ServerError("storage_unavailable", "no disk")) }),
    });
    assert.deepEqual(errorOf(await ask(rig)), [503, "storage_unavailable", null]);
  });
});

for (const edge of loadableEdges()) {
  it(`the list of responses is served on the ${edge} edge, unless disable_lists is set`, async () => {
    for (const servesLists of [true, false]) {
      const server = await startServer(edge, { config: { servesLists } });
      const reply = await fetch(`${server.url}/v1/responses?limit=1`);
      assert.equal(reply.status, servesLists ? 200 : 405);
      await server.stop();
    }
  });
}
