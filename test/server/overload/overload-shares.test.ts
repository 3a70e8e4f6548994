// Slot shares: a client arrives while another client holds every slot with long responses. The new client is served first,
// and the long responses still complete. Tested on the real command with the generated model.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import OpenAI from "openai";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

/** Number of tokens whose generation takes several times slot_share_secs. */
const long = 8000;
const slots = 2;

const clientOf = ({ url }: RunningServer, apiKey: string) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 300_000 });

async function answer(client: OpenAI, maxTokens: number, begun: () => void): Promise<{ text: string; tokens: number }> {
  const stream = await client.chat.completions.create({
    model: "default",
    messages: [{ role: "user", content: "hi" }],
    max_tokens: maxTokens,
    temperature: 0,
    stream: true,
    ...{ ignore_eos: true },
  });
  let text = "";
  let tokens = 0;
  for await (const { choices, usage } of stream) {
    if (text === "") begun();
    text += choices[0]?.delta.content ?? "";
    tokens = usage?.completion_tokens ?? tokens;
  }
  return { text, tokens };
}

describe("a client that arrives while another one holds all slots", () => {
  let server: RunningServer;
  before(async () => {
    const size = ["--max-seqs", String(slots), "--max-model-len", "16384"];
    server = await startServer(["-m", await tinyModel(), "--threads", "1", "--slot-share-secs", "1", ...size]);
  });
  after(() => server.stop());

  it("is answered before the other responses end, whose texts stay unchanged", async () => {
    const [greedy, other] = [clientOf(server, "greedy"), clientOf(server, "other")];
    const ends: string[] = [];
    const ended = async <T>(name: string, work: Promise<T>): Promise<T> => {
      const result = await work;
      ends.push(name);
      return result;
    };
    const begun: Promise<void>[] = [];
    const answers = Array.from({ length: slots }, (_, i) => {
      let begin = (): void => {};
      begun.push(
        new Promise<void>((resolve) => {
          begin = resolve;
        }),
      );
      return ended(`long ${i}`, answer(greedy, long, begin));
    });
    await Promise.all(begun);
    const short = await ended(
      "short",
      answer(other, 5, () => {}),
    );
    assert.equal(short.tokens, 5);
    const [first, second] = await Promise.all(answers);
    assert.equal(ends[0], "short");
    assert.deepEqual([first?.tokens, second?.tokens], [long, long]);
    assert.equal(first?.text, second?.text);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    assert.match(metrics, /^service_share_preemptions_total [1-9]/m);
  });
});
