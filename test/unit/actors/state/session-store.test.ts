import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { messageDigest } from "../../../../actors/api/agent/message-digest.ts";
import { type SessionUpdate, sessionLimits } from "../../../../actors/api/agent/sessions.ts";
import { sealContent } from "../../../../actors/api/sealed-content.ts";
import { type KeptSession, SessionStore } from "../../../../actors/state/session-store.ts";
import type { ChatMessage } from "../../../../engines/generation.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

const user = (content: string): ChatMessage => ({ role: "user", content });
const assistant = (content: string): ChatMessage => ({ role: "assistant", content });
const call: ChatMessage = { role: "assistant", content: "Hm. ", toolCalls: [{ id: "c", name: "f", arguments: "{}" }] };
const result: ChatMessage = { role: "tool", content: "4", toolCallId: "c" };

class Rig {
  now = 1_800_000_000_000;
  readonly sessions: SessionStore;

  constructor() {
    const limits = { maxEntries: 256, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: 1e12 };
    this.sessions = new SessionStore(
      new TableStore<KeptSession>(new MemoryTables(), limits, () => this.now),
      () => this.now,
    );
  }
}

function updateOf(
  id: string,
  messages: readonly ChatMessage[],
  added: readonly ChatMessage[],
  visible: ChatMessage | null,
  given: Partial<SessionUpdate> = {},
): SessionUpdate {
  return {
    id,
    client: "c",
    turns: 1,
    digests: [...messages, ...(visible === null ? [] : [visible])].map(messageDigest),
    prompt: { kind: "chat", messages, templateArguments: {} },
    splices: [],
    added,
    continuesAnswer: false,
    images: [],
    videos: [],
    files: [],
    approvesAll: false,
    basedOn: null,
    ...given,
  };
}

const asked = [user("2 + 2?")];
const shown = assistant("Hm. four");
const hidden = [call, result, assistant("four")];
const later = (...more: readonly ChatMessage[]) => [...asked, shown, ...more].map(messageDigest);

