// Generation of one response in `troupe run`: the request that is sent, and the handling of its events.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, it } from "node:test";
import { answerSettings, chatRequest, streamAnswer, usageLine } from "../../../../cli/run/generation.ts";
import { answerOnce } from "../../../../cli/run/one-shot.ts";
import { Output, type OutputStream, withoutControls } from "../../../../cli/run/output.ts";
import { askedRequest } from "../../../../http/chat/request.ts";
import {
  done,
  FakeInference,
  failure,
  finish,
  reasoning,
  type Script,
  text,
  usage,
} from "../../../fixtures/fakes/fake-inference.ts";

const silent = { seed: null, thinking: null, reasoningEffort: null };
const request = chatRequest("tiny", [{ role: "user", content: "hi" }], answerSettings(silent));
const never = new AbortController().signal;

describe("the reasoning controls", () => {
  it("enable thinking by default", () => {
    assert.deepEqual(answerSettings(silent).templateArguments, { enableThinking: true });
    assert.deepEqual(answerSettings({ ...silent, thinking: false }).templateArguments, { enableThinking: false });
  });

  it("enable thinking with an effort, and disable it with off", () => {
    const ofEffort = (reasoningEffort: "off" | "high") =>
      answerSettings({ ...silent, reasoningEffort }).templateArguments;
    assert.deepEqual(ofEffort("high"), { enableThinking: true, reasoningEffort: "high" });
    assert.deepEqual(ofEffort("off"), { enableThinking: false, reasoningEffort: "off" });
  });

  it("are rejected if they contradict each other", () => {
    const contradiction = { ...silent, thinking: true, reasoningEffort: "off" } as const;
    assert.throws(() => answerSettings(contradiction), {
      code: "config_invalid",
      message: /--thinking true contradicts/,
    });
    assert.doesNotThrow(() => answerSettings({ ...contradiction, thinking: false }));
  });
});

describe("the request", () => {
  it("samples like a chat API request without parameters, with the configured seed", () => {
    const body = { messages: [{ role: "user" as const, content: "hi" }] };
    assert.deepEqual(request.sampling, askedRequest(body).sampling);
    assert.equal(chatRequest("tiny", [], answerSettings({ ...silent, seed: 7 })).sampling.seed, 7);
  });

  it("is answered by the base model, or with the adapter of an alias", () => {
    const adapterOf = (alias?: string) => chatRequest("tiny", [], answerSettings(silent), alias).adapter;
    assert.deepEqual([adapterOf(), adapterOf("code")], [null, { alias: "code" }]);
  });
});

describe("an answer", () => {
  const answerTo = async (script: Script) => {
    const written: string[] = [];
    const end = await streamAnswer(new FakeInference(script), request, never, {
      answer: async (part) => void written.push(part),
      thinking: async (part) => void written.push(`(${part})`),
    });
    return { written, end };
  };

  it("is written as it arrives and returned as a whole at its end", async () => {
    const { written, end } = await answerTo(() => [[text("a"), text("b")], [text("c")], [finish("stop"), done]]);
    assert.deepEqual(written, ["ab", "c"]);
    assert.deepEqual(end, { text: "abc", reason: "stop", usage, error: null });
  });

  it("keeps the reasoning before it separate", async () => {
    const { written, end } = await answerTo(() => [[reasoning("hm")], [reasoning("m"), text("a")], [finish(), done]]);
    assert.deepEqual(written, ["(hm)", "(m)", "a"]);
    assert.equal(end.text, "a");
  });

  it("that fails keeps its text and the error", async () => {
    const { end } = await answerTo(() => [[text("a")], [failure("model_failed")]]);
    assert.deepEqual([end.text, end.reason, end.error?.code], ["a", null, "model_failed"]);
  });

  it("that is interrupted has its text, no finish reason and no usage", async () => {
    const interrupt = new AbortController();
    const inference = new FakeInference(() => [[text("a")], { waitMs: 10_000 }, [text("b")]]);
    const end = await streamAnswer(inference, request, interrupt.signal, {
      answer: async () => void setImmediate(() => interrupt.abort()),
      thinking: async () => {},
    });
    assert.deepEqual(end, { text: "a", reason: null, usage: null, error: null });
    assert.equal(inference.lastRun.state, "cancelled");
  });
});

