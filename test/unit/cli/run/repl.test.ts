// REPL with a simulated user. Streams replace the terminal, and a script replaces the model.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { after, afterEach, before, describe, it } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { Conversation } from "../../../../cli/run/conversation.ts";
import { answerSettings, chatRequest } from "../../../../cli/run/generation.ts";
import { LineHistory } from "../../../../cli/run/input/line-history.ts";
import { Output } from "../../../../cli/run/output.ts";
import { Repl } from "../../../../cli/run/repl.ts";
import {
  done,
  FakeInference,
  failure,
  finish,
  hello,
  type Script,
  text,
} from "../../../fixtures/fakes/fake-inference.ts";

const limitMs = 5000;
const enter = "\r";
const ctrlC = "\x03";
const ctrlD = "\x04";

let folder = "";
let fileCount = 0;
let current: Person | null = null;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "troupe-repl-"));
});
afterEach(() => current?.repl.close());
after(() => rmSync(folder, { recursive: true, force: true }));

/** Simulated user who types lines and reads the output. */
class Person {
  readonly inference: FakeInference;
  readonly conversation = new Conversation(["tiny", "other"], "tiny", new Map([["tiny", ["code", "math"]]]));
  readonly history = new LineHistory(join(folder, `history-${fileCount++}`));
  readonly repl: Repl;
  readonly left: Promise<void>;
  readonly #keys = Object.assign(new PassThrough(), { isRaw: false, setRawMode: () => undefined });
  #seen = "";
  #readUpTo = 0;

  constructor(script: Script = hello) {
    this.inference = new FakeInference(script);
    const screen = Object.assign(new PassThrough(), { isTTY: true, columns: 200, rows: 50 });
    screen.on("data", (data) => {
      this.#seen += data;
    });
    const notes = new Output(screen, {});
    const { inference, conversation, history } = this;
    const settings = answerSettings({ seed: null, thinking: null, reasoningEffort: null });
    const request = (question: string) =>
      chatRequest(
        conversation.model,
        conversation.messages(question),
        settings,
        conversation.adapter,
        conversation.fields,
      );
    this.repl = new Repl({
      inference,
      conversation,
      history,
      request,
      cutAnswer: (text) => text,
      input: this.#keys,
      screen,
      notes,
      answers: notes,
    });
    this.left = this.repl.run();
    current = this;
  }

  type(keys: string): void {
    this.#keys.write(keys);
  }

  hangUp(): void {
    this.#keys.end();
  }