describe("the session store", () => {
  it("puts the hidden messages in the place of the message that the client sees", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("s", asked, hidden, shown));
    const found = await sessions.match({ client: "c", id: null, digests: later(user("and 3 + 3?")) });
    assert.equal(found?.head.id, "s");
    assert.deepEqual([found?.common, found?.splices], [2, [{ at: 1, remove: 1, messages: hidden }]]);
  });

  it("keeps the splices of earlier requests, also from sealed content", async () => {
    const { sessions } = new Rig();
    const second = [...asked, shown, user("3 + 3?")];
    const splices = [{ at: 1, remove: 1, messages: hidden }];
    const prompt = sealContent({
      prompt: { kind: "chat", messages: second, templateArguments: {} },
      grammar: null,
      tools: null,
    });
    await sessions.update(updateOf("s", second, [assistant("six")], assistant("six"), { prompt, splices }));
    const session = await sessions.find("s");
    assert.deepEqual(
      session?.messages.map(({ message, visible }) => [message.content, visible]),
      [
        ["2 + 2?", 0],
        ["Hm. ", 1],
        ["4", 1],
        ["four", 1],
        ["3 + 3?", 2],
        ["six", 3],
      ],
    );
  });

  it("matches the beginning that is left when the client has edited a message", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("s", [...asked, shown, user("x")], [assistant("y")], assistant("y")));
    const found = await sessions.match({ client: "c", id: null, digests: later(user("edited")) });
    assert.deepEqual([found?.head.digests.length, found?.common], [4, 2]);
  });

  it("needs two common messages, and the same client, if no session is named", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("s", asked, hidden, shown));
    const digests = later();
    assert.equal(await sessions.match({ client: "c", id: null, digests: digests.slice(0, 1) }), null);
    assert.equal(await sessions.match({ client: "d", id: null, digests }), null);
    assert.equal((await sessions.match({ client: "c", id: "s", digests: ["other"] }))?.common, 0);
    assert.equal(await sessions.match({ client: "c", id: "unknown", digests }), null);
  });

  it("prefers the session with the longest common beginning", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("short", asked, hidden, shown));
    await sessions.update(updateOf("long", [...asked, shown, user("x")], [assistant("y")], assistant("y")));
    assert.equal((await sessions.match({ client: "c", id: null, digests: later(user("x")) }))?.head.id, "long");
  });

  it("continues with the messages of a response that never ended, if the session is named", async () => {
    const { sessions } = new Rig();
    const chat = [...asked, shown, user("x")];
    await sessions.update(updateOf("s", chat, [call, result], null));
    const splices = [{ at: 3, remove: 0, messages: [call, result] }];
    for (const digests of [later(user("x")), later(user("x"), user("y"))]) {
      const found = await sessions.match({ client: "c", id: "s", digests });
      assert.deepEqual([found?.common, found?.splices], [3, splices]);
    }
    const unnamed = await sessions.match({ client: "c", id: null, digests: later(user("x")) });
    assert.deepEqual([unnamed?.common, unnamed?.splices], [3, []]);
    const edited = await sessions.match({ client: "c", id: "s", digests: later(user("edited")) });
    assert.deepEqual([edited?.common, edited?.splices], [2, []]);
    await sessions.update(updateOf("s", chat, [assistant("y")], assistant("y"), { splices }));
    const ended = await sessions.match({ client: "c", id: "s", digests: later(user("x"), assistant("y")) });
    assert.deepEqual(ended?.splices, [{ at: 3, remove: 1, messages: [call, result, assistant("y")] }]);
  });

  it("recognises a call whose arguments the client has written again", async () => {
    const { sessions } = new Rig();
    const calling = (args: string): ChatMessage => ({
      role: "assistant",
      content: "",
      toolCalls: [{ id: "c", name: "f", arguments: args }],
    });
    const found = async (written: string, sent: string) => {
      await sessions.update(updateOf("s", asked, [calling(written)], calling(written)));
      return (await sessions.match({ client: "c", id: "s", digests: [...asked, calling(sent)].map(messageDigest) }))
        ?.common;
    };
    assert.equal(await found('{"a": [1.0, {"y": 1, "x": 2}], "b": "\\u00e9"}', '{"b":"é","a":[1,{"x":2,"y":1}]}'), 2);
    assert.equal(await found('{"a": [1, 2]}', '{"a":[2,1]}'), 1);
    assert.equal(await found('{"a": ', '{"a": '), 2);
    assert.equal(await found('{"a": ', '{"a":'), 1);
  });

  it("keeps images and files of the session it is based on", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("s", asked, [], shown, { images: ["one"], files: ["f1"] }));
    await sessions.update(updateOf("t", asked, [], shown, { images: ["two"], files: ["f1", "f2"], basedOn: "s" }));
    const found = await sessions.find("t");
    assert.deepEqual(
      [found?.images, found?.files],
      [
        ["one", "two"],
        ["f1", "f2"],
      ],
    );
  });

  it("forgets a session exactly after 30 minutes without use", async () => {
    const rig = new Rig();
    await rig.sessions.update(updateOf("s", asked, hidden, shown));
    rig.now += sessionLimits.idleMs - 1;
    assert.notEqual(await rig.sessions.find("s"), null, "and this is a use");
    rig.now += sessionLimits.idleMs - 1;
    assert.notEqual(await rig.sessions.match({ client: "c", id: "s", digests: [] }), null);
    rig.now += sessionLimits.idleMs;
    assert.equal(await rig.sessions.find("s"), null);
  });

  it("removes the least recently used session when there are more than 128", async () => {
    const rig = new Rig();
    for (let i = 0; i < sessionLimits.maxSessions; i++) {
      rig.now++;
      await rig.sessions.update(updateOf(`s${i}`, asked, [], shown));
    }
    rig.now++;
    await rig.sessions.find("s0");
    rig.now++;
    await rig.sessions.update(updateOf("new", asked, [], shown));
    const there = await Promise.all(
      ["s0", "s1", "s2", "new"].map(async (id) => (await rig.sessions.find(id)) !== null),
    );
    assert.deepEqual(there, [true, false, true, true]);
  });

  it("deletes a session", async () => {
    const { sessions } = new Rig();
    await sessions.update(updateOf("s", asked, hidden, shown));
    assert.deepEqual([await sessions.delete("s"), await sessions.delete("s")], [true, false]);
  });
});
