// Verification of UQFF files: reads all weights of a model, and checks them against the config.json and the report in the same
// folder.
import { basename, dirname, join } from "node:path";
import { type Checkpoint, openCheckpoint } from "../../../engines/files/checkpoint/checkpoint.ts";
import { readJsonObject } from "../../../engines/files/checkpoint/json-file.ts";
import type { TypedValue } from "../../../engines/files/gguf/typed-value.ts";
import { readUqff, type UqffFiles } from "../../../engines/files/uqff/uqff-files.ts";
import { checkValues } from "../../../engines/quantization/rows/check-values.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { outputOf, reportFile } from "./report.ts";

export interface Verification {
  readonly layers: number;
  /** Messages about the errors found; empty if there are none. */
  readonly errors: readonly string[];
}

/** Names of the matrices with `hidden_size` columns (`inputs`), and of the matrices with `hidden_size` rows (`outputs`). */
const inputs = /^(?:token_embd|output|blk\.\d+\.(?:attn_[qkv]|ffn_(?:gate|up)(?:_exps)?))\.weight$/;
const outputs = /^blk\.\d+\.(?:attn_output|ffn_down(?:_exps)?)\.weight$/;

/**
 * Checks the shards of a quantization. `path`: path of the first shard. `onTensor` is called with the number of tensors read so
 * far.
 */
export async function verify(path: string, onTensor: (done: number, total: number) => void): Promise<Verification> {
  let files: UqffFiles;
  let checkpoint: Checkpoint;
  try {
    files = await readUqff(path);
    checkpoint = await openCheckpoint(dirname(path), { uqff: path });
  } catch (error) {
    if (error instanceof ServerError) return { layers: 0, errors: [error.message] };
    throw error;
  }
  const errors = [...shapeErrors(checkpoint), ...(await reportErrors(path, files))];
  const tensors = checkpoint.tensors.filter(({ from }) => from.length > 0);
  let done = 0;
  for (const [name, wrong] of checkValues(checkpoint.files, tensors)) {
    onTensor(++done, tensors.length);
    const source = tensors.find((tensor) => tensor.name === name)?.from[0]?.name;
    if (wrong !== null) errors.push(`the tensor "${source}" has the value ${wrong}; expected numbers`);
  }
  return { layers: files.layers.length, errors };
}

function shapeErrors({ architecture, pairs, tensors }: Checkpoint): string[] {
  const width = numberOf(pairs.get(`${architecture}.embedding_length`));
  return tensors.flatMap(({ name, shape, from }) => {
    const at = inputs.test(name) ? 0 : outputs.test(name) ? 1 : -1;
    if (at < 0 || shape[at] === width) return [];
    return [
      `the tensor "${from[0]?.name}" has ${shape[at]} ${at === 0 ? "columns" : "rows"}; expected ${width}, the hidden_size of config.json`,
    ];
  });
}

function numberOf(value: TypedValue | undefined): number {
  return typeof value?.value === "number" ? value.value : Number.NaN;
}

/** Compares the report with the files. Returns messages about the differences; empty if there is no report. */
async function reportErrors(path: string, { files, layers }: UqffFiles): Promise<string[]> {
  const report = await readJsonObject(join(dirname(path), reportFile));
  const all: unknown = report?.outputs;
  const shards = files.slice(0, -1).map((file) => basename(file));
  const outputs = Array.isArray(all) ? (all as readonly Record<string, unknown>[]) : [];
  const output = outputs.find(({ shards: names }) => Array.isArray(names) && names.includes(basename(path)));
  if (output === undefined) return [];
  const { actual_counts: counted } = outputOf("", shards, layers);
  const errors: string[] = [];
  if (String(output.shards) !== String(shards))
    errors.push(`${reportFile} names the shards ${output.shards}; there are ${shards}`);
  if (output.layers !== layers.length)
    errors.push(`${reportFile} says ${output.layers} layers; the shards have ${layers.length}`);
  const said = JSON.stringify(sorted(output.actual_counts));
  const found = JSON.stringify(sorted(counted));
  if (said !== found) errors.push(`${reportFile} says that the layers are ${said}; they are ${found}`);
  return errors;
}

function sorted(counts: unknown): [string, unknown][] {
  return Object.entries(counts ?? {}).sort(([one], [other]) => (one < other ? -1 : 1));
}
