// Conversion of typed lines into messages.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { MessageLines } from "../../../../cli/run/input/message-lines.ts";

/** Types the lines; all but the last must be incomplete. */
function typed(...lines: string[]): { text: string; isQuoted: boolean } | null {
  const messages = new MessageLines();
  for (const line of lines.slice(0, -1)) assert.equal(messages.addTyped(line), null, line);
  return messages.addTyped(lines.at(-1) ?? "");
}

describe("lines that are typed", () => {
  it("are a message each", () => {
    assert.deepEqual(typed("hello  "), { text: "hello", isQuoted: false });
    assert.deepEqual(typed("  indented"), { text: "  indented", isQuoted: false });
    assert.deepEqual(typed(""), { text: "", isQuoted: false });
  });

  it("go on behind a backslash", () => {
    assert.deepEqual(typed("one \\", "two\\", "three"), { text: "one \ntwo\nthree", isQuoted: false });
  });

  it("belong together between quotes, whatever stands in them", () => {
    assert.deepEqual(typed('"""', "/help", "a \\", "", "b", '"""'), { text: "/help\na \\\n\nb", isQuoted: true });
    assert.deepEqual(typed('"""one', 'two"""'), { text: "one\ntwo", isQuoted: true });
    assert.deepEqual(typed('"""one"""'), { text: "one", isQuoted: true });
    assert.deepEqual(typed('"""', '"""'), { text: "", isQuoted: true });
  });

  it("begin quotes only at the beginning of a message", () => {
    assert.deepEqual(typed('say """'), { text: 'say """', isQuoted: false });
    assert.deepEqual(typed("one \\", '"""'), { text: 'one \n"""', isQuoted: false });
  });
});

describe("a paste", () => {
  it("is one message with the line that is typed behind it, whatever stands in it", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("", "/exit", '"""', "a \\", "\tb"), { minLength: 1 }), (lines) => {
        const messages = new MessageLines();
        for (const line of lines) messages.addPasted(line);
        assert.deepEqual(messages.addTyped("end"), { text: [...lines, "end"].join("\n"), isQuoted: false });
        assert.equal(messages.isEmpty, true);
      }),
    );
  });

  it("may stand between quotes", () => {
    const messages = new MessageLines();
    assert.equal(messages.addTyped('"""'), null);
    messages.addPasted('def f(): """doc"""');
    assert.deepEqual(messages.addTyped('"""'), { text: 'def f(): """doc"""', isQuoted: true });
  });
});

describe("clearing", () => {
  it("forgets lines and open quotes", () => {
    const messages = new MessageLines();
    messages.addTyped('"""');
    messages.addTyped("lost");
    assert.equal(messages.isEmpty, false);
    messages.clear();
    assert.equal(messages.isEmpty, true);
    assert.deepEqual(messages.addTyped("kept"), { text: "kept", isQuoted: false });
  });
});
