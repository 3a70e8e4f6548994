// Older tokenizer files: vocab.txt, and vocab.json with merges.txt. They do not say how text is split into words; this depends on the
// tokenizer's class. The result has the form of a tokenizer.json.
import { join } from "node:path";
import { JsonField } from "../../../json-field.ts";
import type { TokenizerFolder } from "./tokenizer-folder.ts";
import { parseTokenizerJson, type TokenizerJson } from "./tokenizer-json.ts";

interface Configs {
  readonly config: JsonField | null;
  readonly modelConfig: JsonField | null;
  readonly names: ReadonlyMap<string, string>;
}

const qwen2Words =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const gpt2Steps = { pre_tokenizer: { type: "ByteLevel" } };
const qwen2Steps = {
  normalizer: { type: "NFC" },
  pre_tokenizer: {
    type: "Sequence",
    pretokenizers: [
      { type: "Split", pattern: { Regex: qwen2Words }, behavior: "Isolated" },
      { type: "ByteLevel", use_regex: false },
    ],
  },
};

/** Steps of byte-level tokenizers, by the class of the tokenizer or the type of the model. */
const stepsByName: Readonly<Record<string, object>> = {
  GPT2Tokenizer: gpt2Steps,
  RobertaTokenizer: gpt2Steps,
  CodeGenTokenizer: gpt2Steps,
  WhisperTokenizer: gpt2Steps,
  Qwen2Tokenizer: qwen2Steps,
  gpt2: gpt2Steps,
  roberta: gpt2Steps,
  codegen: gpt2Steps,
  whisper: gpt2Steps,
  qwen2: qwen2Steps,
  qwen2_moe: qwen2Steps,
  qwen3: qwen2Steps,
};

/** Returns the tokenizer of the older files; null if the folder has none of them. */
export async function olderTokenizer(folder: TokenizerFolder, configs: Configs): Promise<TokenizerJson | null> {
  const words = await folder.text("vocab.txt");
  if (words !== null) return wordPieces(join(folder.path, "vocab.txt"), words, configs);
  const [vocabulary, merges] = await Promise.all([folder.json("vocab.json"), folder.text("merges.txt")]);
  return vocabulary === null || merges === null ? null : bytePairs(vocabulary, merges, configs);
}

function wordPieces(path: string, words: string, { config, names }: Configs): TokenizerJson {
  const vocab = Object.create(null) as Record<string, number>;
  for (const [id, word] of words.replace(/\n$/, "").split("\n").entries()) vocab[word.replace(/\r$/, "")] = id;
  const flag = (key: string) => config?.get(key).flag() ?? null;
  const [first, last] = [names.get("cls") ?? "[CLS]", names.get("sep") ?? "[SEP]"];
  const root = {
    model: { type: "WordPiece", vocab: { ...vocab }, unk_token: names.get("unk") ?? "[UNK]" },
    normalizer: {
      type: "BertNormalizer",
      lowercase: flag("do_lower_case") ?? true,
      strip_accents: flag("strip_accents"),
      handle_chinese_chars: flag("tokenize_chinese_chars") ?? true,
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: { type: "BertProcessing", cls: [first, 0], sep: [last, 0] },
  };
  return parseTokenizerJson(new JsonField(path, "", root));
}

function bytePairs(vocabulary: JsonField, merges: string, { config, modelConfig, names }: Configs): TokenizerJson {
  const known = config?.get("tokenizer_class") ?? new JsonField(vocabulary.file, "tokenizer_class", undefined);
  const name = known.text()?.replace(/Fast$/, "") ?? modelConfig?.get("model_type").text() ?? "";
  const steps = Object.hasOwn(stepsByName, name) ? stepsByName[name] : undefined;
  if (steps === undefined) {
    throw known.invalid(
      `is ${JSON.stringify(name.slice(0, 64))}, which does not say how text is cut; add the model's tokenizer.json`,
    );
  }
  const lines = merges
    .split(/\r?\n/)
    .filter((line, index) => line !== "" && !(index === 0 && line.startsWith("#version")));
  const root = {
    model: { type: "BPE", vocab: vocabulary.value, merges: lines, unk_token: names.get("unk") ?? null },
    ...steps,
    ...(name.startsWith("Roberta") || name === "roberta" ? robertaWrapping(names) : {}),
  };
  return parseTokenizerJson(new JsonField(vocabulary.file, "", root));
}

function robertaWrapping(names: ReadonlyMap<string, string>): object {
  const [first, last] = [names.get("cls") ?? "<s>", names.get("sep") ?? "</s>"];
  return { post_processor: { type: "RobertaProcessing", cls: [first, 0], sep: [last, 0] } };
}
