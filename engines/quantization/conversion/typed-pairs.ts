// Typed pairs: the key/value pairs of a GGUF file with their types, to write them into another file.
import { Cursor, type GgufValue } from "../../files/gguf/cursor.ts";
import { damagedFile } from "../../files/gguf/invalid-file.ts";
import { readHeadBytes } from "../../files/gguf/reader.ts";
import { numberTypes, type TypedValue } from "../../files/gguf/typed-value.ts";

const boolType = 7;
const stringType = 8;
const arrayType = 9;
const names: ReadonlyMap<number, string> = new Map([
  ...Object.entries(numberTypes).map(([name, type]) => [type, name] as const),
  [boolType, "bool"],
  [stringType, "string"],
]);

/** Reads the pairs in the order of the file, with their exact bytes. Throws `model_file_invalid`. */
export async function readTypedPairs(path: string): Promise<ReadonlyMap<string, TypedValue>> {
  const { bytes, fileBytes } = await readHeadBytes(path);
  const cursor = new Cursor(Buffer.from(bytes), fileBytes, path);
  cursor.advance(4 + 4 + 8);
  const pairs = new Map<string, TypedValue>();
  for (let left = cursor.u64(); left > 0; left--) {
    const key = cursor.string();
    pairs.set(key, readValue(cursor, key));
  }
  return pairs;
}

function readValue(cursor: Cursor, key: string): TypedValue {
  const type = cursor.u32();
  const start = cursor.offset;
  if (type !== arrayType) {
    const value = cursor.value(type);
    return { type: nameOf(cursor, key, type), value, exact: cursor.slice(start) } as TypedValue;
  }
  const elementType = cursor.u32();
  cursor.offset = start;
  const value = cursor.value(type) as readonly GgufValue[];
  return { type: "array", of: nameOf(cursor, key, elementType), value, exact: cursor.slice(start) } as TypedValue;
}

function nameOf(cursor: Cursor, key: string, type: number): string {
  const name = names.get(type);
  if (name !== undefined) return name;
  throw damagedFile(cursor.path, `its "${key}" has a value of type ${type}, which cannot be copied`);
}