describe("the line about an answer's cost", () => {
  it("shows tokens, rate, time to the first token and prompt tokens", () => {
    assert.equal(usageLine(usage), "4 tokens, 2.0 tok/s, first token 500 ms, 8 prompt tokens");
  });

  it("has no rate if the time is zero", () => {
    const one = { ...usage, completionTokens: 1, promptTokens: 1, completionSeconds: 0 };
    assert.equal(usageLine(one), "1 token, first token 500 ms, 1 prompt token");
  });
});

describe("an output", () => {
  const create = (isTTY: boolean, environment = {}) => {
    const stream = Object.assign(new PassThrough(), { isTTY }) as PassThrough & OutputStream;
    return { stream, output: new Output(stream, environment) };
  };
  const textOf = (stream: PassThrough) => String(stream.read() ?? "");

  it("is coloured only on a terminal, and not with NO_COLOR", () => {
    assert.equal(create(true).output.dim("x"), "\x1b[2mx\x1b[0m");
    assert.equal(create(false).output.dim("x"), "x");
    assert.equal(create(true, { NO_COLOR: "1" }).output.dim("x"), "x");
    assert.equal(create(true, { TERM: "dumb" }).output.dim("x"), "x");
  });

  it("keeps a model from controlling a terminal, and writes unchanged text to a pipe", async () => {
    const said = "\x1b]0;title\x07a\tb\r\nc\u009b";
    assert.equal(withoutControls(said), "\ufffd]0;title\ufffda\tb\nc\ufffd");
    const terminal = create(true);
    await terminal.output.write(said);
    assert.equal(textOf(terminal.stream), withoutControls(said));
    const pipe = create(false);
    await pipe.output.write(said);
    assert.equal(textOf(pipe.stream), said);
  });

  it("ends a line only if one was begun", async () => {
    const { stream, output } = create(false);
    output.endLine();
    await output.write("a");
    output.endLine();
    await output.write("b\n");
    output.endLine();
    assert.equal(textOf(stream), "a\nb\n");
  });

  it("ends when its reader disconnects, and discards what is written then", async () => {
    const { stream, output } = create(false);
    stream.destroy(Object.assign(new Error("gone"), { code: "EPIPE" }));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(output.gone.aborted, true);
    await output.write("x");
    output.line("y");
    await output.flush();
  });

  it("waits for a slow reader, until it disconnects", async () => {
    const { stream, output } = create(false);
    const waiting = output.write("x".repeat(100_000));
    let isDone = false;
    waiting.then(() => {
      isDone = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(isDone, false);
    stream.destroy(new Error("gone"));
    await waiting;
  });
});

describe("one message", () => {
  const answerWith = async (script: Script) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const inference = new FakeInference(script);
    const outputs = { stdout: new Output(stdout, {}), stderr: new Output(stderr, {}) };
    const ended = answerOnce({ inference, request, signal: never, ...outputs });
    const error = await ended.then(
      () => null,
      (thrown: Error) => thrown.message,
    );
    return { error, stdout: String(stdout.read() ?? ""), stderr: String(stderr.read() ?? "") };
  };

  it("has only the answer on stdout and its cost on stderr", async () => {
    const { error, stdout, stderr } = await answerWith(() => [[text("hello")], [finish("stop"), done]]);
    assert.deepEqual([error, stdout], [null, "hello\n"]);
    assert.match(stderr, /^4 tokens, .*\n$/);
  });

  it("fails with the error of the answer after its text", async () => {
    const result = await answerWith(() => [[text("hel")], [failure("model_failed", "the engine died")]]);
    assert.deepEqual(result, { error: "the engine died", stdout: "hel\n", stderr: "" });
  });
});
