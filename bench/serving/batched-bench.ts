// Upper bound of the speed, measured by llama-batched-bench: llama.cpp only, with as many sequences as the load and its mean
// prompt and response lengths, without sampling, text or HTTP.
import { ServerError } from "../../runtime/errors.ts";
import { output } from "../command.ts";
import { layersOnGpu } from "../engine/peers.ts";

export interface BoundOptions {
  readonly program: string;
  readonly modelFile: string;
  readonly threads: number;
  readonly context: number;
  readonly gpu: boolean;
}

export interface BoundShape {
  readonly sequences: number;
  readonly promptTokens: number;
  readonly newTokens: number;
}

/** Returns the output tokens per second. The time includes prefill and decode. */
export async function boundRate(options: BoundOptions, shape: BoundShape): Promise<number> {
  const { program, modelFile, threads, context, gpu } = options;
  const { sequences, promptTokens, newTokens } = shape;
  const sizes = [
    "-npp",
    promptTokens,
    "-ntg",
    newTokens,
    "-npl",
    sequences,
    "-c",
    context,
    "-t",
    threads,
    "-tb",
    threads,
  ];
  const text = await output(program, [
    "-m",
    modelFile,
    ...sizes.map(String),
    ...layersOnGpu(gpu),
    "--output-format",
    "jsonl",
  ]);
  const line = text.split("\n").find((candidate) => candidate.startsWith("{"));
  if (line === undefined) throw new ServerError("internal", `expected a line of JSON from ${program}; got:\n${text}`);
  const { t_pp, t_tg } = JSON.parse(line) as { t_pp: number; t_tg: number };
  return (sequences * newTokens) / (t_pp + t_tg);
}
