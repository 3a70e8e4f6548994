// Judge of everyday answers: checks whether an answer ended before the token limit, repeats itself, and follows the instruction.
import type { EverydayPrompt } from "./prompts.ts";

/** An answer loops if a sequence of `loopWords` words occurs at least `loopCount` times. */
const loopWords = 6;
const loopCount = 4;
/** Number of characters at the start of an answer that show whether the instruction is followed. */
const openingLength = 200;

export interface Verdict {
  readonly isEnded: boolean;
  readonly isLoop: boolean;
  readonly isFollowed: boolean;
}

/** Judges an answer. `isEnded`: the answer was not cut off by the token limit. */
export function judge({ isFollowed }: EverydayPrompt, text: string, isEnded: boolean): Verdict {
  return { isEnded, isLoop: loops(text), isFollowed: isFollowed(openingOf(text)) };
}

/** Returns whether six consecutive words occur four times. */
export function loops(text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = new Map<string, number>();
  for (let i = 0; i + loopWords <= words.length; i++) {
    const gram = words.slice(i, i + loopWords).join(" ");
    const count = (counts.get(gram) ?? 0) + 1;
    if (count >= loopCount) return true;
    counts.set(gram, count);
  }
  return false;
}

/** Returns the beginning of an answer without leading quotation marks and Markdown emphasis characters. */
function openingOf(text: string): string {
  return text
    .trimStart()
    .replace(/^(?:\*\*|["'“‘_#])+\s*/, "")
    .slice(0, openingLength);
}
