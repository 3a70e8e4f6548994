// Phonemes of a sentence in the International Phonetic Alphabet, from espeak-ng. Its output has no punctuation, so a sentence is split into
// clauses, and the punctuation mark after each clause is kept: models pause at it, and raise the voice at a question mark.
import { runEspeak } from "./espeak-process.ts";

const clausePattern = /[^,;:.!?…—]+(?:[,;:.!?…—](?!\s|$)[^,;:.!?…—]*)*(?:[,;:.!?…—"'»”)\]]+(?=\s|$))?|[^\s]+/gu;
const markPattern = /[,;:.!?…—]/u;

interface Clause {
  readonly text: string;
  /** Punctuation mark after the clause; "" = none. */
  readonly mark: string;
}

/** Returns the phonemes of a sentence. `tie`: character between the letters of one phoneme, such as d and ʒ in "joke"; "" = none. */
export async function phonemesOf(sentence: string, voice: string, signal: AbortSignal, tie = ""): Promise<string> {
  const clauses = clausesOf(sentence);
  const flags = ["-q", "--ipa", ...(tie === "" ? [] : [`--tie=${tie}`]), "-v", voice];
  const spoken = await Promise.all(
    clauses.map(async ({ text, mark }) => {
      const output = await runEspeak(flags, text, signal);
      return (
        output
          .toString()
          .trim()
          .replaceAll(/\s+/gu, " ")
          .replaceAll(/\([a-z-]+\)/gu, "") + mark
      );
    }),
  );
  return spoken.join(" ");
}

/** Returns the clauses of a sentence. The last clause always has a mark, so that the voice ends the sentence. */
export function clausesOf(sentence: string): readonly Clause[] {
  const clauses: Clause[] = [];
  for (const [piece] of sentence.matchAll(clausePattern)) {
    if (!/[\p{L}\p{N}]/u.test(piece)) continue;
    const end = /[,;:.!?…—"'»”)\]]+$/u.exec(piece.trim())?.[0] ?? "";
    const mark = markPattern.exec(end)?.[0] ?? "";
    clauses.push({ text: piece.trim(), mark: mark === "…" ? "." : mark === "—" ? "," : mark });
  }
  const last = clauses.at(-1);
  if (last !== undefined && last.mark === "") clauses[clauses.length - 1] = { ...last, mark: "." };
  return clauses;
}
