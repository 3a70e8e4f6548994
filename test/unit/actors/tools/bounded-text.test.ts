import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BoundedText, boundedText } from "../../../../actors/tools/bounded-text.ts";
import { seeded } from "../../../fixtures/schemas/random-text.ts";

const note = /\n\[(\d+) bytes left out\]\n/;

describe("bounded text", () => {
  it("keeps the beginning and the end, whatever pieces the text comes in", () => {
    const random = seeded(5);
    for (let i = 0; i < 500; i++) {
      const capacity = 2 + Math.floor(random() * 60);
      const limit = 1 + Math.floor(random() * 70);
      const letters = Array.from({ length: Math.floor(random() * 200) }, (_, at) =>
        String.fromCharCode(97 + (at % 26)),
      );
      const whole = letters.join("");
      const text = new BoundedText(capacity);
      for (let at = 0; at < whole.length; ) {
        const size = 1 + Math.floor(random() * random() * 100);
        text.add(Buffer.from(whole.slice(at, at + size)));
        at += size;
      }
      const shown = text.within(limit);
      const kept = Math.min(limit, 2 * Math.floor(capacity / 2));
      if (whole.length <= kept) {
        assert.equal(shown, whole);
        continue;
      }
      const [head = "", omitted, tail = ""] = shown.split(note);
      assert.ok(head.length + tail.length <= kept && head.length === tail.length);
      assert.ok(whole.startsWith(head) && whole.endsWith(tail));
      assert.equal(head.length + tail.length + Number(omitted), whole.length);
    }
  });

  it("cuts no character, and counts the bytes of those that it leaves out", () => {
    for (const character of ["\u00e9", "\u65e5", "\u{1f600}"]) {
      const whole = character.repeat(100);
      for (let limit = 1; limit < 60; limit++) {
        const text = new BoundedText(64);
        for (const byte of Buffer.from(whole)) text.add(Buffer.from([byte]));
        for (const shown of [text.within(limit), boundedText(whole, limit)]) {
          assert.match(shown, new RegExp(`^(?:${character})*\n\\[\\d+ bytes left out\\]\n(?:${character})*$`, "u"));
          const left = shown.replace(note, "");
          assert.equal(Buffer.byteLength(left) + Number(note.exec(shown)?.[1]), Buffer.byteLength(whole));
        }
      }
    }
  });

  it("replaces what is not text", () => {
    const text = new BoundedText(100);
    text.add(Buffer.from([0x61, 0xff, 0x62]));
    assert.equal(text.within(100), "a\ufffdb");
    assert.equal(boundedText("a\ud800b", 100), "a\ufffdb");
    assert.equal(new BoundedText(100).within(10), "");
  });
});
