// Terminal input of `troupe run`, as readline receives it.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { afterEach, describe, it } from "node:test";
import fc from "fast-check";
import { Keyboard } from "../../../../cli/run/input/keyboard.ts";

/** Returns a Keyboard (input stream in front of readline), its source stream, and a record of everything that it has passed on. */
function createKeyboard() {
  const source = new PassThrough();
  const heard: string[] = [];
  const keyboard = new Keyboard(source, {
    onPaste: (text) => heard.push(`paste:${text}`),
    onInterrupt: () => heard.push("interrupt"),
    onDropped: (reason) => heard.push(`dropped:${reason.split(";")[0]}`),
  });
  keyboard.on("data", (keys: Buffer) => heard.push(String(keys)));
  keyboard.on("end", () => heard.push("end"));
  // Resumes the stream as readline does, so that later input arrives immediately.
  keyboard.resume();
  return { source, keyboard, heard };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

async function hear(chunks: readonly (string | Buffer)[]): Promise<string[]> {
  const { source, heard } = createKeyboard();
  await settled();
  for (const chunk of chunks) {
    source.write(chunk);
    await settled();
  }
  return heard;
}

afterEach(settled);

describe("typed keys", () => {
  it("are passed unchanged, escape sequences too", async () => {
    assert.deepEqual(await hear(["a", "\x1b[A", "\x03", "b\r"]), ["a", "\x1b[A", "\x03", "b\r"]);
  });

  it("are passed as a whole if a character arrives in two parts", async () => {
    const euro = Buffer.from("€");
    assert.deepEqual(await hear([euro.subarray(0, 1), euro.subarray(1)]), ["€"]);
  });

  it("end when the terminal does", async () => {
    const { source, heard } = createKeyboard();
    source.end("a");
    await settled();
    await settled();
    assert.deepEqual(heard, ["a", "end"]);
  });
});

describe("a paste on the keyboard", () => {
  it("is passed as a whole, between the keys before and after it", async () => {
    assert.deepEqual(await hear(["a\x1b[200~one\rtwo\x1b[201~b"]), ["a", "paste:one\rtwo", "b"]);
  });

  it("may arrive in any pieces", async () => {
    const sent = "x\x1b[200~one\ntwo\x1b[201~y\x1b[200~three\x1b[201~";
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(fc.integer({ min: 1, max: sent.length - 1 }), { maxLength: 8 }), async (cuts) => {
        const bounds = [0, ...cuts.sort((a, b) => a - b), sent.length];
        const heard = await hear(bounds.slice(1).map((end, i) => sent.slice(bounds[i], end)));
        assert.deepEqual(heard, ["x", "paste:one\ntwo", "y", "paste:three"]);
      }),
      { numRuns: 50 },
    );
  });

  it("without an end is dropped by ctrl-c", async () => {
    assert.deepEqual(await hear(["\x1b[200~lost", "\x03", "a"]), ["\x03", "a"]);
  });
});

describe("more text than may wait", () => {
  const dropped = "dropped:a paste, or text typed during an answer, expects at most 4 MiB";
  const piece = "x".repeat(1024 * 1024);

  it("is dropped with an error if it is a paste, up to its end, wherever that is cut", async () => {
    for (const last of [["\x1b[201~a"], ["\x1b[20", "1~a"], ["\x1b", "[201~", "a"]]) {
      const heard = await hear(["\x1b[200~", piece, piece, piece, piece, piece, ...last, "\x1b[200~next\x1b[201~"]);
      assert.deepEqual(heard, [dropped, "a", "paste:next"]);
    }
    assert.deepEqual(await hear(["\x1b[200~", piece, piece, piece, piece, piece, "\x03", "a"]), [dropped, "\x03", "a"]);
  });

  it("is dropped with an error after the answer if keys are held back", async () => {
    const { source, keyboard, heard } = createKeyboard();
    await settled();
    keyboard.hold();
    for (let i = 0; i < 5; i++) source.write(piece);
    await settled();
    source.write("a\r");
    await settled();
    assert.deepEqual(heard, []);
    keyboard.release();
    assert.deepEqual(heard, [dropped, "a\r"]);
  });

  it("is no answer to a question that comes in the middle of a paste", async () => {
    const { source, keyboard, heard } = createKeyboard();
    await settled();
    keyboard.hold();
    source.write("\x1b[200~one\r");
    await settled();
    keyboard.forget();
    keyboard.release();
    source.write("y\r\x1b[201~n\r");
    await settled();
    assert.deepEqual(heard, ["n\r"]);
  });
});

describe("keys while a response is being generated", () => {
  it("wait, and are passed one line at a time so that a line may begin another response", async () => {
    const { source, keyboard, heard } = createKeyboard();
    await settled();
    keyboard.hold();
    keyboard.on("data", (keys: Buffer) => {
      if (String(keys).endsWith("\r")) keyboard.hold();
    });
    source.write("one\rtwo\rthree");
    await settled();
    assert.deepEqual(heard, []);
    keyboard.release();
    assert.deepEqual(heard, ["one\r"]);
    keyboard.release();
    assert.deepEqual(heard, ["one\r", "two\r"]);
    keyboard.release();
    assert.deepEqual(heard, ["one\r", "two\r", "three"]);
  });

  it("are dropped by ctrl-c, which interrupts", async () => {
    const { source, keyboard, heard } = createKeyboard();
    await settled();
    keyboard.hold();
    source.write("typed ahead\r");
    await settled();
    source.write("more\x03after");
    await settled();
    assert.deepEqual(heard, ["interrupt"]);
    keyboard.release();
    assert.deepEqual(heard, ["interrupt", "after"]);
  });
});
