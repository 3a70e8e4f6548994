// Tasks of `bench speculation`. Two tasks ask for a source file with one identifier renamed, so the response mostly copies the prompt.
// The other tasks ask for stories, which contain few repetitions.
import type { ChatMessage } from "../serving/client/ask.ts";

const file = `import { readFile, writeFile } from "node:fs/promises";

export interface Item {
  readonly name: string;
  readonly price: number;
  readonly count: number;
}

export class Basket {
  readonly #items: Item[] = [];

  add(item: Item): void {
    if (item.count < 1) throw new Error("a basket holds at least one of each item");
    this.#items.push(item);
  }

  remove(name: string): boolean {
    const index = this.#items.findIndex((item) => item.name === name);
    if (index === -1) return false;
    this.#items.splice(index, 1);
    return true;
  }

  total(): number {
    let sum = 0;
    for (const { price, count } of this.#items) sum += price * count;
    return sum;
  }

  describe(): string {
    const lines = this.#items.map(({ name, count }) => \`\${count} x \${name}\`);
    return lines.join("\\n");
  }
}

export async function readBasket(path: string): Promise<Basket> {
  const text = await readFile(path, "utf8");
  const basket = new Basket();
  for (const line of text.split("\\n")) {
    const [name = "", price = "0", count = "1"] = line.split(",");
    if (name !== "") basket.add({ name, price: Number(price), count: Number(count) });
  }
  return basket;
}

export async function writeBasket(path: string, basket: Basket): Promise<void> {
  const text = basket.describe();
  await writeFile(path, text, "utf8");
}

export function cheapest(items: readonly Item[]): Item | null {
  let found: Item | null = null;
  for (const item of items) {
    if (found === null || item.price < found.price) found = item;
  }
  return found;
}

export function dearest(items: readonly Item[]): Item | null {
  let found: Item | null = null;
  for (const item of items) {
    if (found === null || item.price > found.price) found = item;
  }
  return found;
}
`;

export interface Task {
  readonly name: string;
  readonly messages: readonly ChatMessage[];
  readonly fields: Readonly<Record<string, unknown>>;
  /** Minimum ratio of decode speed with drafts to decode speed without. */
  readonly bar: number;
}

/**
 * Returns a conversation in which the model has already shown the file once, because a small model copies best from its own
 * output.
 */
function showAgain(change: string): readonly ChatMessage[] {
  return [
    { role: "user", content: "Show me the file basket.ts." },
    { role: "assistant", content: file },
    { role: "user", content: `Show me the file again with ${change}.` },
  ];
}

/**
 * Conversation that requests the source file again with one identifier renamed. The class name `Basket` occurs in many lines; the
 * function name `dearest` (in `renameFunction`) occurs only near the end.
 */
const renameClass = showAgain("Basket renamed to Cart");
const renameFunction = showAgain("the function dearest renamed to priciest");

const story: readonly ChatMessage[] = [{ role: "user", content: "Tell me a long story about a lighthouse." }];

/**
 * Returns the tasks of one round. A greedy story of a small model soon repeats itself. A sampled story does not, so it shows
 * the cost of useless drafts.
 */
export function tasksOf(round: number): readonly Task[] {
  const free = { ignore_eos: true };
  return [
    { name: "edit a file: a class renamed", messages: renameClass, fields: free, bar: 1.7 },
    { name: "edit a file: a function renamed", messages: renameFunction, fields: free, bar: 1.7 },
    { name: "story, greedy", messages: story, fields: free, bar: 0.97 },
    { name: "story, drawn", messages: story, fields: { ...free, temperature: 1, seed: round }, bar: 0.97 },
  ];
}
