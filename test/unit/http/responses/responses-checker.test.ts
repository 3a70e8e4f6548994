import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { done, finish, reasoning, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { checkResponseStream, type StreamEvent } from "../../../fixtures/responses-checker.ts";
import { ResponsesRig } from "./responses-rig.ts";

const renumbered = (events: readonly StreamEvent[]): StreamEvent[] =>
  events.map((event, sequence_number) => ({ ...event, sequence_number }));

describe("the checker of a response's stream", () => {
  it("finds every missing, repeated, misplaced or changed event", async () => {
    const script = [[reasoning("a"), text("b"), text("c"), ...toolCall("f", ["{", "}"]), finish("tool_calls"), done]];
    const { events } = await new ResponsesRig(() => script).stream({
      input: "hi",
      tools: [{ type: "function", name: "f" }],
    });
    for (const [i, event] of events.entries()) {
      const broken: Record<string, readonly StreamEvent[]> = {
        "left out": renumbered(events.toSpliced(i, 1)),
        "numbered wrongly": events.with(i, { ...event, sequence_number: i + 1 }),
        "put last": renumbered([...events.toSpliced(i, 1), event]),
      };
      if (event.type !== "response.in_progress") broken.twice = renumbered(events.toSpliced(i, 0, event));
      if ("item_id" in event) broken["of another item"] = events.with(i, { ...event, item_id: "msg_other" });
      if ("output_index" in event) broken["of another place"] = events.with(i, { ...event, output_index: 9 });
      if ("content_index" in event) broken["of another part"] = events.with(i, { ...event, content_index: 9 });
      if ("delta" in event) broken["of another text"] = events.with(i, { ...event, delta: "other" });
      if (i === events.length - 1) delete broken["put last"];
      for (const [how, changed] of Object.entries(broken)) {
        assert.throws(() => checkResponseStream(changed), assert.AssertionError, `${event.type} ${how}`);
      }
    }
  });
});
