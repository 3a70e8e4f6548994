// SentencePiece file: a model file with only a vocabulary: control tokens, all bytes, then the pieces below.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buildGgufHeader, type GGUFTypedMetadata, GGUFValueType } from "@huggingface/gguf";
import { inTemporaryFolder } from "../../files/gguf/gguf-bytes.ts";

export const sentencePieces = ["▁", "▁ab", "ab", "a", "b", "{", '"', "▁名前", "名", "</tool>"];
export const firstPiece = 3 + 256;
export const endToken = 2;

const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

/** Writes the file, calls `use` with its path, and removes the file. */
export function withSentencePieceFile<T>(use: (path: string) => Promise<T>): Promise<T> {
  return inTemporaryFolder(async (folder) => {
    const path = join(folder, "vocabulary.gguf");
    const header = await buildGgufHeader(new Blob([]), metadata(), { littleEndian: true, tensorInfoByteRange: [0, 0] });
    await writeFile(path, Buffer.from(await header.arrayBuffer()));
    return use(path);
  });
}

function metadata(): GGUFTypedMetadata {
  const tokens = ["<unk>", "<s>", "</s>", ...bytes, ...sentencePieces];
  // Token types: 2 unknown, 3 control, 6 byte, 1 normal, 4 user-defined (the last token).
  const types = tokens.map((_, token) => {
    if (token < 3) return token === 0 ? 2 : 3;
    if (token < firstPiece) return 6;
    return token === tokens.length - 1 ? 4 : 1;
  });
  const list = (value: readonly (string | number)[], subType: GGUFValueType) => ({
    value: [...value],
    type: GGUFValueType.ARRAY,
    subType,
  });
  const fields = {
    version: { value: 3, type: GGUFValueType.UINT32 },
    tensor_count: { value: 0n, type: GGUFValueType.UINT64 },
    kv_count: { value: 6n, type: GGUFValueType.UINT64 },
    "general.architecture": { value: "llama", type: GGUFValueType.STRING },
    "tokenizer.ggml.model": { value: "llama", type: GGUFValueType.STRING },
    "tokenizer.ggml.tokens": list(tokens, GGUFValueType.STRING),
    "tokenizer.ggml.token_type": list(types, GGUFValueType.INT32),
    "tokenizer.ggml.scores": list(
      tokens.map((text, token) => (token < firstPiece ? 0 : text.length)),
      GGUFValueType.FLOAT32,
    ),
    "tokenizer.ggml.eos_token_id": { value: endToken, type: GGUFValueType.UINT32 },
  };
  return fields as unknown as GGUFTypedMetadata;
}
