// GGUF adapter: reads a LoRA adapter from a GGUF file written by llama.cpp's converter, and checks it against the
// model. Matrix names and row order already match the model file. Only the header is read here; the values are read when
// the prepared adapter is written.
import { describeValue, quote } from "../gguf/invalid-file.ts";
import { readOpenHead } from "../gguf/reader.ts";
import { placeTensors, type TensorInfo, type TensorTable, tensorTypes } from "../gguf/tensors.ts";
import { asInvalidAdapter, invalidAdapter } from "./adapter-problems.ts";
import { type FloatSpan, type FloatType, type LoraPair, matrixShape } from "./lora-pair.ts";
import type { SourceFile } from "./source-file.ts";

interface Halves {
  a?: TensorInfo;
  b?: TensorInfo;
}

type Head = Awaited<ReturnType<typeof readOpenHead>>;

const floatTypes: ReadonlyMap<number, FloatType> = new Map([
  [0, "F32"],
  [1, "F16"],
  [30, "BF16"],
]);

/**
 * Names of matrices that an adapter may change. Other tensors, such as the token embeddings, are not used in a matrix
 * product, so engines would silently ignore changes to them.
 */
const changeable = /^(?:blk\.\d+\..+|output)\.weight$/;

/** Reads the header of an adapter. Throws `invalid_lora_adapter` if it does not fit the model. */
export async function readGgufAdapter(file: SourceFile, model: TensorTable): Promise<LoraPair[]> {
  await checkMagic(file);
  const isKept = (key: string) => key.startsWith("general.") || key.startsWith("adapter.");
  const { head, tensors } = await asInvalidAdapter(async () => {
    const found = await readOpenHead(file.handle, "the file", isKept);
    return { head: found, tensors: placeTensors("the file", found, 0) };
  });
  checkKind(head, model);
  const alpha = alphaOf(head);
  return [...pairUp(tensors)].map(([name, halves]) => pairOf(name, halves, { alpha, file, model }));
}

async function checkMagic(file: SourceFile): Promise<void> {
  const magic = Buffer.alloc(Math.min(4, file.size));
  await file.read(magic, 0);
  if (magic.toString("latin1") === "GGUF") return;
  throw invalidAdapter("it is a file, but not in GGUF format; name a PEFT folder or a GGUF adapter");
}

function checkKind({ pairs }: Head, model: TensorTable): void {
  const expected = new Map([
    ["general.type", "adapter"],
    ["adapter.type", "lora"],
    ["general.architecture", model.fields.get("general.architecture")],
  ]);
  for (const [key, value] of expected) {
    if (pairs.get(key) === value) continue;
    throw invalidAdapter(`its ${key} is ${describeValue(pairs.get(key))}; the model needs ${describeValue(value)}`);
  }
  if (pairs.has("adapter.alora.invocation_tokens")) {
    throw invalidAdapter("it is activated by tokens (aLoRA), which is not supported");
  }
}

/** Returns the adapter's alpha; 0: the matrices are not scaled. */
function alphaOf({ pairs }: Head): number {
  const alpha = pairs.get("adapter.lora.alpha") ?? 0;
  if (typeof alpha === "number" && Number.isFinite(alpha)) return alpha;
  throw invalidAdapter(`its adapter.lora.alpha is ${describeValue(alpha)}; expected a number`);
}

function pairUp(tensors: readonly TensorInfo[]): Map<string, Halves> {
  const pairs = new Map<string, Halves>();
  for (const tensor of tensors) {
    const [, name, half] = /^(.+)\.lora_([ab])$/.exec(tensor.name) ?? [];
    if (name === undefined)
      throw invalidAdapter(`its tensor ${quote(tensor.name)} is not a LoRA tensor, which is not supported`);
    const halves = pairs.get(name) ?? {};
    if (halves[half as "a" | "b"]) throw invalidAdapter(`it has the tensor ${quote(tensor.name)} twice`);
    halves[half as "a" | "b"] = tensor;
    pairs.set(name, halves);
  }
  return pairs;
}

interface Surroundings {
  readonly alpha: number;
  readonly file: SourceFile;
  readonly model: TensorTable;
}

function pairOf(name: string, { a, b }: Halves, { alpha, file, model }: Surroundings): LoraPair {
  if (!a || !b)
    throw invalidAdapter(`it has lora_${a ? "a" : "b"} of ${quote(name)}, but lora_${a ? "b" : "a"} is missing`);
  if (!changeable.test(name)) {
    throw invalidAdapter(`it changes ${quote(name)}: only layers and the output can be changed`);
  }
  const shape = matrixShape(model, name);
  if (!shape) throw invalidAdapter(`it changes ${quote(name)}, which is not a matrix of the model`);
  const rank = a.shape[1] ?? 1;
  checkShape(a, [shape.columns, rank], name);
  checkShape(b, [rank, shape.rows], name);
  const scale = alpha === 0 ? 1 : alpha / rank;
  return { name, ...shape, rank, scale, turnedHeads: 0, a: spanOf(a, file), b: spanOf(b, file) };
}

function checkShape({ name, shape }: TensorInfo, expected: readonly [number, number], matrix: string): void {
  const [columns, rows, ...more] = shape;
  if (columns === expected[0] && (rows ?? 1) === expected[1] && more.every((length) => length === 1)) return;
  throw invalidAdapter(
    `its tensor ${quote(name)} is ${shape.join(" x ")}; expected ${expected.join(" x ")} to fit ${matrix} of the model`,
  );
}

function spanOf({ name, type, shape, offset }: TensorInfo, file: SourceFile): FloatSpan {
  const floatType = floatTypes.get(type);
  if (!floatType) {
    const given = tensorTypes.get(type)?.name ?? type;
    throw invalidAdapter(`its tensor ${quote(name)} has type ${given}; expected F32, F16 or BF16`);
  }
  return {
    file,
    name: quote(name),
    type: floatType,
    offset,
    count: shape.reduce((product, length) => product * length, 1),
  };
}
