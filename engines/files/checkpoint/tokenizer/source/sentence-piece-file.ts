// SentencePiece file (tokenizer.model): a protocol buffer with pieces, their scores and types, and the rules of the
// normalizer. Unknown fields are skipped. Nothing beyond the end of the file or of a field is read.
import { ServerError } from "../../../../../runtime/errors.ts";
import { ProtobufReader } from "./protobuf-reader.ts";
import { maxTokens } from "./tokenizer-json.ts";

export interface Piece {
  readonly text: string;
  readonly score: number;
  /** Type of the piece. The numbers are those of GGUF's token types. */
  readonly type: number;
}

export interface SentencePieceFile {
  /** Path of the file. */
  readonly file: string;
  readonly kind: "Unigram" | "BPE";
  readonly pieces: readonly Piece[];
  readonly addsSpacePrefix: boolean;
  readonly removesExtraSpaces: boolean;
  /** Compiled map of replaced characters; empty = none are replaced. */
  readonly charactersMap: Uint8Array;
  /** Ids of special tokens; null = none. */
  readonly unknownId: number | null;
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly padId: number | null;
}

// Field numbers of sentencepiece_model.proto.
const model = { piece: 1, trainer: 2, normalizer: 3 };
const piece = { text: 1, score: 2, type: 3 };
const trainer = { kind: 3, isSuffixed: 24, unknown: 40, bos: 41, eos: 42, pad: 43 };
const normalizer = { map: 2, addsPrefix: 3, removesSpaces: 4, escapesSpaces: 5 };
const kinds: Readonly<Record<number, "Unigram" | "BPE">> = { 1: "Unigram", 2: "BPE" };
const lastType = 6;

/** Parses the content of a file. `file`: its path for errors. Throws `model_file_invalid`. */
export function parseSentencePiece(file: string, bytes: Uint8Array): SentencePieceFile {
  const pieces: Piece[] = [];
  let training = new Map<number, number>();
  let rules: Rules = { flags: new Map(), map: new Uint8Array(0) };
  const reader = new ProtobufReader(bytes, file);
  while (reader.next()) {
    if (reader.field === model.piece) pieces.push(parsePiece(reader.nested(`pieces[${pieces.length}]`)));
    if (reader.field === model.trainer) training = parseNumbers(reader.nested("trainer_spec"));
    if (reader.field === model.normalizer) rules = parseRules(reader.nested("normalizer_spec"));
    if (pieces.length > maxTokens) throw invalid(file, `pieces has more than ${maxTokens} pieces`);
  }
  if (pieces.length === 0) throw invalid(file, "pieces is missing; expected a SentencePiece model");
  const kind = kinds[training.get(trainer.kind) ?? 1];
  if (kind === undefined) throw invalid(file, "trainer_spec.model_type is neither Unigram nor BPE");
  if (training.get(trainer.isSuffixed)) throw invalid(file, "trainer_spec.treat_whitespace_as_suffix is not supported");
  if (rules.flags.get(normalizer.escapesSpaces) === 0) {
    throw invalid(file, "normalizer_spec.escape_whitespaces is off, which is not supported");
  }
  const id = (field: number, standard: number) => {
    const value = training.get(field) ?? standard;
    return value >= 0 && value < pieces.length ? value : null;
  };
  return {
    file,
    kind,
    pieces,
    addsSpacePrefix: rules.flags.get(normalizer.addsPrefix) !== 0,
    removesExtraSpaces: rules.flags.get(normalizer.removesSpaces) !== 0,
    charactersMap: rules.map,
    unknownId: id(trainer.unknown, 0),
    bosId: id(trainer.bos, 1),
    eosId: id(trainer.eos, 2),
    padId: id(trainer.pad, -1),
  };
}

function parsePiece(reader: ProtobufReader): Piece {
  let [text, score, type] = ["", 0, 1];
  while (reader.next()) {
    if (reader.field === piece.text) text = reader.text();
    else if (reader.field === piece.score) score = reader.float();
    else if (reader.field === piece.type) type = reader.integer();
  }
  if (type < 1 || type > lastType) throw reader.invalid(`has type ${type}; expected 1 to ${lastType}`);
  return { text, score, type };
}

/** Returns the whole numbers of a message by field. */
function parseNumbers(reader: ProtobufReader): Map<number, number> {
  const numbers = new Map<number, number>();
  while (reader.next()) if (reader.isInteger) numbers.set(reader.field, reader.integer());
  return numbers;
}

interface Rules {
  readonly flags: ReadonlyMap<number, number>;
  readonly map: Uint8Array;
}

function parseRules(reader: ProtobufReader): Rules {
  const flags = new Map<number, number>();
  let map: Uint8Array = new Uint8Array(0);
  while (reader.next()) {
    if (reader.isInteger) flags.set(reader.field, reader.integer());
    else if (reader.field === normalizer.map) map = Uint8Array.from(reader.bytes());
  }
  return { flags, map };
}

function invalid(file: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${file}: ${problem}; fetch it again, or use a tokenizer.json`);
}
