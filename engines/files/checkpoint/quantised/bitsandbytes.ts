// bitsandbytes: NF4 and FP4 in blocks, with plain or nested scales, and 8-bit integers.
import { open } from "node:fs/promises";
import { isObject, type JsonObject } from "../config.ts";
import { reshaped } from "../row-changes.ts";
import type { RowSource, StoredRows } from "../row-source.ts";
import type { SourceTensor } from "../tensor-map.ts";
import type { Method, OpenTensors } from "./method.ts";
import { rowScaled } from "./scaled.ts";

const stateEndings = [".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"];
const maxStateBytes = 64 * 1024;

export const bitsandbytes: Method = async (tensors) => {
  const made: SourceTensor[] = [];
  for (const ending of stateEndings) {
    for (const stem of tensors.stems(ending)) made.push(await fourBit(tensors, stem, ending));
  }
  for (const stem of tensors.stems(".SCB")) {
    const weight = tensors.take(`${stem}.weight`);
    const rows = tensors.rows(weight);
    const source = rowScaled(rows, tensors.takeRows(`${stem}.SCB`, [rows.rows]));
    made.push({ name: weight.name, rows: source, shape: weight.shape.toReversed(), storedType: 1 });
  }
  tensors.drop(".weight_format");
  return made;
};

async function fourBit(tensors: OpenTensors, stem: string, ending: string): Promise<SourceTensor> {
  const name = `${stem}.weight`;
  const state = await readState(tensors, `${stem}${ending}`);
  const [rows, columns] = shapeOf(tensors, name, state);
  const codes = tensors.rows(tensors.take(name));
  const table = tensors.takeRows(`${name}.quant_map`, [16]);
  const blockLength = countIn(tensors, name, state, "blocksize");
  const scales = readScales(tensors, name, state);
  const hasAll = codes.rows * codes.columns * 2 === rows * columns;
  if (!hasAll || scales.columns !== Math.ceil((rows * columns) / blockLength)) {
    throw tensors.invalid(name, `it has ${codes.rows * codes.columns} bytes for ${rows} x ${columns} numbers`);
  }
  const source: RowSource = {
    kind: "codebook",
    codes: reshaped(codes, codes.rows * codes.columns) as StoredRows,
    ...{ table, scales, blockLength, rows, columns },
  };
  return { name, rows: source, shape: [columns, rows], storedType: state.dtype === "bfloat16" ? 30 : 1 };
}

/** Returns the scales as one row. Nested scales are bytes that index a table, and have scales themselves. */
function readScales(tensors: OpenTensors, name: string, state: JsonObject): RowSource {
  const scales = tensors.takeRows(`${name}.absmax`, [null]);
  if (!tensors.peek(`${name}.nested_absmax`)) return scales;
  const offset = state.nested_offset;
  if (typeof offset !== "number") throw tensors.invalid(name, "its state has no nested_offset");
  return {
    kind: "lookedUp",
    codes: scales,
    table: tensors.takeRows(`${name}.nested_quant_map`, [256]),
    scales: tensors.takeRows(`${name}.nested_absmax`, [null]),
    blockLength: countIn(tensors, name, state, "nested_blocksize"),
    offset,
    ...{ rows: 1, columns: scales.columns },
  };
}

async function readState(tensors: OpenTensors, name: string): Promise<JsonObject> {
  const { file, offset, bytes } = tensors.take(name);
  if (bytes > maxStateBytes) throw tensors.invalid(name, `it has ${bytes} bytes`);
  const handle = await open(tensors.model.files[file] as string, "r");
  try {
    const { buffer } = await handle.read(Buffer.alloc(bytes), { position: offset });
    const state: unknown = JSON.parse(buffer.toString("utf8"));
    if (isObject(state)) return state;
    throw new SyntaxError("not an object");
  } catch (error) {
    throw error instanceof SyntaxError ? tensors.invalid(name, "it is not a JSON object") : error;
  } finally {
    await handle.close();
  }
}

function shapeOf(tensors: OpenTensors, name: string, { shape }: JsonObject): [rows: number, columns: number] {
  const isShape = Array.isArray(shape) && shape.length === 2 && shape.every((one) => Number.isInteger(one) && one > 0);
  if (!isShape) throw tensors.invalid(name, "its state has no shape of a matrix");
  return [shape[0], shape[1]];
}

function countIn(tensors: OpenTensors, name: string, state: JsonObject, field: string): number {
  const value = state[field];
  if (typeof value === "number" && Number.isInteger(value) && value > 0) return value;
  throw tensors.invalid(name, `its state has no ${field}`);
}
