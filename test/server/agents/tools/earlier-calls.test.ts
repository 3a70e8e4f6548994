// biome-ignore-all lint/suspicious/noExplicitAny: the bodies are read field by field
// Requests of the Responses API that contain the items of earlier tool calls: which session they continue, and what the model
// gets to read.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { sessionOfContainer } from "../../../../http/shared/fields/tools/tool-fields.ts";
import { checked, eventsOf, post, python, runs, shell } from "../clients.ts";
import { type AgentRig, startAgents } from "../rig.ts";

type Item = Readonly<Record<string, any>>;

let rig: AgentRig;
before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

const tools = [{ type: "code_interpreter", container: { type: "auto" } }, { type: "shell" }];
const said = (content: string): Item => ({ role: "user", content });
const bodyOf = (input: readonly Item[], more: object) => ({ model: "tiny", input, tools, store: false, ...more });

async function ask(input: readonly Item[], more: object = {}): Promise<{ output: Item[]; session: string }> {
  const { output, session_id: session } = await checked(await post(`${rig.url}/v1/responses`, bodyOf(input, more)));
  return { output, session };
}

/** Returns the ids of the calls and of the results in the chat of the model's last round. */
function seenIds(): { readonly calls: readonly string[]; readonly results: readonly (string | undefined)[] } {
  const chat = rig.seen().at(-1) ?? [];
  return {
    calls: chat.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id)),
    results: chat.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId),
  };
}

describe("items of earlier calls", () => {
  it("continue their session, with its Python", async () => {
    rig.script(runs("x = 41"), "set");
    const first = await ask([said("one")]);
    rig.script(runs("print(x + 1)"), "read");
    const second = await ask([said("one"), ...first.output, said("two")]);
    assert.equal(second.session, first.session);
    assert.match(JSON.stringify(rig.seen().at(-1)), /42/);
  });

  it("begin a branch where the client has gone back behind the last calls", async () => {
    rig.script(runs("x = 1"), "set", runs("x = 2"), "set again", "other", "third");
    const first = await ask([said("three")]);
    await ask([said("three"), ...first.output, said("four")]);
    const other = await ask([said("three"), ...first.output, said("five")]);
    assert.notEqual(other.session, first.session);
    const named = await ask([said("three"), ...first.output, said("six")], { session_id: first.session });
    assert.equal(named.session, first.session);
  });

  it("begin a branch while another run continues their session", async () => {
    rig.script(runs("x = 1"), "set");
    const first = await ask([said("seven")]);
    const input = [said("seven"), ...first.output, said("eight")];
    rig.script({ calls: [[shell, { commands: ["sleep 0.5"] }]] }, "late", "early");
    const [one, other] = await Promise.all([ask(input), sleep(200).then(() => ask(input))]);
    assert.equal(one.session, first.session);
    assert.notEqual(other.session, first.session);
  });

  for (const named of [true, false]) {
    it(`of a run that was cut off are read once, with the calls after them (${named ? "named" : "not named"})`, async () => {
      const leaving = new AbortController();
      const call = (code: string) => [python, { code }] as const;
      rig.script({ calls: [call("1"), call("2")] }, { calls: [call("3"), [shell, { commands: ["sleep 30"] }]] });
      const start = [said(`nine ${named}`)];
      const response = await post(`${rig.url}/v1/responses`, bodyOf(start, { stream: true }), leaving.signal);
      const items: Item[] = [];
      await assert.rejects(
        async () => {
          for await (const { name, data } of eventsOf(response)) {
            if (name === "response.output_item.done" && items.length < 2) items.push(data.item as Item);
            // Disconnect at the result of the first call of the second round.
            if (name === "response.output_item.done" && (data.item as Item).code === "3") leaving.abort();
          }
          assert.fail("the run has ended");
        },
        { name: "AbortError" },
      );
      assert.equal(items.length, 2);
      const session = sessionOfContainer(String(items[0]?.container_id));
      // Wait until the run has ended. While a session has a run, a request that does not name the session gets a branch
      // of the session.
      await sleep(500);
      rig.script("continued");
      const input = [...start, ...items, said("go on")];
      const next = await ask(input, named ? { session_id: session } : {});
      assert.equal(next.session, session);
      const { calls, results } = seenIds();
      assert.equal(calls.length, 4, JSON.stringify(rig.seen().at(-1)));
      assert.equal(new Set(calls).size, 4);
      assert.deepEqual(results, calls);
      rig.script("and again");
      await ask([...input, ...next.output, said("more")], named ? { session_id: session } : {});
      assert.deepEqual(seenIds(), { calls, results });
    });
  }
});
