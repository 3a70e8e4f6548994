// Stored checkpoints for tests: any tensors of any type, in one file or several.

import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export interface StoredTensor {
  readonly type: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export type StoredTensors = Readonly<Record<string, StoredTensor>>;

/** Returns the bytes of a safetensors file. */
export function safetensors(tensors: StoredTensors): Buffer {
  let end = 0;
  const head = Object.entries(tensors).map(([name, { type, shape, bytes }]) => {
    const start = end;
    end += bytes.length;
    return [name, { dtype: type, shape, data_offsets: [start, end] }];
  });
  const json = Buffer.from(JSON.stringify(Object.fromEntries(head)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...Object.values(tensors).map(({ bytes }) => bytes)]);
}

export function floats(shape: readonly number[], value: (i: number) => number = (i) => i): StoredTensor {
  const count = shape.reduce((product, length) => product * length, 1);
  return { type: "F32", shape, bytes: new Uint8Array(Float32Array.from({ length: count }, (_, i) => value(i)).buffer) };
}

/** Writes a folder with config.json and one safetensors file. */
export async function writeFolder(folder: string, config: unknown, tensors: StoredTensors): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  await writeFile(join(folder, "model.safetensors"), safetensors(tensors));
}

/** Tensor pattern in the cases of test/fixtures/checkpoints: "*" stands for each layer, "#" for each expert. */
type TensorPattern = [pattern: string, shape: number[], layers: number[] | null, experts: number | null];

/** Returns the config and the tensors of a case. */
export function caseContent(name: string): { config: Record<string, unknown>; tensors: StoredTensors } {
  const url = new URL(`../../../../../test/fixtures/checkpoints/cases/${name}.json`, import.meta.url);
  const { config, tensors } = JSON.parse(readFileSync(fileURLToPath(url), "utf8"));
  const all: Record<string, StoredTensor> = {};
  for (const [pattern, shape, layers, experts] of tensors as TensorPattern[]) {
    for (const layer of layers ?? [0]) {
      for (let expert = 0; expert < (experts ?? 1); expert++) {
        all[pattern.replace("*", String(layer)).replace("#", String(expert))] = floats(shape);
      }
    }
  }
  return { config, tensors: all };
}
