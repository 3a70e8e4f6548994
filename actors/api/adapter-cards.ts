// Adapter cards: entries for LoRA adapters in the list of models, with ids of the form `<model>::<alias>`. Creates the ids, and
// finds the adapter of an id.
import type { AdapterEntry, ModelEntry } from "./inference.ts";

/** Entry of an adapter in the list of models. */
export interface AdapterCard {
  readonly id: string;
  readonly modelId: string;
  readonly adapter: AdapterEntry;
}

type Adapted = Pick<ModelEntry, "id" | "adapters">;

/**
 * Returns the cards of at most `limit` adapters, in the order of the models and, within a model, of its adapters. Each id is
 * unique among the cards and differs from all model ids.
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

/** Returns the card with this id, or the card with this alias if only one model has the alias; null = no card. */
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

/** Returns a card for each model that has the alias. */
function cardsOf(alias: string, models: readonly Adapted[], modelIds: ReadonlySet<string>): AdapterCard[] {
  return models.flatMap(({ id: modelId, adapters }) => {
    const adapter = adapters.find((entry) => entry.alias === alias);
    return adapter === undefined ? [] : [{ id: cardId(modelId, alias, modelIds), modelId, adapter }];
  });
}

/**
 * Returns the id of an adapter's card. Both parts are escaped and contain no `::`, so two adapters never share an id. If a model
 * already has the id, a number is appended.
 */
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
