import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventBuffer } from "../../../../../actors/generation/output/event-buffer.ts";
import type { GenerateEvent } from "../../../../../engines/generation.ts";
import { recordsOf } from "../../../../fixtures/text/logprobs.ts";

const text = (choice: number, piece: string, logprob?: number): GenerateEvent => {
  const event = { type: "text", choice, text: piece } as const;
  return logprob === undefined
    ? event
    : { ...event, logprobs: recordsOf([{ token: piece, bytes: [], logprob, top: [] }]) };
};

function through(events: readonly GenerateEvent[]): GenerateEvent[] {
  const backlog = new EventBuffer();
  for (const event of events) backlog.add(event);
  return backlog.take();
}

describe("events that wait", () => {
  it("are joined to one piece per choice, with the logprobs of both", () => {
    const events = through([text(0, "a", -1), text(1, "x"), text(0, "b", -2), text(1, "y")]);
    assert.deepEqual(
      events.map((event) => event.type === "text" && [event.choice, event.text, event.logprobs?.count]),
      [
        [0, "ab", 2],
        [1, "xy", undefined],
      ],
    );
  });

  it("keep their order if another event of the choice lies between", () => {
    const events: GenerateEvent[] = [
      { type: "reasoning", choice: 0, text: "r" },
      text(0, "a"),
      { type: "tool_call", choice: 0, call: 0, id: "1", name: "f" },
      { type: "tool_arguments", choice: 0, call: 0, text: "{" },
      { type: "tool_arguments", choice: 0, call: 0, text: "}" },
      { type: "tool_call_end", choice: 0, call: 0 },
      text(0, "b"),
    ];
    const kept = through(events);
    assert.deepEqual(
      kept.map(({ type }) => type),
      ["reasoning", "text", "tool_call", "tool_arguments", "tool_call_end", "text"],
    );
    assert.deepEqual(kept[3], { type: "tool_arguments", choice: 0, call: 0, text: "{}" });
  });

  it("are removed when read, and later events are not joined to them", () => {
    const backlog = new EventBuffer();
    backlog.add(text(0, "a"));
    assert.equal(backlog.isEmpty, false);
    backlog.take();
    assert.ok(backlog.isEmpty);
    backlog.add(text(0, "b"));
    assert.deepEqual(backlog.take(), [text(0, "b")]);
  });

  it("do not change the added events", () => {
    const first = text(0, "a", -1);
    through([first, text(0, "b", -1)]);
    assert.deepEqual(first, text(0, "a", -1));
  });
});
