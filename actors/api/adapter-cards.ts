// Owns the names under which adapters stand among the models: `<model>::<alias>`, and what such a name stands for. Used by
// whoever resolves the models of requests, and by the list of models. Pure.
import type { AdapterEntry, ModelEntry } from "./inference.ts";

/** An adapter as a model of its own. */
export interface AdapterCard {
  readonly id: string;
  readonly modelId: string;
  readonly adapter: AdapterEntry;
}

type Adapted = Pick<ModelEntry, "id" | "adapters">;

/**
 * A card for each adapter, in the order of the models and of their adapters; of the first so many of them. No two have the same
 * id, nor a model's.
 */
export function adapterCards(models: readonly Adapted[], limit = Number.POSITIVE_INFINITY): readonly AdapterCard[] {
  const modelIds = idsOf(models);
  const cards: AdapterCard[] = [];
  for (const { id: modelId, adapters } of models) {
    for (const adapter of adapters.slice(0, limit - cards.length)) {
      cards.push({ id: cardId(modelId, adapter.alias, modelIds), modelId, adapter });
    }
  }
  return cards;
}

/** The card of this id, or of this alias where no other model has it too; null where there is none. Makes that card alone. */
export function cardNamed(name: string, models: readonly Adapted[]): AdapterCard | null {
  const modelIds = idsOf(models);
  const [, alias = null] = /^[^:]*::([^:#]*)(?:#\d+)?$/.exec(name) ?? [];
  const named = alias === null ? [] : cardsOf(unescaped(alias), models, modelIds);
  const found = named.find(({ id }) => id === name);
  if (found !== undefined) return found;
  const [only, another] = cardsOf(name, models, modelIds);
  return only === undefined || another !== undefined ? null : only;
}

function idsOf(models: readonly Adapted[]): ReadonlySet<string> {
  return new Set(models.map(({ id }) => id));
}

/** One of each model that has the alias. */
function cardsOf(alias: string, models: readonly Adapted[], modelIds: ReadonlySet<string>): AdapterCard[] {
  return models.flatMap(({ id: modelId, adapters }) => {
    const adapter = adapters.find((entry) => entry.alias === alias);
    return adapter === undefined ? [] : [{ id: cardId(modelId, alias, modelIds), modelId, adapter }];
  });
}

/** Escaped parts cannot hold `::`, so that cards of different adapters differ; an id that a model has is counted on. */
function cardId(modelId: string, alias: string, modelIds: ReadonlySet<string>): string {
  const plain = `${escaped(modelId)}::${escaped(alias)}`;
  let id = plain;
  for (let count = 2; modelIds.has(id); count++) id = `${plain}#${count}`;
  return id;
}

function escaped(part: string): string {
  return part.replaceAll("%", "%25").replaceAll(":", "%3A").replaceAll("#", "%23");
}

function unescaped(part: string): string {
  return part.replaceAll("%23", "#").replaceAll("%3A", ":").replaceAll("%25", "%");
}
