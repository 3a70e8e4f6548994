// Benchmark of a single stream: decode rate of one client over HTTP, relative to the rate of the step loop without HTTP, in
// alternating rounds.
import { request } from "node:http";
import { performance } from "node:perf_hooks";
import { median, type Row, table } from "../../../cli/bench/report.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { output, parseFlags, troupe } from "../../command.ts";
import { report } from "../../results.ts";
import { startTroupe } from "../servers.ts";

const newTokens = 256;
const question = "Tell a long story about a lighthouse.";

export const usage = `npm run bench -- stream [FLAGS]: decode rate over HTTP, relative to the step loop without HTTP

  --model ID --rounds 5 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const { model, rounds, save } = await parseFlags(argv, 5);
  const server = await startTroupe({ model, threads: 2, sequences: 32, context: 32 * 1024, flags: [] });
  try {
    const warm = await streamOnce(server.url);
    const through: number[] = [];
    const alone: number[] = [];
    for (let round = 0; round < rounds; round++) {
      alone.push(await engineRate(model, warm.promptTokens));
      through.push((await streamOnce(server.url)).tokensPerSecond);
    }
    const ratio = median(through.map((rate, round) => rate / (alone[round] as number)));
    report(
      {
        name: "stream",
        title: "One streaming client over the engine's own decode rate",
        method:
          `${rounds} alternating rounds, medians (of paired ratios); ${warm.promptTokens} tokens in, ${newTokens} out, greedy, ` +
          "2 threads; server and client on the same cores. First to last token.",
        body: table(
          ["what", "tokens/s"],
          [
            ["step loop alone", median(alone).toFixed(1)],
            ["through HTTP", median(through).toFixed(1)],
            ["ratio", ratio.toFixed(3)],
          ],
        ),
      },
      save,
    );
  } finally {
    await server.stop();
  }
}

async function engineRate(model: string, depth: number): Promise<number> {
  const flags = ["--gen-len", String(newTokens), "--depth", String(depth), "--prompt-len", "16", "--max-seqs", "1"];
  const rounds = ["--iterations", "1", "--warmup", "1", "--threads", "2", "--cpu", "--json"];
  const text = await output(process.execPath, [troupe, "bench", "-m", model, ...flags, ...rounds]);
  const { rows } = JSON.parse(text) as { rows: Row[] };
  const decode = rows.find(({ kind }) => kind === "decode");
  if (decode) return decode.tokensPerSecond;
  throw new ServerError("internal", `expected a decode row; got ${text}`);
}

interface Streamed {
  readonly tokensPerSecond: number;
  readonly promptTokens: number;
}

/** Sends one request. The client does as little work as possible. */
function streamOnce(url: string): Promise<Streamed> {
  const body = JSON.stringify({
    messages: [{ role: "user", content: question }],
    stream: true,
    temperature: 0,
    max_tokens: newTokens,
    ignore_eos: true,
  });
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const sent = request(`${url}/v1/chat/completions`, { method: "POST", headers }, (response) => {
      let first = 0;
      let last = 0;
      let tail = "";
      response.on("data", (data: Buffer) => {
        const now = performance.now();
        first ||= now;
        if (data.includes("content")) last = now;
        tail = (tail + data.toString("latin1")).slice(-2000);
      });
      response.on("end", () => {
        const count = (name: string) => Number(new RegExp(`"${name}":(\\d+)`).exec(tail)?.[1]);
        const tokens = count("completion_tokens") - 1;
        resolve({ tokensPerSecond: (tokens / (last - first)) * 1000, promptTokens: count("prompt_tokens") });
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
