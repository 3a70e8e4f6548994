// Message lines: conversion of typed lines into messages.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { MessageLines } from "../../../../cli/run/input/message-lines.ts";

/** Types the lines. Asserts that all but the last leave the message incomplete. */
function typed(...lines: string[]): { text: string; isQuoted: boolean } | null {
  const messages = new MessageLines();
  for (const line of lines.slice(0, -1)) assert.equal(messages.addTyped(line), null, line);
  return messages.addTyped(lines.at(-1) ?? "");
}

describe("typed lines", () => {
  it("are one message each", () => {
    assert.deepEqual(typed("hello  "), { text: "hello", isQuoted: false });
    assert.deepEqual(typed("  indented"), { text: "  indented", isQuoted: false });
    assert.deepEqual(typed(""), { text: "", isQuoted: false });
  });

  it("continue after a backslash", () => {
    assert.deepEqual(typed("one \\", "two\\", "three"), { text: "one \ntwo\nthree", isQuoted: false });
  });

  it("form one message between quotes, whatever they contain", () => {
    assert.deepEqual(typed('"""', "/help", "a \\", "", "b", '"""'), { text: "/help\na \\\n\nb", isQuoted: true });
    assert.deepEqual(typed('"""one', 'two"""'), { text: "one\ntwo", isQuoted: true });
    assert.deepEqual(typed('"""one"""'), { text: "one", isQuoted: true });
    assert.deepEqual(typed('"""', '"""'), { text: "", isQuoted: true });
  });

  it("can open quotes only at the beginning of a message", () => {
    assert.deepEqual(typed('say """'), { text: 'say """', isQuoted: false });
    assert.deepEqual(typed("one \\", '"""'), { text: 'one \n"""', isQuoted: false });
  });
});

describe("a paste", () => {
  it("is one message with the line that is typed after it, whatever it contains", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("", "/exit", '"""', "a \\", "\tb"), { minLength: 1 }), (lines) => {
        const messages = new MessageLines();
        for (const line of lines) messages.addPasted(line);
        assert.deepEqual(messages.addTyped("end"), { text: [...lines, "end"].join("\n"), isQuoted: false });
        assert.equal(messages.isEmpty, true);
      }),
    );
  });

  it("may be between quotes", () => {
    const messages = new MessageLines();
    assert.equal(messages.addTyped('"""'), null);
    messages.addPasted('def f(): """doc"""');
    assert.deepEqual(messages.addTyped('"""'), { text: 'def f(): """doc"""', isQuoted: true });
  });
});

describe("clearing", () => {
  it("removes lines and open quotes", () => {
    const messages = new MessageLines();
    messages.addTyped('"""');
    messages.addTyped("lost");
    assert.equal(messages.isEmpty, false);
    messages.clear();
    assert.equal(messages.isEmpty, true);
    assert.deepEqual(messages.addTyped("kept"), { text: "kept", isQuoted: false });
  });
});