  /** Reads until the output matches. Returns everything that was read. */
  async sees(pattern: RegExp): Promise<string> {
    const deadline = Date.now() + limitMs;
    while (Date.now() < deadline) {
      const shown = stripVTControlCharacters(this.#seen.slice(this.#readUpTo));
      if (pattern.test(shown)) {
        this.#readUpTo = this.#seen.length;
        return shown;
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    throw new Error(`${pattern} was not seen in ${JSON.stringify(this.#seen.slice(this.#readUpTo))}`);
  }

  /** All output so far, including the terminal's control sequences. */
  get raw(): string {
    return this.#seen;
  }
}

const costLine = /4 tokens, 2\.0 tok\/s, first token 500 ms, 8 prompt tokens/;
/** Script of a model that sends one word and then waits a minute. */
const endless: Script = () => [[text("well")], { waitMs: 60_000 }];

describe("a question", () => {
  it("gets a streamed answer, then its cost, and both are kept in the conversation", async () => {
    const person = new Person();
    person.type(`hi${enter}`);
    const seen = await person.sees(costLine);
    assert.match(seen, /Hello world\n/);
    assert.deepEqual(person.conversation.turns, [{ question: "hi", answer: "Hello world", isCut: false }]);
    person.type(`again${enter}`);
    await person.sees(costLine);
    const { prompt } = person.inference.lastRun.request;
    assert.deepEqual(prompt.kind === "chat" && prompt.messages.map(({ content }) => content), [
      "hi",
      "Hello world",
      "again",
    ]);
  });

  it("may be typed while the previous answer is being generated", async () => {
    const person = new Person(() => [{ waitMs: 30 }, [text("yes")], [finish("stop"), done]]);
    person.type(`one${enter}two${enter}three${enter}`);
    while (person.conversation.turns.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.deepEqual(
      person.conversation.turns.map(({ question }) => question),
      ["one", "two", "three"],
    );
  });

  it("of several lines is one message", async () => {
    const person = new Person();
    person.type(`one \\${enter}two${enter}`);
    await person.sees(costLine);
    person.type(`"""${enter}/help${enter}${enter}three${enter}"""${enter}`);
    await person.sees(costLine);
    assert.deepEqual(
      person.conversation.turns.map(({ question }) => question),
      ["one \ntwo", "/help\n\nthree"],
    );
  });

  it("that is empty is not sent", async () => {
    const person = new Person();
    person.type(`${enter}  ${enter}hi${enter}`);
    await person.sees(costLine);
    assert.equal(person.inference.runs.length, 1);
  });

  it("that fails leaves the conversation as it was, and the next one is answered", async () => {
    const person = new Person();
    person.type(`hi${enter}`);
    await person.sees(costLine);
    person.inference.script = () => [[failure("context_length_exceeded", "prompt is 9 tokens; 8 fit")]];
    person.type(`long${enter}`);
    assert.match(await person.sees(/is removed from/), /prompt is 9 tokens; 8 fit\n.*\/clear empties/);
    person.inference.script = () => [[text("half")], [failure("model_failed", "the engine died")]];
    person.type(`crash${enter}`);
    assert.match(await person.sees(/is removed from/), /half\nthe engine died\n/);
    assert.equal(person.conversation.turns.length, 1);
    person.inference.script = hello;
    person.type(`on${enter}`);
    await person.sees(costLine);
    assert.equal(person.conversation.turns.length, 2);
  });

  it("waits for a model that is being loaded again", async () => {
    const person = new Person();
    const [entry] = person.inference.entries;
    person.inference.entries = [{ ...entry!, status: "reloading" }];
    person.type(`hi${enter}`);
    await person.sees(/being reloaded/);
    assert.equal(person.inference.runs.length, 0);
    person.inference.entries = [entry!];
    await person.sees(costLine);
  });

  it("whose answer fills the context causes a message", async () => {
    const person = new Person(() => [[text("a")], [finish("length"), done]]);
    person.type(`hi${enter}`);
    await person.sees(/the context is full; \/clear empties/);
  });
});

describe("a paste", () => {
  it("of several lines is one message, sent by the return after it, and not stored in the history", async () => {
    const person = new Person();
    person.type("\x1b[200~/exit\r\tone\rtwo\x1b[201~");
    person.type(` three${enter}`);
    await person.sees(costLine);
    assert.equal(person.conversation.turns[0]?.question, "/exit\n\tone\ntwo three");
    assert.deepEqual(person.history.lines, ["two three"]);
  });

  it("of one line can be edited, and may be a command, as if typed", async () => {
    const person = new Person();
    person.type("\x1b[200~/hel\x1b[201~");
    person.type(`p${enter}`);
    await person.sees(/\/system \[TEXT\]/);
  });

  it("cannot control the terminal", async () => {
    const person = new Person();
    person.type("\x1b[200~a\x1b]0;title\x07b\x1b[201~");
    person.type(enter);
    await person.sees(costLine);
    assert.ok(!person.raw.includes("\x1b]0;"));
  });
});

describe("ctrl-c", () => {
  it("stops an answer and keeps its text", async () => {
    const person = new Person(endless);
    person.type(`hi${enter}`);
    await person.sees(/well/);
    person.type(ctrlC);
    await person.sees(/stopped here/);
    assert.deepEqual(person.conversation.turns, [{ question: "hi", answer: "well", isCut: true }]);
    assert.equal(person.inference.lastRun.state, "cancelled");
    person.inference.script = hello;
    person.type(`on${enter}`);
    await person.sees(costLine);
  });

  it("removes a question whose answer has not begun, and what was typed after it", async () => {
    const person = new Person(() => [{ waitMs: 60_000 }]);
    person.type(`hi${enter}/exit${enter}`);
    while (person.inference.runs.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    person.type(ctrlC);
    await person.sees(/stopped before the first token/);
    assert.deepEqual(person.conversation.turns, []);
  });

  it("at the prompt removes the line and the lines before it", async () => {
    const person = new Person();
    person.type(`one \\${enter}two`);
    await person.sees(/two/);
    person.type(ctrlC);
    await person.sees(/> /);
    person.type(`three${enter}`);
    await person.sees(costLine);
    assert.deepEqual(
      person.conversation.turns.map(({ question }) => question),
      ["three"],
    );
  });

  it("on an empty line shows how to exit, and exits the second time", async () => {
    const person = new Person();
    person.type(ctrlC);
    await person.sees(/ctrl-c again or ctrl-d to exit/);
    person.type(ctrlC);
    await person.left;
  });

  it("exits only the second time in a row", async () => {
    const person = new Person();
    person.type(ctrlC);
    await person.sees(/ctrl-c again or ctrl-d to exit/);
    person.type(`hi${enter}`);
    await person.sees(costLine);
    person.type(ctrlC);
    await person.sees(/ctrl-c again or ctrl-d to exit/);
  });
});

describe("a line of the log", () => {
  it("does not disturb the line being typed", async () => {
    const person = new Person();
    person.type("h");
    await person.sees(/h/);
    person.repl.notice("the engine died");
    await person.sees(/the engine died\n> h$/);
    person.type(`i${enter}`);
    await person.sees(costLine);
    assert.equal(person.conversation.turns[0]?.question, "hi");
  });

  it("is on a separate line if an answer is being generated", async () => {
    const person = new Person(endless);
    person.type(`hi${enter}`);
    await person.sees(/well/);
    person.repl.notice("the engine died");
    await person.sees(/^\nthe engine died\n$/);
  });
});

describe("exiting", () => {
  it("happens on /exit, ctrl-d, or a hangup of the terminal, and disables bracketed paste", async () => {
    for (const leave of [
      (person: Person) => person.type(`/exit${enter}`),
      (person: Person) => person.type(ctrlD),
      (person: Person) => person.hangUp(),
    ]) {
      const person = new Person();
      leave(person);
      await person.left;
      await person.sees(/^/);
      assert.ok(person.raw.lastIndexOf("\x1b[?2004l") > person.raw.lastIndexOf("\x1b[?2004h"));
    }
  });

  it("cancels the answer that is being generated", async () => {
    const person = new Person(endless);
    person.type(`hi${enter}`);
    await person.sees(/well/);
    person.repl.close();
    await person.left;
    while (person.inference.lastRun.state === "running") await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(person.inference.lastRun.state, "cancelled");
  });
});

describe("commands", () => {
  it("change the conversation, and a mistyped one only causes a message", async () => {
    const person = new Person();
    person.type(`/system be brief${enter}`);
    await person.sees(/system prompt set/);
    person.type(`/modle${enter}`);
    await person.sees(/unknown command "\/modle"; did you mean "\/model"\?/);
    person.type(`/model other${enter}`);
    await person.sees(/the model is other/);
    person.type(`hi${enter}`);
    await person.sees(costLine);
    const { model, prompt } = person.inference.lastRun.request;
    assert.equal(model, "other");
    assert.deepEqual(prompt.kind === "chat" && prompt.messages[0], { role: "system", content: "be brief" });
  });

  it("choose the adapter of the next questions", async () => {
    const person = new Person();
    const adapterOfNext = async () => {
      person.type(`hi${enter}`);
      await person.sees(costLine);
      return person.inference.lastRun.request.adapter;
    };
    assert.equal(await adapterOfNext(), null);
    person.type("/adapter co\t");
    await person.sees(/\/adapter code/);
    person.type(enter);
    await person.sees(/the adapter is code/);
    assert.deepEqual(await adapterOfNext(), { alias: "code" });
    person.type(`/adapter nobody${enter}`);
    await person.sees(/the model has no adapter "nobody"; it has: code, math/);
    assert.deepEqual(await adapterOfNext(), { alias: "code" });
    person.type(`/adapter none${enter}`);
    await person.sees(/no adapter: the base model answers; the conversation continues/);
    assert.equal(await adapterOfNext(), null);
  });

  it("are completed by tab", async () => {
    const person = new Person();
    person.type("/cl\t");
    await person.sees(/\/clear/);
    person.type(enter);
    await person.sees(/conversation cleared/);
  });

  it("and messages are in the history of lines", async () => {
    const person = new Person();
    person.type(`first${enter}`);
    await person.sees(costLine);
    person.type(`/clear${enter}`);
    await person.sees(/conversation cleared/);
    assert.deepEqual(person.history.lines, ["/clear", "first"]);
    person.type(`\x1b[A\x1b[A${enter}`);
    await person.sees(costLine);
    assert.equal(person.conversation.turns[0]?.question, "first");
  });
});
