import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Mailbox } from "../../../../runtime/actor/mailbox.ts";

describe("a mailbox", () => {
  it("returns items in order, and refuses those above its limit", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.array(fc.boolean(), { maxLength: 200 }), (limit, puts) => {
        const mailbox = new Mailbox<number>(limit);
        const expected: number[] = [];
        for (const [i, isPut] of puts.entries()) {
          if (isPut) {
            const hadRoom = expected.length < limit;
            if (hadRoom) expected.push(i);
            assert.equal(mailbox.put(i), hadRoom);
          } else {
            assert.equal(mailbox.take(), expected.shift());
          }
          assert.equal(mailbox.size, expected.length);
        }
      }),
    );
  });
});
